"""Writing a model for another runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from hydractl.bounds import BATCH
from hydractl.data.reading import DEFAULT_TEMPLATE, Classes, DataLike, DataSetsLike, Reading, Template
from hydractl.errors import OptionError, require
from hydractl.inputs.models import Model, as_checkpoint
from hydractl.inputs.result import Result
from hydractl.inputs.search_data import OOD_SETS, open_ood_sets, tell_oddities
from hydractl.options import Option, Rows, Without, function, option
from hydractl.run_options import DEFAULT_BATCH_SIZE, Compute, Dtype, Force, choose_device, choose_dtype
from hydractl.watch import Watcher, noting

if TYPE_CHECKING:
    from hydractl.calibration.network_fit import CalibrationData
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.evaluation.results import Results
    from hydractl.evaluation.timing import Row
    from hydractl.exports.int8 import Change
    from hydractl.model.hydra import Hydra
    from hydractl.systems.system import EvaluationData

KEPT_OUT = 5  # one sample of so many measures what the others fit
ReportLike = Any  #: a path, or what a report's JSON holds


@dataclass(frozen=True)
class HuggingFace:
    """A folder for other libraries.

    The fields of a format are its options. `suffix` is the ending of its files, empty for a folder; `write` returns
    what `Exported` says beside the file.
    """

    name: ClassVar[str] = "hf"
    help: ClassVar[str] = "a folder for transformers, timm or OpenCLIP"
    suffix: ClassVar[str] = ""

    report: ReportLike | None = option(None, "A report of evaluate, for the model card.", metavar="JSON")
    as_hydra: bool = option(
        False, "Write a single member like a Hydra: with OOD score, typicality and a model card.", rare=True
    )

    def write(self, checkpoint: Checkpoint, output: Path, force: bool, watch: Watcher) -> Exported:
        from hydractl.checkpoint.output import write_folder
        from hydractl.exports.folder import write_hydra
        from hydractl.exports.stock import write_stock
        from hydractl.reports.page import read_report, report_json

        stock, report = checkpoint.members == 1 and not self.as_hydra, self.report
        if stock and report is not None:
            raise OptionError("`report` fills a model card, which a single member has only with `as_hydra`: pass both")
        with write_folder(output, "export", force) as folder:
            if stock:
                write_stock(checkpoint, folder)
            else:
                content = report_json(read_report(str(report))) if isinstance(report, str | Path) else report
                write_hydra(checkpoint, folder, content)
        return Exported(output, self.name)


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
class EightBits:
    """Data and limits of a graph of eight bits."""

    id_data: DataLike | None = option(
        None, "ID data to fit on; a fifth is held out to measure on.", "Data", "SOURCE[:SPLIT]"
    )
    eval_data: DataLike | None = option(
        None, "Labelled ID data to measure on, in place of that fifth.", "Data", "SOURCE[:SPLIT]"
    )
    ood_data: Annotated[
        DataSetsLike | None, replace(OOD_SETS, help="OOD data to measure on; repeat it for several sets.")
    ] = None
    max_accuracy_drop: float | None = option(
        None,
        "Refuse a graph that loses more accuracy beyond chance, in percentage points.",
        metavar="POINTS",
        within=(0, 100),
        rare=True,
    )
    batch_size: int = option(
        DEFAULT_BATCH_SIZE,
        "Samples per pass of the fit; give the batch size that the graph will serve.",
        "Compute",
        within=(1, BATCH),
        rare=True,
    )

    def open(self, checkpoint: Checkpoint, reading: Reading, watch: Watcher) -> tuple[CalibrationData, EvaluationData]:
        """Returns the data to fit on, and those to measure on."""
        import numpy as np

        from hydractl.calibration.network_fit import CalibrationData, labelled_for, missing_to_fit
        from hydractl.data.open import open_samples
        from hydractl.systems.system import EvaluationData, SetKey
        from hydractl.tasks.all_tasks import find_task

        assert self.id_data is not None
        modality = checkpoint.spec.modality
        samples = open_samples(self.id_data, modality, reading, name="ID data")
        ood_sets = open_ood_sets(self.ood_data, self.id_data, modality, reading)
        if self.eval_data is not None:
            fresh = open_samples(self.eval_data, modality, reading, name="evaluation data")
        elif samples.labels is None and find_task(checkpoint.spec.task).label_type is not None:
            raise OptionError(f"{samples.name}: has no labels, which measure eight bits: give labelled `eval_data` too")
        else:
            order = np.random.default_rng(0).permutation(len(samples))
            kept = len(samples) // KEPT_OUT
            fresh, samples = (samples.subset(np.sort(places)) for places in (order[:kept], order[kept:]))
            alone = ~np.isin(fresh.content_hashes(), samples.content_hashes())  # a short text may come twice
            fresh = fresh.subset(np.flatnonzero(alone)) if alone.any() else fresh
        tell_oddities([samples, fresh, *ood_sets.values()], watch)
        if (missing := missing_to_fit(checkpoint, samples, reading)) is not None:
            watch.warn(missing)
        sets = {
            SetKey("id", fresh.name): fresh,
            **{SetKey("ood", name): ood_samples for name, ood_samples in ood_sets.items()},
        }
        return CalibrationData(labelled_for(checkpoint, samples), {}, {}), EvaluationData(sets, reading.match_labels)


@dataclass(frozen=True)
class Onnx:
    """A graph in ONNX."""

    name: ClassVar[str] = "onnx"
    help: ClassVar[str] = "one graph for onnxruntime and others"
    suffix: ClassVar[str] = ".onnx"

    graph: Graph = Graph()
    int8: bool = option(False, "Compute in eight bits, and repeat what `calibrate` fitted on `id_data`.")
    eight: EightBits = EightBits()
    reading: Annotated[Reading, Without("classes", "template")] = Reading()

    def write(self, checkpoint: Checkpoint, output: Path, force: bool, watch: Watcher) -> Exported:
        from hydractl.checkpoint.output import refuse_existing

        self._check()
        refuse_existing(output, force)
        require("onnx", "onnxscript", "onnxruntime")
        from hydractl.exports.graph import write_onnx

        if self.int8:
            change = self._write_int8(checkpoint, output, force, watch)
            return Exported(output, self.name, report=change.report, rows=change.rows, warnings=change.warnings)
        return Exported(output, self.name, write_onnx(self.graph.load(checkpoint), output, force))

    def _check(self) -> None:
        """Raises OptionError for options that need each other."""
        if self.int8 and self.eight.id_data is None:
            raise OptionError("`int8` needs `id_data`: temperature, OOD score and quantiles are fitted again on it")
        if self.int8 and self.graph.dtype is not None:
            raise OptionError("`dtype` is for a graph in floating point, `int8` has its own: leave one out")
        for name, value in {**vars(self.eight), **vars(self.reading)}.items():
            if not self.int8 and value != {**vars(EightBits()), **vars(Reading())}[name]:
                raise OptionError(f"`{name}` is for `int8`: pass it too, or leave this out")

    def _write_int8(self, checkpoint: Checkpoint, output: Path, force: bool, watch: Watcher) -> Change:
        from hydractl.exports.int8 import Refit, write_int8
        from hydractl.systems.networks import run_by
        from hydractl.tasks.all_tasks import find_task

        find_task(checkpoint.spec.task).require_classes(self.graph.classes)
        fitted_on, data = self.eight.open(checkpoint, self.reading, watch)
        compute = Compute("cpu", "float32", self.eight.batch_size)
        reading = replace(self.reading, classes=self.graph.classes, template=self.graph.template)
        with run_by(compute, reading, noting(watch)) as running, watch.progress("fit", None) as advance:
            refit = Refit(replace(self.graph, dtype="float32").load, fitted_on, running, advance)
            most = self.eight.max_accuracy_drop
            return write_int8(checkpoint, output, refit, data, force=force, most=most, watch=watch)


Format = HuggingFace | Onnx
FORMATS = (HuggingFace, Onnx)


def format_of(output: str | Path) -> type[Format]:
    """Returns the format that an output's name ends in; a folder's has no ending.

    Raises:
        OptionError: no format ends so.
    """
    chosen = next((each for each in FORMATS if each.suffix == Path(output).suffix.lower()), None)
    if chosen is None:
        endings = ", ".join(f"{each.suffix or 'none'} is {each.name}" for each in FORMATS)
        raise OptionError(f"`format` is missing, and {output} does not end in one ({endings}): name it")
    return chosen


def _guess(options: Mapping[str, Any]) -> str:
    return format_of(options["output"]).name


@dataclass(frozen=True, eq=False, repr=False)
class Exported(Result):
    """A model in another format.

    Attributes:
        output: the file or folder.
        difference: the largest one between a graph's answers and the model's.
        report: the numbers of the model and of a graph of eight bits.
        rows: their time and size.
        warnings: what a graph of eight bits changes, or was not fitted to it.
    """

    output: Path
    format: str
    difference: float | None = None
    report: Results | None = None
    rows: Sequence[Row] = ()
    warnings: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        from hydractl.reports.page import report_json

        content = {"output": str(self.output), "format": self.format, "difference": self.difference}
        if self.report is None:
            return content
        speed = [row.to_json() for row in self.rows]
        return {**content, "report": report_json(self.report), "speed": speed, "warnings": list(self.warnings)}

    def lines(self) -> Iterator[str]:
        from hydractl.inputs.result import WIDTH
        from hydractl.reports.table import result_table, table_lines

        yield str(self.output)
        if self.report is not None:
            yield ""
            yield from table_lines(result_table(self.report), WIDTH)
        for row in self.rows:
            time = f"{row.timing.milliseconds:.1f} ms of one thread for a sample ({row.ratio:.2f})"
            yield f"{row.name}: {time}, {row.weight.size / 1e6:.1f} MB"


@dataclass(frozen=True)
class Export:
    """Write a model for another runtime.

    Format onnx is one graph from preprocessed inputs to the mean probabilities and the members' logits, with batch
    size and text length open. It runs on random inputs before it is written. Labels and preprocessing travel along as
    metadata.

    With `int8`, linear maps compute in eight bits, in a third to a half of the time on a processor. All that
    `calibrate` fits is fitted again to the answers of that graph: temperature, thresholds or intervals, promises, OOD
    statistics and quantiles. A table shows what changed, on `eval_data` or on a fifth of the ID data that is kept out.

    Format hf is a folder for transformers. One member becomes a stock model of the library it came from, with zeros
    for the heads it dropped, without its OOD score and the memory of the data that made it. Several, or one with
    `as_hydra`, become a Hydra with a model card, which AutoModel and pipelines load after `import hydractl.auto`, or
    anywhere with trust_remote_code=True.

    Example: hydractl export hydra.safetensors -o hydra.onnx

    Writes one file or folder and prints its path.

    >>> hydractl.export("hydra", output="folder").format
    'hf'

    Raises:
        CheckpointError: the model cannot be read.
        OptionError: an option that the format does not have, or a zero-shot model without classes.
        DataError: data of `int8` cannot be read, or made the model.
        OutputError: the output exists and `force` is not set, the disk refuses it, a graph does not answer as the
            model, or eight bits lose more accuracy than allowed.
    """

    model: Model
    format: Annotated[
        Format | None,
        Option("The format to write, if the output's name does not say: .onnx, or a folder."),
        Rows(FORMATS, _guess),
    ] = None
    output: Annotated[
        str | Path, Option("What to write: a file, or for hf a folder.", "Output", flags=("--output", "-o"))
    ] = field(kw_only=True)
    force: Force = False

    def run(self, watch: Watcher) -> Exported:
        output, chosen = Path(self.output), self.format or format_of(self.output)()
        exported = chosen.write(as_checkpoint(self.model), output, self.force, watch)
        if exported.difference is not None:
            watch.note(f"{output}: answers within {exported.difference:.1g} of the model's")
        return exported


export = function(Export)
