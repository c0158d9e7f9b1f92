"""Looking at what a model is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hydractl.steps.inputs import Model
from hydractl.steps.options import step
from hydractl.steps.result import Result


@dataclass(frozen=True, eq=False, repr=False)
class Inspected(Result):
    """What a model is made of, as plain JSON."""

    summary: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return dict(self.summary)

    def lines(self) -> Iterator[str]:
        from hydractl.report.summary import summary_lines

        yield from summary_lines(self.summary)

    def facts(self) -> Mapping[str, object]:
        from hydractl.report.summary import summary_facts

        return summary_facts(self.summary)

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@step
def inspect(model: Model) -> Inspected:
    """Show what a model is made of.

    Example: hydractl inspect hydra.safetensors

    Prints a map with a row per layer and a column per member: a square is a head kept, a dot one dropped.

    >>> hydractl.inspect("hydra").summary["members"]
    2

    Raises:
        CheckpointError: the model cannot be read.
    """
    from hydractl.report.summary import summarize
    from hydractl.steps.inputs import as_checkpoint

    return Inspected(summarize(as_checkpoint(model)))
