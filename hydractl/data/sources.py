"""Sources, and the rows of tables, as samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from hydractl.data.columns import ChosenColumns, Columns, choose_columns, is_text
from hydractl.data.hashes import Hashes, hash_inputs
from hydractl.data.images import EncodedImages
from hydractl.data.labels import read_labels
from hydractl.data.like import Modality
from hydractl.data.samples import Samples
from hydractl.data.spec import DataSpec
from hydractl.data.tables import open_table
from hydractl.data.texts import empty_texts, read_texts
from hydractl.errors import DataError


def open_data(
    spec: DataSpec,
    modality: Modality,
    columns: Columns | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
) -> Samples:
    """The samples the spec asks for, from any source the `datasets` library reads.

    Args:
        spec: what `parse_data_spec` returned.
        modality: what the model takes, `image` or `text`.
        columns: columns the user named; the others are detected.
        limit: use so many samples, spread evenly over the data, all by default.
        skip_bad: leave unreadable images and empty texts out (decodes every image once now) and say which.

    Raises:
        DataError: nothing there, no such split or column, no samples, or empty texts without `skip_bad`.
    """
    where = str(spec)
    whole = open_table(spec)
    table = whole if limit is None else _spread(whole, limit)
    if not len(table):
        raise DataError(f"{where}: holds no samples")
    chosen = choose_columns(table, modality, columns or Columns(), where)
    samples = read_samples(table, spec, modality, chosen, skip_bad)
    if not len(samples):
        raise DataError(f"{where}: not one of {len(table)} samples can be read: {samples.skipped[0]}")
    return replace(samples, notes=_limit_notes(whole, table, chosen, where))


def read_samples(
    table: datasets.Dataset, spec: DataSpec, modality: Modality, chosen: ChosenColumns, skip_bad: bool, first: int = 0
) -> Samples:
    """The samples in the rows of a table; none, if all were left out.

    Args:
        first: the place of the table's first row in the data set, for messages.

    Raises:
        DataError: empty texts without `skip_bad`.
    """
    where = str(spec)
    skipped: tuple[str, ...] = ()
    hashes = None
    if modality == "image":
        table = _with_image_paths(table, chosen.inputs[0], spec)
    if skip_bad:
        table, hashes, skipped = _without_bad(table, modality, chosen, where, first)
    inputs = _inputs(table, modality, chosen, where, first)
    if isinstance(inputs, list) and (empty := empty_texts(inputs)):
        raise DataError(
            f"{where}: {len(empty)} of {len(inputs)} texts are empty, the first is sample {first + empty[0]}: "
            "remove them"
        )
    samples = Samples(spec.name, modality, inputs, chosen_columns=chosen, skipped=skipped, hashes=hashes)
    return _with_labels(samples, table, chosen)


def _spread(table: datasets.Dataset, limit: int) -> datasets.Dataset:
    # Data often comes sorted by class: its first samples would be of one class only.
    size = len(table)
    return table if limit >= size else table.select([i * size // limit for i in range(limit)])


def _limit_notes(whole: datasets.Dataset, part: datasets.Dataset, chosen: ChosenColumns, where: str) -> tuple[str, ...]:
    """A warning where the samples taken are of fewer classes than the whole."""
    if chosen.label is None or len(part) == len(whole):
        return ()
    all_labels, labels = read_labels(whole, chosen.label), read_labels(part, chosen.label)
    if isinstance(all_labels, str) or isinstance(labels, str):
        return ()
    have, of = np.unique(labels[0]).size, np.unique(all_labels[0]).size
    if have == of:
        return ()
    return (f"{where}: the {len(part)} samples taken hold {have} of {of} classes",)


def _inputs(
    table: datasets.Dataset, modality: Modality, chosen: ChosenColumns, where: str, first: int
) -> Sequence[Any]:
    if modality == "text":
        return read_texts(table, chosen.inputs, where)
    return EncodedImages(table, chosen.inputs[0], where, first)


def _with_image_paths(table: datasets.Dataset, column: str, spec: DataSpec) -> datasets.Dataset:
    """A column of file names means files beside the table."""
    source = Path(spec.source).expanduser()
    if not is_text(table.features[column]):
        return table
    folder = source if source.is_dir() else source.parent
    paths = table.select_columns([column]).with_format("arrow")[:][column].to_pylist()
    absolute = [None if path is None else str(folder.absolute() / path) for path in paths]
    return table.remove_columns(column).add_column(column, absolute)


def _without_bad(
    table: datasets.Dataset, modality: Modality, chosen: ChosenColumns, where: str, first: int
) -> tuple[datasets.Dataset, Hashes, tuple[str, ...]]:
    inputs = _inputs(table, modality, chosen, where, first)
    hashes, bad = hash_inputs(inputs)
    if isinstance(inputs, list):
        bad = {at: f"{where}: sample {first + at}: empty text" for at in empty_texts(inputs)}
    good = [at for at in range(len(table)) if at not in bad]
    return table.select(good), hashes[good], tuple(bad.values())


def _with_labels(samples: Samples, table: datasets.Dataset, chosen: ChosenColumns) -> Samples:
    if chosen.label is None:
        return replace(samples, label_problem=chosen.label_problem)
    read = read_labels(table, chosen.label)
    if isinstance(read, str):
        return replace(samples, label_problem=read)
    return replace(samples, labels=read[0], label_names=read[1])
