"""How data are read: the options that every command with data shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydractl import bounds
from hydractl.options import Option

if TYPE_CHECKING:
    from hydractl.data.columns import Columns

SOURCE = "[NAME=]SOURCE[:SPLIT]"
DEFAULT_TEMPLATE = "A photo of a {label}."


@dataclass(frozen=True)
class Reading:
    """Says how the samples of a data set are found, limited and labelled."""

    limit: Annotated[
        int | None,
        Option(
            "Use only N samples of each data set, spread evenly over it. A stream gives its first N.",
            "Data",
            "N",
            minimum=1,
            maximum=bounds.SAMPLES,
        ),
    ] = None
    classes: Annotated[
        Any,
        Option(
            "Class names for a zero-shot model that has no labels: a file with one name a line.",
            "Data",
            "FILE",
            remembered=False,
        ),
    ] = None
    template: Annotated[str, Option("Prompt of a zero-shot model; {label} stands for the class name.", "Data")] = (
        DEFAULT_TEMPLATE
    )
    image_column: Annotated[
        str | None, Option("Column of the images. Default: found by type and name.", "Data", "NAME", remembered=False)
    ] = None
    text_column: Annotated[
        str | None,
        Option("Column of the texts; name two with a comma for text pairs.", "Data", "NAME[,NAME]", remembered=False),
    ] = None
    label_column: Annotated[str | None, Option("Column of the labels.", "Data", "NAME", remembered=False)] = None
    match_labels: Annotated[
        Literal["name", "index"],
        Option("Match the data's labels to the model's by name or by index.", "Data", remembered=False),
    ] = "name"

    @property
    def columns(self) -> Columns:
        """The named columns."""
        from hydractl.data.columns import Columns

        return Columns(self.image_column, self.text_column, self.label_column)
