"""What counts as data, as types; loads no library, so that any signature may name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

Modality = Literal["image", "text"]
Group = Literal["near", "far"]
Text = str | tuple[str, str]


class Indexed(Protocol):
    """Samples by their place: a list, a `datasets.Dataset`, a torch `Dataset` that has a length."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, index: Any, /) -> Any:
        """The one at a place."""


#: One data set; `hydractl.data.open` says how each kind is read.
DataLike: TypeAlias = str | Path | Indexed | Mapping[str, Indexed]
#: Several data sets: sources, or data by `NAME` or `GROUP/NAME`.
DataSetsLike: TypeAlias = DataLike | Sequence[str | Path] | Mapping[str, str | Path | Indexed]
