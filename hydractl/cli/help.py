"""What `--help` says of a step: in words of the command line, from how the step declares its options."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from hydractl.steps.options import Declared, flags_of
from hydractl.text import continued

EXAMPLE_WIDTH = 78  # of 80 columns, less two of indentation
UNBROKEN = "\u2011"  # a hyphen at which no line ends

#: What stands for a value of a type.
METAVARS: dict[Any, str] = {int: "N", float: "X", str: "TEXT"}
#: More characters of choices are read in the sentence rather than in the column before it.
LONGEST_METAVAR = 40
#: A higher bound keeps nonsense out, and tells nobody anything.
TELLING_BOUND = 100


def respelled(text: str, options: Sequence[Declared]) -> str:
    """A message with options, which it names in backquotes as Python does, as the command line spells them."""
    spelled = {option.name: spelling(option) for option in options}
    return re.sub(r"`(\w+)`", lambda found: spelled.get(found[1], found[0]), text)


def spelling(option: Declared) -> str:
    """What the command line calls an option: its first flag, or what stands for it where it has none."""
    return metavar(option).removesuffix("...") if option.option.positional else flags_of(option)[0]


def help_text(step: Any, options: Sequence[Declared]) -> str:
    """What `--help` says above the options: a step's docstring without what only Python needs."""
    text = inspect.getdoc(step if isinstance(step, type) else inspect.unwrap(step)) or ""
    of_python = (">>>", "In Python", "Raises:", "Source:", "Returns:")
    blocks = [block for block in text.split("\n\n") if not block.startswith(of_python)]
    # After this mark nothing is wrapped again.
    whole = (
        "\n".join(["\b", *continued(block, EXAMPLE_WIDTH)]) if block.startswith("Example: ") else block
        for block in blocks
    )
    return respelled("\n\n".join(whole), options)


def metavar(option: Declared) -> str:
    """What stands for the value of an option: the values there are to choose from, if they are few."""
    if option.option.metavar:
        return option.option.metavar
    if option.choices:
        choices = "|".join(map(str, option.choices))
        return choices if len(choices) <= LONGEST_METAVAR else "NAME"
    return METAVARS.get(option.type, "FILE")


def usage(option: Declared) -> str:
    """An argument as the line with the usage has it: in brackets where it may be left out."""
    return metavar(option) if option.required else f"[{metavar(option)}]"


def record(option: Declared, text: str, default: str | None) -> tuple[str, str]:
    """An option's two columns: how it is written, and what it does."""
    written = (
        metavar(option)
        if option.option.positional
        else ", ".join(sorted(flags_of(option), key=lambda flag: flag.startswith("--")))
    )
    if not option.option.positional and option.type is not bool:
        written += f" {metavar(option)}"
    if any(str(choice) not in written + text for choice in option.choices):
        text += f" One of {', '.join(map(str, option.choices))}."
    notes = [f"default: {default}" if default else "", _range(option), "required" if option.required else ""]
    said = "; ".join(filter(None, notes))
    return written, unbroken(f"{text}  [{said}]" if said else text)


def _range(option: Declared) -> str:
    """The range of a number, as far as it tells a reader anything."""
    low, high = option.option.minimum, option.option.maximum
    if option.type not in (int, float) or low is None or high is None:
        return ""
    if high <= TELLING_BOUND:
        return f"{low:g} to {high:g}"
    return f"at least {low:g}" if low > 1 else ""


def unbroken(text: str) -> str:
    """Text whose lines end at blanks only: a flag that is cut in two cannot be read, nor copied."""
    return re.sub(r"(?<=[\w-])-(?=\w)|(?<!\S)-(?=-\w)", UNBROKEN, text)


def set_out(text: str) -> str:
    """Help as it is printed: with its headings in bold where a person reads it on a terminal that can."""
    text = text.replace(UNBROKEN, "-")
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    return text if plain else re.sub(r"^\S[^:\n]*:", "\x1b[1m\\g<0>\x1b[0m", text, flags=re.MULTILINE)
