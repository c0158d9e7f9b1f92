"""The texts of a table, checked: every sample has one (or both of a pair), and it says something."""

from __future__ import annotations

from collections.abc import Sequence

import datasets

from hydractl.data.columns import is_text, type_name
from hydractl.errors import DataError

Text = str | tuple[str, str]


def read_texts(table: datasets.Dataset, columns: Sequence[str], where: str) -> list[Text]:
    """The text of each sample, or the pair of texts where there are two columns; empty ones are in.

    Raises:
        DataError: a column that holds no strings.
    """
    for column in columns:
        if not is_text(table.features[column]):
            kind = type_name(table.features[column])
            raise DataError(f"{where}: column {column} holds {kind}, not text; name another with --text-column")
    rows = table.select_columns(list(columns)).with_format("arrow")[:]
    read = [[text or "" for text in rows[column].to_pylist()] for column in columns]
    return read[0] if len(read) == 1 else list(zip(*read, strict=True))


def empty_texts(texts: Sequence[Text]) -> list[int]:
    """The positions of samples whose text, or a part of whose pair, is missing or blank."""
    return [
        at
        for at, text in enumerate(texts)
        if not all(part.strip() for part in ((text,) if isinstance(text, str) else text))
    ]
