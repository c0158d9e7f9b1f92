"""The command `inspect`: the contents of a model or of any other file of hydractl."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from hydractl.artifacts import file_of_ours
from hydractl.inputs.models import ModelLike, as_checkpoint
from hydractl.inputs.result import Finding
from hydractl.options import Option, function
from hydractl.watch import Watcher


@dataclass(frozen=True)
class Inspect:
    """Show what a model, or any other file of hydractl, holds.

    Example: hydractl inspect hydra.safetensors

    For a model, prints a map with a row per layer and a column per member: a square is a head kept, a dot one dropped.
    ONNX files of export are shown too. Circuits, head scores, selections, reports, builds and recipes (.toml) are
    recognised by their content.

    >>> hydractl.inspect("hydra").value["members"]
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

    def run(self, watch: Watcher) -> Finding[Mapping[str, Any]]:
        file = file_of_ours(str(self.model)) if isinstance(self.model, str | Path) else None
        if file is None:
            from hydractl.reports.summary import summarize, summarize_onnx, summary_lines
            from hydractl.systems.onnx_file import is_onnx, open_onnx

            onnx = is_onnx(self.model)
            summary = summarize_onnx(open_onnx(self.model)) if onnx else summarize(as_checkpoint(self.model))
            return Finding(summary, summary, list(summary_lines(summary)))
        from hydractl.reports.describe import describe_artifact

        described = describe_artifact(file)
        content = asdict(described)
        return Finding(content, content, list(described.lines()))


inspect = function(Inspect)
