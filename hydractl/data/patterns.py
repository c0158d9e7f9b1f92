"""What of a tokenizer.json runs on every text: only what takes time and memory by the length of the text is let in.

Its regular expressions are searched by a library that goes back and tries again as often as a pattern asks for, and
its replacements may each make a text longer. So there is a form that patterns must have, which those of published
tokenizers do: single characters are repeated, no groups, and one repetition at most has to be tried again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hydractl.schema import shown

LONGEST = 2000  # characters of a pattern, or of what takes the place of its matches
LONGEST_WORD = 1000  # characters of a word that is looked up piece by piece
GROWTH = 1000  # times as long as it was a text may become
OPTIONAL = 4  # things in a row of a pattern that may be there or not: each doubles what is tried
#: Parts that hold words, not patterns.
WORDS = ("model", "added_tokens")

_PART = re.compile(
    r"""
    (?P<open> \( (?: \? (?: [im-]*: | <?[=!] ) )? )
    | (?P<times> \{ \d{0,3} (?: ,\d{0,3} )? \} )
    | (?P<character>
        \[ \^? (?: \\. | \[ (?: \\. | [^\[\]\\] )+ \] | [^\[\]\\] )+ \]
        | \\ (?: [pP]\{\^?[\w =]+\} | x\{[0-9A-Fa-f]+\} | x[0-9A-Fa-f]{2} | u[0-9A-Fa-f]{4} )
        | \\ (?: [tnrfvaesSdDwWhHbBAzZ] | [^0-9A-Za-z] )
        | [^\\\[\](){}*+?|]
      )
    """,
    re.VERBOSE,
)
#: Of letters as `_letter` has them; a group of characters is a g.
_GROUP = re.compile(r"\([c|]*\)")
_ONCE = r"[cg](?:\?[?+]?)?"
_REPEATED = r"c(?:[*+][?+]?|t)"
#: What follows a repetition and has to match makes it be tried again; so one alone is followed by such.
_ALTERNATIVE = re.compile(rf"(?:{_ONCE})*(?:{_REPEATED}(?:{_ONCE})*)?(?:{_REPEATED}(?:c\*|[cg]\?)*)?")


def unfit_part(tokenizer: Mapping[str, Any]) -> str | None:
    """What in a tokenizer.json may take for ever, as a finding for a message; None where nothing does."""
    model = tokenizer.get("model")
    longest = model.get("max_input_chars_per_word") if isinstance(model, dict) else None
    if isinstance(longest, int) and longest > LONGEST_WORD:
        return f"model.max_input_chars_per_word is {longest}, should be at most {LONGEST_WORD}"
    growth = 1
    for place, part in _parts({name: value for name, value in tokenizer.items() if name not in WORDS}, ""):
        pattern, content = part.get("Regex"), part.get("content", "")
        if isinstance(pattern, str) and not is_quick(pattern):
            return f"{place} {shown(pattern)} may be searched for ever"
        if part.get("type") in ("Replace", "ByteLevel"):
            growth *= 2 if part["type"] == "ByteLevel" else max(1, len(content) if isinstance(content, str) else 1)
        if growth > GROWTH:
            return f"{place} makes a text more than {GROWTH} times as long"
    return None


def is_quick(pattern: str) -> bool:
    """Whether a regular expression takes time by the square of a text's length at most."""
    if len(pattern) > LONGEST:
        return False
    skeleton = _GROUP.sub("g", _PART.sub(_letter, pattern)).split("|")
    return all(_ALTERNATIVE.fullmatch(each) and each.count("?") <= OPTIONAL for each in skeleton)


def _letter(part: re.Match[str]) -> str:
    """What a part of a pattern is: c a character, whichever; t so many times."""
    return {"open": "(", "times": "t"}.get(str(part.lastgroup), "c")


def _parts(value: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects within a value, each with the dotted path of its key."""
    if isinstance(value, dict):
        yield place, value
    for key, child in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        yield from _parts(child, f"{place}.{key}".lstrip("."))
