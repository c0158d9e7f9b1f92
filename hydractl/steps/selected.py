"""A selection: what selecting returns, and what steps that follow it make of the artifact and its networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.steps.result import Result

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint


@dataclass(frozen=True, eq=False, repr=False)
class Selected(Result):
    """The members that do best together.

    Attributes:
        content: the artifact `hydractl-selection`, plain JSON.
        checkpoint: the members, fused.
        selection: where the artifact was written, if it was.
        output: where the fused file was written, if it was.
    """

    content: Mapping[str, Any]
    checkpoint: Checkpoint
    selection: Path | None = None
    output: Path | None = None

    def to_json(self) -> dict[str, Any]:
        return dict(self.content)

    def lines(self) -> Iterator[str]:
        from hydractl.report.describe import curve_lines

        yield from curve_lines(self.content)
        yield from (str(path) for path in (self.selection, self.output) if path is not None)

    def facts(self) -> Mapping[str, object]:
        from hydractl.report.describe import selection_facts

        return selection_facts(self.content)


def write_selected(selected: Selected, force: bool) -> None:
    """Writes the artifact and the fused members where they are to be.

    Raises:
        OutputError: a file exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.artifacts import write_json
    from hydractl.families.load import write_checkpoint

    if selected.output is not None:
        write_checkpoint(selected.checkpoint, selected.output, force)
    if selected.selection is not None:
        write_json(Path(selected.selection), selected.content, force)
