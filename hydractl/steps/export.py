"""Writing a model for another runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydractl.errors import OptionError
from hydractl.formats.choices import FORMATS, Request, format_called, format_of, taking
from hydractl.steps.inputs import DEFAULT_TEMPLATE, Classes, Dtype, Force, Model, Template
from hydractl.steps.options import Option, step
from hydractl.steps.result import Result
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    FormatName = str
    ReportLike = str | Path | Mapping[str, Any]
else:  # what the command line derives flags from
    FormatName = Literal[tuple(each.name for each in FORMATS)]
    ReportLike = Any


@dataclass(frozen=True, eq=False, repr=False)
class Exported(Result):
    """A model in another format.

    Attributes:
        output: the file or folder.
        difference: the largest one between its probabilities and the model's, where that was checked.
    """

    output: Path
    format: str
    difference: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {"output": str(self.output), "format": self.format, "difference": self.difference}

    def lines(self) -> Iterator[str]:
        yield str(self.output)

    def facts(self) -> Mapping[str, object]:
        return {name: value for name, value in self.to_json().items() if value is not None}


@step
def export(
    model: Model,
    *,
    format: Annotated[  # noqa: A002
        FormatName | None, Option("The format to write, if the output's name does not say: .onnx, .pt2, or a folder.")
    ] = None,
    output: Annotated[
        str | Path, Option("What to write: a file, or for hf a folder.", heading="Output", flags=("--output", "-o"))
    ],
    check: Annotated[bool, Option("Run what was written on random inputs and compare its answers.")] = False,
    report: Annotated[ReportLike | None, Option("A report of evaluate, for the model card.", metavar="JSON")] = None,
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    dtype: Dtype = None,
    force: Force = False,
    watch: Watcher = LOG,
) -> Exported:
    """Write a model for another runtime.

    Formats onnx and torch-export are one graph from preprocessed inputs to the mean probabilities and the
    members' logits, with batch size and text length open. Labels and preprocessing travel along as metadata.

    Format hf is a folder for transformers. One member becomes a stock model of the library it came from, with zeros
    for the heads it dropped. Several become a Hydra with a model card, which AutoModel and pipelines load after
    `import hydractl.auto`, or anywhere with trust_remote_code=True.

    Example: hydractl export hydra.safetensors -o hydra.onnx --check

    Writes one file or folder and prints its path.

    >>> hydractl.export("hydra", output="folder").format
    'hf'

    Raises:
        CheckpointError: the model cannot be read.
        OptionError: an option that the format does not have, or a zero-shot model without classes.
        OutputError: the output exists and `force` is not set, the disk refuses it, or a check fails.
    """
    from hydractl.data.classes import read_classes
    from hydractl.steps.compute import choose_dtype
    from hydractl.steps.inputs import as_checkpoint

    chosen = format_of(Path(output)) if format is None else format_called(format)
    _refuse_others(chosen.name, {"check": check, "report": report, "classes": classes, "dtype": dtype})
    checkpoint = as_checkpoint(model)
    request = Request(
        checkpoint,
        Path(output),
        force,
        _read(report),
        choose_dtype(dtype),
        None if classes is None else read_classes(classes),
        template,
        check,
    )
    difference = chosen.write(request)
    if difference is not None:
        watch.note(f"{output}: probabilities within {difference:.1g} of the model's")
    return Exported(Path(output), chosen.name, difference)


def _refuse_others(name: str, values: Mapping[str, object]) -> None:
    for option, value in values.items():
        if value and name not in taking(option):
            others = " or ".join(taking(option))
            raise OptionError(f"`{option}` has no effect with `format` {name}: leave it out, or choose {others}")


def _read(report: ReportLike | None) -> Mapping[str, Any] | None:
    from hydractl.report.artifact import read_report

    return read_report(str(report)) if isinstance(report, str | Path) else report
