"""Splits and slices, as the `datasets` library writes them: `validation`, `train[:1000]`, `a+b`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

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

ENDLESS = 2**62  # stands for a number of samples that is not known


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
        DataError: several splits and none named, one that is not there.
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


def chosen_rows(parts: Mapping[str, datasets.Dataset], request: str, where: str) -> datasets.Dataset:
    """The samples that a complete request asks for, in its order.

    Raises:
        DataError: the slice cannot be read.
    """
    pieces = _pieces(request, {name: len(part) for name, part in parts.items()}, where)
    # An empty range at the end is out of range to `select`, an empty list is not.
    rows = [range(piece.from_, piece.to) if piece.from_ < piece.to else [] for piece in pieces]
    chosen = [parts[piece.splitname].select(some) for piece, some in zip(pieces, rows, strict=True)]
    return chosen[0] if len(chosen) == 1 else datasets.concatenate_datasets(chosen)


def chosen_stream(
    parts: Mapping[str, datasets.Dataset | datasets.IterableDataset], request: str, sizes: Mapping[str, int], where: str
) -> tuple[datasets.IterableDataset, int | None]:
    """The samples that a complete request asks for as a stream in its order, and how many, None where not known.

    Args:
        sizes: how many samples splits have, where that is known.

    Raises:
        DataError: the slice cannot be read, or counts from an end that is not known.
    """
    known = {name: len(part) for name, part in parts.items() if isinstance(part, datasets.Dataset)}
    lengths = {name: known.get(name, sizes.get(name, ENDLESS)) for name in parts}
    if ENDLESS in lengths.values() and (found := re.search(r"\[[^]]*[%-][^]]*]", request)):
        raise DataError(f"{where}: how many samples it has is not known before the end: write {found[0]} as [:100]")
    pieces = _pieces(request, lengths, where)
    rows = []
    for piece in pieces:
        part = parts[piece.splitname]
        part = part.to_iterable_dataset() if isinstance(part, datasets.Dataset) else part
        part = part.skip(piece.from_) if piece.from_ else part
        rows.append(part.take(piece.to - piece.from_) if piece.to < lengths[piece.splitname] else part)
    total = sum(piece.to - piece.from_ for piece in pieces)
    whole = rows[0] if len(rows) == 1 else datasets.concatenate_datasets(rows)
    return whole, total if total < ENDLESS // 2 else None


def _pieces(request: str, lengths: Mapping[str, int], where: str) -> list[Any]:
    try:
        return datasets.ReadInstruction.from_spec(request).to_absolute(lengths)
    except (ValueError, AssertionError) as error:
        raise DataError(f"{where}:{request}: is no slice; write [:100], [100:200] or [:10%]") from error
