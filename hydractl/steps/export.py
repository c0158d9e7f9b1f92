"""Writing a model for another runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from hydractl.data.reading import DEFAULT_TEMPLATE, Classes, Template
from hydractl.errors import OptionError, require
from hydractl.inputs.arguments import Model, as_checkpoint
from hydractl.inputs.result import Result
from hydractl.options import Option, Rows, function, option
from hydractl.run_options import Dtype, Force, choose_device, choose_dtype
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.model.hydra import Hydra

ReportLike = Any  #: a path, or what a report's JSON holds


@dataclass(frozen=True)
class HuggingFace:
    """A folder for other libraries.

    The fields of a format are its options. `suffix` is the ending of its files, empty for a folder; `write` returns the
    largest difference between its probabilities and the model's, if that was checked.
    """

    name: ClassVar[str] = "hf"
    help: ClassVar[str] = "a folder for transformers, timm or OpenCLIP"
    suffix: ClassVar[str] = ""

    report: ReportLike | None = option(None, "A report of evaluate, for the model card.", metavar="JSON")
    as_hydra: bool = option(False, "Write one member as several are: with OOD score, typicality and a model card.")

    def write(self, checkpoint: Checkpoint, output: Path, force: bool) -> None:
        from hydractl.checkpoint.folders import write_folder
        from hydractl.exports.folder import write_hydra
        from hydractl.exports.stock import write_stock
        from hydractl.reports.artifact import read_report, report_json

        stock, report = checkpoint.members == 1 and not self.as_hydra, self.report
        if stock and report is not None:
            raise OptionError("`report` is for a model card, which a single member has only with `as_hydra`")
        with write_folder(output, "export", force) as folder:
            if stock:
                write_stock(checkpoint, folder)
            else:
                told = report_json(read_report(str(report))) if isinstance(report, str | Path) else report
                write_hydra(checkpoint, folder, told)


@dataclass(frozen=True)
class Peft:
    """A folder for the library peft."""

    name: ClassVar[str] = "peft"
    help: ClassVar[str] = "a folder of a LoRA-Ensemble's network and an adapter for each member"
    suffix: ClassVar[str] = ".peft"

    def write(self, checkpoint: Checkpoint, output: Path, force: bool) -> None:
        from hydractl.checkpoint.folders import write_folder
        from hydractl.exports.stock import write_adapters

        with write_folder(output, "export", force) as folder:
            write_adapters(checkpoint, folder)


@dataclass(frozen=True)
class Graph:
    """Says what goes into a graph."""

    classes: Classes = None
    template: Template = DEFAULT_TEMPLATE
    dtype: Dtype = None

    def load(self, checkpoint: Checkpoint) -> Hydra:
        """Returns the model to trace, with its classes."""
        from hydractl.data.labels import name_classes
        from hydractl.inference import load_to_compute

        model = load_to_compute(checkpoint, choose_device("cpu"), choose_dtype(self.dtype))
        name_classes(model, self.classes, self.template)
        return model


@dataclass(frozen=True)
class Onnx:
    """A graph in ONNX."""

    name: ClassVar[str] = "onnx"
    help: ClassVar[str] = "one graph for onnxruntime and others"
    suffix: ClassVar[str] = ".onnx"

    graph: Graph = Graph()

    def write(self, checkpoint: Checkpoint, output: Path, force: bool) -> float | None:
        from hydractl.checkpoint.output import refuse_existing
        from hydractl.exports.graph import write_onnx

        require("onnx", "onnxscript", "onnxruntime")
        refuse_existing(output, force)
        return write_onnx(self.graph.load(checkpoint), output, force)


@dataclass(frozen=True)
class TorchExport:
    """A graph of torch.export."""

    name: ClassVar[str] = "torch-export"
    help: ClassVar[str] = "one graph for torch alone"
    suffix: ClassVar[str] = ".pt2"

    graph: Graph = Graph()

    def write(self, checkpoint: Checkpoint, output: Path, force: bool) -> float:
        from hydractl.checkpoint.output import refuse_existing
        from hydractl.exports.graph import write_torch_export

        refuse_existing(output, force)
        return write_torch_export(self.graph.load(checkpoint), output, force)


Format = HuggingFace | Peft | Onnx | TorchExport
FORMATS = (HuggingFace, Peft, Onnx, TorchExport)


def format_of(output: str | Path) -> type[Format]:
    """Returns the format that an output's name ends in; a folder's has no ending.

    Raises:
        OptionError: no format ends so.
    """
    found = next((each for each in FORMATS if each.suffix == Path(output).suffix.lower()), None)
    if found is None:
        endings = ", ".join(f"{each.suffix or 'none'} is {each.name}" for each in FORMATS)
        raise OptionError(f"`format` is missing, and {output} does not end in one ({endings}): name it")
    return found


def _guess(given: Mapping[str, Any]) -> str:
    return format_of(given["output"]).name


@dataclass(frozen=True, eq=False, repr=False)
class Exported(Result):
    """A model in another format.

    Attributes:
        output: the file or folder.
        difference: the largest one between a graph's probabilities and the model's.
    """

    output: Path
    format: str
    difference: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {"output": str(self.output), "format": self.format, "difference": self.difference}

    def lines(self) -> Iterator[str]:
        yield str(self.output)


@dataclass(frozen=True)
class Export:
    """Write a model for another runtime.

    Formats onnx and torch-export are one graph from preprocessed inputs to the mean probabilities and the
    members' logits, with batch size and text length open. It runs on random inputs before it is written. Labels and
    preprocessing travel along as metadata.

    Format hf is a folder for transformers. One member becomes a stock model of the library it came from, with zeros
    for the heads it dropped, and without its OOD score. Several, or one with `as_hydra`, become a Hydra with a model
    card, which AutoModel and pipelines load after `import hydractl.auto`, or anywhere with trust_remote_code=True.

    Example: hydractl export hydra.safetensors -o hydra.onnx

    Writes one file or folder and prints its path.

    >>> hydractl.export("hydra", output="folder").format
    'hf'

    Raises:
        CheckpointError: the model cannot be read.
        OptionError: an option that the format does not have, or a zero-shot model without classes.
        OutputError: the output exists and `force` is not set, the disk refuses it, or a graph does not answer as the
            model.
    """

    model: Model
    format: Annotated[
        Format | None,
        Option("The format to write, if the output's name does not say: .onnx, .pt2, or a folder."),
        Rows(FORMATS, _guess),
    ] = None
    output: Annotated[
        str | Path, Option("What to write: a file, or for hf a folder.", "Output", flags=("--output", "-o"))
    ] = field(kw_only=True)
    force: Force = False

    def run(self, watch: Watcher) -> Exported:
        output, chosen = Path(self.output), self.format or format_of(self.output)()
        difference = chosen.write(as_checkpoint(self.model), output, self.force)
        if difference is not None:
            watch.note(f"{output}: probabilities within {difference:.1g} of the model's")
        return Exported(output, chosen.name, difference)


export = function(Export)
