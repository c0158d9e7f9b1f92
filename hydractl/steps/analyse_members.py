"""Asking how alike the members of an ensemble are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.data.like import DataLike
from hydractl.errors import OptionError
from hydractl.steps.inputs import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_TEMPLATE,
    BatchSize,
    Classes,
    Device,
    Dtype,
    Force,
    ImageColumn,
    Limit,
    Model,
    Plot,
    Template,
    TextColumn,
)
from hydractl.steps.material import SOURCE, origin_of
from hydractl.steps.options import Option, step
from hydractl.steps.result import Result
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hydractl.analysis.members import Similarity


@dataclass(frozen=True, eq=False, repr=False)
class AnalysedMembers(Result):
    """How alike the members of an ensemble are.

    Attributes:
        similarity: all numbers; what each means stands there.
        samples: how many were asked.
        origin: how they were made, as plain JSON.
    """

    similarity: Similarity
    samples: int
    origin: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        found = self.similarity
        matrices = {name: _as_json(getattr(found, name)) for name in _titles()}
        return {"samples": self.samples, "weights_from": found.origin, **matrices, **self.origin}

    def lines(self) -> Iterator[str]:
        from hydractl.report.members import similarity_lines

        return similarity_lines(self.similarity)

    def facts(self) -> Mapping[str, object]:
        from hydractl.report.members import mean_of_pairs

        means = {title: mean_of_pairs(getattr(self.similarity, name)) for name, title in _titles().items()}
        return {f"{title}, mean of pairs": "-" if mean is None else f"{mean:.4f}" for title, mean in means.items()}

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@step
def analyse_members(
    model: Model,
    *,
    data: Annotated[DataLike, Option("Samples to ask the members; labels are not read.", "Data", SOURCE)],
    limit: Limit = None,
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    image_column: ImageColumn = None,
    text_column: TextColumn = None,
    device: Device = "auto",
    dtype: Dtype = None,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    plot: Plot = None,
    force: Force = False,
    watch: Watcher = LOG,
) -> AnalysedMembers:
    """Compare what members of an ensemble answer, and their weights.

    Of each pair of members: the share of samples to which they give different labels, the mean divergence KL(row ||
    column) of their probabilities in nats, and the mean cosine of their logits; then the cosine of what both changed of
    the weights of the network that they share, or, where they adapt none, of the first member's.

    Example: hydractl analyse members lora.safetensors --data data/digits:test --plot members.png

    Prints a matrix for each; `plot` draws them.

    >>> found = hydractl.analyse_members("hydra", data="data/pets")
    >>> found.similarity.disagreement.shape
    (2, 2)

    Raises:
        CheckpointError: the model cannot be read.
        DataError: a sample cannot be read.
        OptionError: one member only, or a zero-shot model without `classes`.
        OutputError: the picture exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.analysis.members import similarity
    from hydractl.data.classes import read_classes
    from hydractl.data.columns import Columns
    from hydractl.data.open import open_samples
    from hydractl.report.members import similarity_figure
    from hydractl.report.picture import check_picture, write_picture
    from hydractl.steps.compute import dtype_name
    from hydractl.steps.inputs import as_checkpoint
    from hydractl.steps.models import running

    if plot is not None:
        check_picture(Path(plot), force)
    checkpoint = as_checkpoint(model)
    if checkpoint.members < 2:
        raise OptionError(f"{checkpoint.name}: has one member, and there is none to compare it with")
    network = running(checkpoint, device, dtype)
    if classes is not None:
        network.set_classes(read_classes(classes), template)
    texts = network.spec.task == "text-classification"
    samples = open_samples(data, "text" if texts else "image", columns=Columns(image_column, text_column), limit=limit)
    with watch.progress("analyse members", len(samples)) as advance:
        inputs = (samples.inputs[place] for place in range(len(samples)))
        logits = network.predict(inputs, batch_size, advance).member_logits
    found = similarity(checkpoint, logits, network.temperature)
    if plot is not None:
        write_picture(similarity_figure(found), Path(plot), force)
    named = template if network.spec.task == "zero-shot" else None
    options = {"batch_size": batch_size, "limit": limit, "dtype": dtype_name(dtype), "template": named}
    return AnalysedMembers(found, len(samples), origin_of(checkpoint, options))


def _titles() -> Mapping[str, str]:
    from hydractl.report.members import TITLES

    return TITLES


def _as_json(matrix: NDArray[np.float64]) -> list[list[float | None]]:
    """What is no number, as the cosine of nothing is, is null."""
    return [[None if number != number else number for number in row] for row in matrix.tolist()]
