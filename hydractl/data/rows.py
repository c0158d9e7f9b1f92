"""The rows of a table as samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import datasets

from hydractl.data.columns import ChosenColumns, Columns, choose_columns, is_text, nested_columns, type_name
from hydractl.data.images import EncodedImages
from hydractl.data.labels import read_labels
from hydractl.data.like import Modality, Text
from hydractl.data.samples import Samples, fewer_classes, find_bad, refuse_bad_texts, spread
from hydractl.data.spec import DataSpec, DataValues
from hydractl.data.tables import folders_of
from hydractl.errors import DataError


def read_table(
    whole: datasets.Dataset,
    asked: DataSpec | DataValues,
    modality: Modality,
    columns: Columns,
    limit: int | None,
    skip_bad: bool,
) -> Samples:
    """The samples in a table; see `hydractl.data.open.open_samples`.

    Args:
        whole: all its rows.
        asked: what the user asked for; says what to call it, and where files are that its rows name.

    Raises:
        DataError: no samples, no such column, or empty texts without `skip_bad`.
    """
    where = str(asked)
    whole = whole.flatten() if nested_columns(whole.features, columns) else whole
    table = whole if limit is None else whole.select(spread(len(whole), limit))
    if not len(table):
        raise DataError(f"{where}: holds no samples")
    chosen = choose_columns(table, modality, columns, where)
    samples = read_samples(table, asked, modality, chosen, skip_bad)
    if not len(samples):
        raise DataError(f"{where}: not one of {len(table)} samples can be read: {samples.skipped[0]}")
    return replace(samples, notes=_limit_notes(whole, table, chosen, where))


def read_samples(
    table: datasets.Dataset,
    asked: DataSpec | DataValues,
    modality: Modality,
    chosen: ChosenColumns,
    skip_bad: bool,
    first: int = 0,
) -> Samples:
    """The samples in the rows of a table; none, if all were left out.

    Args:
        first: the place of the table's first row in the data set, for messages.

    Raises:
        DataError: empty texts without `skip_bad`.
    """
    where = str(asked)
    skipped: tuple[str, ...] = ()
    hashes = None
    inputs = _inputs(table, asked, modality, chosen, first)
    if skip_bad:
        hashes, bad = find_bad(inputs, where, first)
        good = [at for at in range(len(table)) if at not in bad]
        table, hashes, skipped = table.select(good), hashes[good], tuple(bad.values())
        inputs = _inputs(table, asked, modality, chosen, first)
    refuse_bad_texts(inputs, where, first)
    samples = Samples(asked.name, modality, inputs, chosen_columns=chosen, skipped=skipped, hashes=hashes)
    return _with_labels(samples, table, chosen)


def _limit_notes(whole: datasets.Dataset, part: datasets.Dataset, chosen: ChosenColumns, where: str) -> tuple[str, ...]:
    if chosen.label is None or len(part) == len(whole):
        return ()
    all_labels, labels = read_labels(whole, chosen.label), read_labels(part, chosen.label)
    if isinstance(all_labels, str) or isinstance(labels, str):
        return ()
    return fewer_classes(labels[0], all_labels[0], where)


def _inputs(
    table: datasets.Dataset, asked: DataSpec | DataValues, modality: Modality, chosen: ChosenColumns, first: int
) -> Sequence[Any]:
    if modality == "text":
        return read_texts(table, chosen.inputs, str(asked))
    return EncodedImages(table, chosen.inputs[0], str(asked), first, folders_of(asked))


def read_texts(table: datasets.Dataset, columns: Sequence[str], where: str) -> list[Text]:
    """The text of each sample, or the pair of texts where there are two columns; empty ones are in.

    Raises:
        DataError: a column that holds no strings.
    """
    for column in columns:
        if not is_text(table.features[column]):
            kind = type_name(table.features[column])
            raise DataError(f"{where}: column {column} holds {kind}, not text; name another with `text_column`")
    rows = table.select_columns(list(columns)).with_format("arrow")[:]
    read = [[text or "" for text in rows[column].to_pylist()] for column in columns]
    return read[0] if len(read) == 1 else list(zip(*read, strict=True))


def _with_labels(samples: Samples, table: datasets.Dataset, chosen: ChosenColumns) -> Samples:
    if chosen.label is None:
        return replace(samples, label_problem=chosen.label_problem)
    read = read_labels(table, chosen.label)
    if isinstance(read, str):
        return replace(samples, label_problem=read)
    return replace(samples, labels=read[0], label_names=read[1])
