"""Bounds of every number that a user gives: beyond them a command would run for ever or fill the memory.

Numbers inside a text (`mc-dropout=10`, `0-5`, `fit|1.5`) are read here too, so that none escapes its bounds.
"""

from __future__ import annotations

import re
from math import isfinite

SAMPLES = 10**9
BATCH = 2**20  # samples of a forward pass
STEPS = 10**7  # of an optimiser
EPOCHS = 10**5
PASSES = 10**4  # of a network with dropout on
DRAWS = 10**5  # of a bootstrap
LAYERS = 1000  # of a tower
HEADS = 10**6  # of a model
MEMBERS = 1000
NETWORKS = 100  # that are added up to one ensemble
WIDTH = 10**6  # of a layer
SEED = 2**63 - 1
RATE = 1e3  # of learning
LEAST_COUNT = 1e-3  # of pseudo-samples
COLDEST, HOTTEST = 1e-4, 1e4  # temperatures
NUMBER = re.compile(r"[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,4})?", re.ASCII)
DIGITS = 20  # of a number in a text, more than any bound above has


def whole(text: object, low: int, high: int) -> int | None:
    """Returns the whole number in a text of plain digits, with or without `-`; None for other text and out of range."""
    digits = str(text).strip()
    plain = digits.removeprefix("-")
    if len(plain) > DIGITS or not plain.isascii() or not plain.isdecimal():
        return None
    return number if low <= (number := int(digits)) <= high else None


def real(text: object, low: float, high: float) -> float | None:
    """Returns the number in a text; None if the text is not a number, not finite or out of range."""
    if NUMBER.fullmatch(digits := str(text).strip()) is None:
        return None
    return number if isfinite(number := float(digits)) and low <= number <= high else None
