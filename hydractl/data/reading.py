"""The types of data that a user gives, and the options by which commands read them.

This file loads no library, so that any signature may name its types.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeAlias

from hydractl import bounds
from hydractl.options import Option, option

Modality = Literal["image", "text"]
Group = Literal["near", "far"]
Text = str | tuple[str, str]


class Indexed(Protocol):
    """Samples by their place: a list, a `datasets.Dataset`, a torch `Dataset` that has a length."""

    def __len__(self) -> int:
        """Returns the number of samples."""

    def __getitem__(self, index: Any, /) -> Any:
        """Returns the sample at a place."""


#: One data set; `hydractl.data.open` says how each kind is read.
DataLike: TypeAlias = str | Path | Indexed | Mapping[str, Indexed]
#: Several data sets: sources, or data by `NAME` or `GROUP/NAME`.
DataSetsLike: TypeAlias = DataLike | Sequence[str | Path] | Mapping[str, str | Path | Indexed]


SOURCE = "[NAME=]SOURCE[:SPLIT]"
OOD_SOURCE = "[[near/|far/]NAME=]SOURCE[:SPLIT]"
DEFAULT_TEMPLATE = "A photo of a {label}."


Limit = Annotated[
    int | None,
    Option(
        "Use only N samples of each data set, spread evenly over it.",
        "Data",
        "N",
        minimum=1,
        maximum=bounds.SAMPLES,
    ),
]
Classes = Annotated[
    Any,
    Option(
        "Class names for a zero-shot model that has no labels: a file with one name a line.",
        "Data",
        "FILE",
        remembered=False,
    ),
]
Template = Annotated[str, Option("Prompt of a zero-shot model; {label} stands for the class name.", "Data")]
SkipBad = Annotated[
    bool, Option("Leave unreadable images and empty texts out, and say which.", "Data", remembered=False)
]


@dataclass(frozen=True)
class Reading:
    """Says how the samples of a data set are found, limited and labelled."""

    limit: Limit = None
    classes: Classes = None
    template: Template = DEFAULT_TEMPLATE
    image_column: str | None = option(
        None, "Column of the images. Default: found by type and name.", "Data", "NAME", remembered=False
    )
    text_column: str | None = option(
        None, "Column of the texts; name two with a comma for text pairs.", "Data", "NAME[,NAME]", remembered=False
    )
    label_column: str | None = option(None, "Column of the labels.", "Data", "NAME", remembered=False)
    match_labels: Literal["name", "index"] = option(
        "name", "Match the data's labels to the model's by name or by index.", "Data", remembered=False
    )


#: All of a data set, its columns found by type and name.
EVERYTHING = Reading()
