"""Escapes text from outside: one function per format, called by its writer.

Names of systems, data and labels, fields of a manifest and values of options may hold markup of the format that they
are written to. Each function returns text that shows the name there and does nothing else.
"""

from __future__ import annotations

import html as _html
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from hydractl.text import printable

if TYPE_CHECKING:
    from rich.text import Text

#: An underscore between letters means nothing in Markdown, and escaped is hard to read.
_MARKDOWN = re.compile(r"[\\`*{}\[\]<>|&~$#]|(?<![^\W_])_|_(?![^\W_])")
#: At its start a line would become an item of a list, or the line above it a heading.
_LIST = re.compile(r"^(\d{0,9})([-+=.)])(?=[-=\s]|$)")
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    # At the start of a row these would be arguments of the line end before it.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "±": r"$\pm$",
    "†": r"$\dagger$",
    # Fonts may lack triangles.
    "▲": "$^{+}$",
    "▼": "$^{-}$",
}
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


def latex(text: str) -> str:
    """Returns text for LaTeX, in a cell of a table."""
    return "".join(_LATEX.get(character, character) for character in printable(text))
