"""Makes text from outside safe: for a line that a person reads, and for each format that is written.

Files, names and other libraries may hold anything: codes that move a cursor or turn the direction of writing, line
ends, secrets, pages of explanations, markup. These functions return one line that shows what was there.
"""

from __future__ import annotations

import html as _html
import json
import os
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

if TYPE_CHECKING:
    from rich.text import Text


LONGEST_SENTENCE = 300  # of another library's message
#: Characters that languages need but `str.isprintable` refuses: wide and narrow blanks, joiners of letters and emoji.
HARMLESS = frozenset("\u00a0\u2002\u2003\u2007\u2009\u202f\u3000\u200c\u200d")
_SECRETS = (
    (re.compile(r"(?<=://)[^/@\s]+(?=@)"), "***"),  # a name and a password in an address
    (re.compile(r"(?<=://)([^\s?'\"]+\?)[^\s'\"]+"), r"\1***"),  # the query of one, in which signatures stand
    (re.compile(r"\bhf_[A-Za-z0-9]{6,}\b"), "hf_***"),  # but not hf_model_name
)
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def composed(name: str) -> str:
    """Returns a name in the one Unicode form (NFC) in which names are compared; macOS takes letters apart."""
    return normalize("NFC", name)


def composed_all(names: Iterable[str] | None) -> tuple[str, ...] | None:
    """Returns names as `composed` does; None for none."""
    return None if names is None else tuple(map(composed, names))


def nearest(name: str, names: Sequence[str]) -> str | None:
    """Returns the one of some names that a misspelt one most probably means, None if all are too different."""
    close = get_close_matches(name.casefold(), [other.casefold() for other in names], 1)
    return next((other for other in names if [other.casefold()] == close), None)


def told_apart(name: str, near: str) -> str:
    """Returns a name and the near one for a message, with the code points of letters that may look alike."""
    plain = name.isascii() and near.isascii()
    return f"{near} for {name}" if plain else f"{near} ({near!a}) for {name} ({name!a})"


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Returns names that can be keys: equal ones are numbered from the second on.

    >>> distinct(["crane", "owl", "crane"])
    ('crane', 'owl', 'crane #2')
    """
    taken, times = set(names), Counter[str]()
    keys = list[str]()
    for name in names:
        times[name] += 1
        key = name
        while times[name] > 1 and (key := f"{name} #{times[name]}") in taken:
            times[name] += 1
        taken.add(key)
        keys.append(key)
    return tuple(keys)


def unnumbered(name: str, names: Collection[str]) -> str:
    """Returns the name that `distinct` numbered: crane for 'crane #2' beside crane; other names as they are."""
    plain, _, number = name.rpartition(" #")
    return plain if number.isdecimal() and plain in names else name


def printable(text: str) -> str:
    """Escapes control characters, so that text breaks no line, moves no cursor and turns nothing around.

    The escapes are Python's own, as in `\\x1b`. Surrogates, as which Python reads names that are not UTF-8, are
    escaped too, so the result can be encoded.
    """
    if text.isprintable():
        return text
    return "".join(c if is_harmless(c) else c.encode("unicode_escape").decode("ascii") for c in text)


def printable_json(value: Any) -> str:
    """Returns JSON for people, with unprintable characters escaped; it reads back as the same value.

    A surrogate, which JSON readers refuse, becomes the escape that `printable` shows.
    """
    lines = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    return "\n".join(line if line.isprintable() else "".join(map(_in_json, line)) for line in lines)


def _in_json(character: str) -> str:
    if is_harmless(character):
        return character
    escaped = json.dumps(character)[1:-1] if character > "\x7f" else "\\u007f"
    return f"\\{escaped}" if "\ud800" <= character <= "\udfff" else escaped


def is_harmless(character: str) -> bool:
    """Tells whether files and terminals may contain a character as it is."""
    return character.isprintable() or character in HARMLESS


def one_line(text: str) -> str:
    """Returns text as one line: line ends become blanks, other unprintable characters are escaped."""
    return printable(" ".join(filter(None, map(str.strip, text.splitlines()))))


def shortened(text: str, most: int) -> str:
    """Returns text without control characters, cut at the end to `most` characters."""
    text = printable(text[: most + 1])
    return text if len(text) <= most else text[: most - 3] + "..."


def abridged(text: str, most: int) -> str:
    """Returns text of at most `most` characters, cut in the middle: names often differ at their ends."""
    if len(text) <= most:
        return text
    return f"{text[: most - most // 3 - 1]}…{text[len(text) - most // 3 :]}"


def span(numbers: Sequence[float]) -> str:
    """Returns the number for all classes, or the span of those by class."""
    low, high = f"{min(numbers):.4f}", f"{max(numbers):.4f}"
    return low if len(numbers) == 1 else f"{low} to {high} by class"


def counted(names: Sequence[str], most: int = 10) -> str:
    """Returns how many names there are, and the first of them: `3: cat, dog, owl`."""
    return f"{len(names)}: {', '.join(names[:most])}{', ...' if len(names) > most else ''}"


def wrapped(line: str, width: int) -> list[str]:
    """Cuts a line at blanks into pieces of at most `width`; later pieces start below its last column.

    >>> wrapped("name  what it is, in words", 16)
    ['name  what it', '      is, in', '      words']
    """
    if len(line) <= width or "\t" in line:
        return [line]
    starts = [gap.end() for gap in re.finditer(r"\S? {2,}(?=\S)", line) if 3 * gap.end() <= 2 * width]
    indent = " " * (starts[-1] if starts else 0)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def continued(command: str, width: int) -> list[str]:
    """Breaks a shell command into lines of at most `width`, with a backslash at each break.

    >>> continued("hydractl inspect model --json file", 24)
    ['hydractl inspect model \\\\', '    --json file']
    """
    first, *parts = re.findall(r"-\S+ [^-\s]\S*|\S+", command)  # a flag stays with its value
    lines = [first]
    for part in parts:
        if len(lines[-1]) + len(part) + 3 > width:  # with a blank before it, and perhaps a backslash after
            lines[-1] += " \\"
            lines.append(f"    {part}")
        else:
            lines[-1] += f" {part}"
    return lines


def first_sentence(message: str) -> str:
    """Returns the first sentence of another library's message, without secrets, in at most 300 characters."""
    # Where the first line only announces what follows, that belongs to it.
    message = re.sub(r":[ \t]*\n\s*", ": ", message.strip()[: 20 * LONGEST_SENTENCE])
    first = re.split(r"(?<=[.!?])\s+(?=[A-Z])|\n", message, maxsplit=1)[0]
    return shortened(one_line(without_secrets(first)), LONGEST_SENTENCE)


def without_secrets(text: str) -> str:
    """Removes tokens of the hub, and passwords and signatures in addresses."""
    for name in _TOKENS:
        if len(token := os.environ.get(name, "").strip()) >= 6:
            text = text.replace(token, "***")
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class TableLine(str):
    """A line of a plain table, with its cells."""

    cells: Sequence[str]


def aligned(rows: Iterable[Sequence[str]], left: int = 1) -> Iterator[TableLine]:
    """Yields the lines of a plain table.

    Args:
        left: number of columns aligned at the left; the others are aligned at the right.

    >>> list(aligned([["", "loss"], ["clean", "0.5"]]))
    ['       loss', 'clean   0.5']
    """
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = "<" * left + ">" * (len(widths) - left)
    for row in rows:
        cells = (f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        line = TableLine("  ".join(cells).rstrip())
        line.cells = row
        yield line


#: An underscore between letters means nothing in Markdown, and escaped is hard to read.
_MARKDOWN = re.compile(r"[\\`*{}\[\]<>|&~$#]|(?<![^\W_])_|_(?![^\W_])")
#: At its start a line would become an item of a list, or the line above it a heading.
_LIST = re.compile(r"^(\d{0,9})([-+=.)])(?=[-=\s]|$)")
#: The first characters of a spreadsheet's formula.
_FORMULA = ("=", "+", "-", "@")
_NUMBER = re.compile(r"[+-](\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def spreadsheet(text: str) -> str:
    """Returns text for a cell of CSV; a formula, which may start programs, gets an apostrophe, as OWASP advises."""
    # Some take a sign of any width for the sign. A number with a sign is one, and runs nothing.
    runs = normalize("NFKC", text[:1]).startswith(_FORMULA) and not _NUMBER.fullmatch(text)
    return f"'{printable(text)}" if runs else printable(text)


def terminal(text: str, style: str = "") -> Text:
    """Returns text for a table on a terminal, whose square brackets rich does not take for markup."""
    from rich.text import Text

    return Text(printable(text), style)


def html(text: str) -> str:
    """Returns text for HTML, between tags and in quoted attributes."""
    return _html.escape(printable(text))


def markdown(text: str) -> str:
    """Returns text for a line or a cell of a table in Markdown."""
    return _LIST.sub(r"\1\\\2", _MARKDOWN.sub(r"\\\g<0>", printable(text).strip()))


def markdown_code(text: str) -> str:
    """Returns text as code within a line of Markdown."""
    text = printable(text)
    # Nothing can be escaped in code: it ends at as many backticks as it began with, more than the text has in a row.
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    # Blanks beside the fences keep them apart from the text's own backticks; Markdown takes one off each side.
    padding = " " if text[:1] in ("`", " ") or text[-1:] in ("`", " ") else ""
    return f"{fence}{padding}{text}{padding}{fence}"


def front_matter(fields: Mapping[str, Any]) -> str:
    """Returns the metadata of a model card as the hub reads it: YAML between two lines of dashes."""
    from huggingface_hub import ModelCardData

    return f"---\n{ModelCardData(**fields).to_yaml()}\n---"
