"""The command `inspect`: the contents of a model or of any other file of hydractl."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.options import Option, function
from hydractl.steps.inputs import ModelLike, as_checkpoint
from hydractl.steps.result import Result
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.report.describe import Described


@dataclass(frozen=True, eq=False, repr=False)
class Inspected(Result):
    """The contents of a model or an artifact, as plain JSON.

    Attributes:
        artifact: the artifact as people read it; None for a model.
    """

    summary: Mapping[str, Any]
    artifact: Described | None = None

    def to_json(self) -> dict[str, Any]:
        return dict(self.summary)

    def lines(self) -> Iterator[str]:
        if self.artifact is not None:
            yield from self.artifact.lines()
        else:
            from hydractl.report.summary import summary_lines

            yield from summary_lines(self.summary)

    def facts(self) -> Mapping[str, object]:
        from hydractl.report.summary import summary_facts

        return summary_facts(self.summary) if self.artifact is None else self.artifact.facts

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True)
class Inspect:
    """Show what a model, or any other file of hydractl, holds.

    Example: hydractl inspect hydra.safetensors

    For a model, prints a map with a row per layer and a column per member: a square is a head kept, a dot one dropped.
    Circuits, head scores, selections, reports, builds and recipes (.toml) are recognised by their content.

    >>> hydractl.inspect("hydra").summary["members"]
    2

    Raises:
        ArtifactError: the artifact cannot be read.
        CheckpointError: the model cannot be read.
    """

    model: Annotated[
        ModelLike,
        Option(
            "A model, circuit, score file, selection, report, build or recipe.",
            heading="Model",
            metavar="MODEL|FILE",
            positional=True,
        ),
    ]

    def run(self, watch: Watcher) -> Inspected:
        from hydractl.report.describe import describe, file_to_describe
        from hydractl.report.summary import summarize

        file = file_to_describe(str(self.model)) if isinstance(self.model, str | Path) else None
        if file is None:
            return Inspected(summarize(as_checkpoint(self.model)))
        found = describe(file)
        return Inspected(asdict(found), found)


inspect = function(Inspect)
