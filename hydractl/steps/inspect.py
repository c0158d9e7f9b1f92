"""Looking at what a model, or any other file of ours, is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.steps.inputs import ModelLike
from hydractl.steps.options import Option, step
from hydractl.steps.result import Result

if TYPE_CHECKING:
    from hydractl.report.artifacts import Described


@dataclass(frozen=True, eq=False, repr=False)
class Inspected(Result):
    """What a model or an artifact is made of, as plain JSON.

    Attributes:
        artifact: the artifact as people read it; None where it is a model.
    """

    summary: Mapping[str, Any]
    artifact: Described | None = None

    def to_json(self) -> dict[str, Any]:
        return dict(self.summary)

    def lines(self) -> Iterator[str]:
        if self.artifact is None:
            from hydractl.report.summary import summary_lines

            yield from summary_lines(self.summary)
        else:
            from hydractl.report.artifacts import described_lines

            yield from described_lines(self.artifact)

    def facts(self) -> Mapping[str, object]:
        from hydractl.report.summary import summary_facts

        return summary_facts(self.summary) if self.artifact is None else self.artifact.facts

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@step
def inspect(
    model: Annotated[
        ModelLike,
        Option(
            "A model; or a circuit, scores, a selection, a report, a build, a recipe.",
            heading="Model",
            metavar="MODEL|FILE",
            positional=True,
        ),
    ],
) -> Inspected:
    """Show what a model, or any other file of hydractl, holds.

    Example: hydractl inspect hydra.safetensors

    Of a model prints a map with a row per layer and a column per member: a square is a head kept, a dot one dropped.
    Circuits, head scores, selections, reports, builds and recipes (.toml) are told by what is in them.

    >>> hydractl.inspect("hydra").summary["members"]
    2

    Raises:
        ArtifactError: an artifact that cannot be read.
        CheckpointError: the model cannot be read.
    """
    from hydractl.report.artifacts import describe, file_to_describe
    from hydractl.report.summary import summarize
    from hydractl.steps.inputs import as_checkpoint

    file = file_to_describe(str(model)) if isinstance(model, str | Path) else None
    if file is None:
        return Inspected(summarize(as_checkpoint(model)))
    found = describe(file)
    return Inspected(asdict(found), found)
