"""Splits and slices, as the `datasets` library writes them: `validation`, `train[:1000]`, `a+b`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import datasets

from hydractl.errors import DataError

# The words by which `datasets` tells splits apart in file and folder names.
KEYWORDS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
}


def split_of_word(word: str) -> str | None:
    """The split that a file or folder of this name holds (`val` is validation), None when it names none."""
    return KEYWORDS.get(re.sub(r"-\d+-of-\d+$", "", word.lower()))


def complete_request(asked: str | None, splits: Sequence[str], where: str) -> str:
    """The request with every split named, checked: the only split when none was asked for.

    Args:
        asked: what stands after the source, e.g. `validation`, `val`, `train[:10%]`, `[:100]` or None.
        splits: the splits there are.
        where: the source, for messages.

    Raises:
        DataError: several splits and none named, or one that is not there.
    """
    if not asked or asked.startswith("["):
        if len(splits) != 1:
            raise DataError(f"{where}: holds the splits {', '.join(splits)}: name one, as in {where}:{splits[0]}")
        return splits[0] + (asked or "")
    return "+".join(_complete_part(part.strip(), splits, where) for part in asked.split("+"))


def _complete_part(part: str, splits: Sequence[str], where: str) -> str:
    name, bracket, slice_ = part.partition("[")
    if name in splits:
        return part
    if (canonical := split_of_word(name)) in splits:
        return f"{canonical}{bracket}{slice_}"
    raise DataError(f"{where}: has no split {name!r}, only {', '.join(splits)}")


def names_in(request: str) -> list[str]:
    """The splits a complete request takes samples from, each once, in order."""
    return list(dict.fromkeys(part.partition("[")[0] for part in request.split("+")))


def take(parts: Mapping[str, datasets.Dataset], request: str, where: str) -> datasets.Dataset:
    """The samples that a complete request asks for, in its order.

    Raises:
        DataError: the slice cannot be read.
    """
    try:
        instruction = datasets.ReadInstruction.from_spec(request)
        pieces = instruction.to_absolute({name: len(part) for name, part in parts.items()})
    except (ValueError, AssertionError) as error:
        raise DataError(f"{where}:{request}: is no slice; write [:100], [100:200] or [:10%]") from error
    # An empty range at the end is out of range to `select`, an empty list is not.
    rows = [range(piece.from_, piece.to) if piece.from_ < piece.to else [] for piece in pieces]
    chosen = [parts[piece.splitname].select(some) for piece, some in zip(pieces, rows, strict=True)]
    return chosen[0] if len(chosen) == 1 else datasets.concatenate_datasets(chosen)
