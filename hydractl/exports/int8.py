"""Graphs of eight bits: weights as whole numbers, and what was fitted to the network fitted again to its answers.

onnxruntime rounds the weights of each linear map of a tower by output channel, and the map's input by pass. Embeddings,
attention's products of activations, classifier and OOD score stay in floating point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch

from hydractl.calibration.network_fit import CalibrationData, Fit, calibrated, fit_answers, fit_network
from hydractl.calibration.ood_fit import Held, Wanted
from hydractl.calibration.promises import WantedPromises
from hydractl.checkpoint.calibration import INTERVAL, Calibration
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.output import write_atomically
from hydractl.errors import OptionError, OutputError
from hydractl.evaluation.comparison import Comparison, describe_data, evaluate_systems
from hydractl.evaluation.results import Difference, Results
from hydractl.evaluation.sets import find_leaks, refuse_leaks
from hydractl.evaluation.settings import Procedure, Settings
from hydractl.evaluation.system_numbers import assemble
from hydractl.evaluation.timing import Row, Timer, open_timed
from hydractl.exports.graph import REPORT, Traced, to_onnx, trace, without_notes
from hydractl.model.hydra import Hydra
from hydractl.ood.ood_scores import DEFAULT, find_ood_score
from hydractl.reports.page import results
from hydractl.systems.networks import NetworkSystem, labels_of
from hydractl.systems.onnx import OnnxSystem
from hydractl.systems.onnx_file import OnnxFile
from hydractl.systems.system import EvaluationData, Running, System
from hydractl.tasks.all_tasks import find_task
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


BEFORE, AFTER = "float", "int8"
TOKENS = 128  # of the texts that are timed


@dataclass(frozen=True, eq=False)
class Change:
    """The differences that eight bits make.

    Attributes:
        report: the numbers of both on the same samples, with paired intervals.
        rows: their processor time and bytes, one thread, one sample a pass.
        unfitted: what the data could not fit again, a sentence; None if it was all.
    """

    report: Results
    rows: Sequence[Row]
    unfitted: str | None = None

    @property
    def accuracy_drop(self) -> float:
        """The accuracy lost, in percentage points."""
        before, after = (self.report.models[name].id.accuracy or 0.0 for name in (BEFORE, AFTER))
        return 100 * (before - after)

    @property
    def beyond_chance(self) -> Mapping[str, Difference]:
        """The changes whose paired 95 % interval leaves out zero, by metric, on ID data and as means over OOD sets."""
        difference = self.report.models[AFTER].difference
        if difference is None:
            return {}
        means = (difference.ood_means or {}).get("all", {})
        each = {**difference.id, **{f"mean {name}": means[name] for name in ("auroc", "fpr95") if name in means}}
        return {name: change for name, change in each.items() if change.beyond_chance}

    @property
    def warnings(self) -> list[str]:
        """Names what was not fitted again, and each change beyond chance."""
        lines = [] if self.unfitted is None else [self.unfitted]
        for name, change in self.beyond_chance.items():
            span = "{:+.4f} to {:+.4f}".format(*change.interval)
            lines.append(f"int8 changes {name} by {change.value:+.4f} beyond chance (paired 95 % {span})")
        return lines


def require_fresh(checkpoint: Checkpoint, data: EvaluationData) -> None:
    """Raises DataError if the network was made with samples that it is to be measured on."""
    leaks = find_leaks(checkpoint.name, [checkpoint.provenance], data)
    refuse_leaks(checkpoint.name, leaks, "name `eval_data` that was not used to make the model")


def require_accuracy(checkpoint: Checkpoint, data: EvaluationData, running: Running) -> None:
    """Raises OptionError if the network's answers are not right or wrong on the data to measure on."""
    task, key = find_task(checkpoint.spec.task), next(key for key in data.sets if key.role == "id")
    # One logit answers whether, if labels are 0 and 1.
    labels = labels_of(
        key, data, checkpoint.labels, checkpoint.spec, running=replace(running, on_note=lambda text: None)
    )
    if not task.has_accuracy(labels):
        raise OptionError(
            f"`max_accuracy_drop` needs answers that are right or wrong, but this model is for {task.name}: leave it "
            "out, and read what changes"
        )


def measure_change(
    before: Checkpoint | Hydra, after: Path, data: EvaluationData, running: Running, watch: Watcher
) -> Change:
    """Returns what a file of eight bits changes.

    Args:
        before: the network; with its classes, if it is a zero-shot model.
    """
    system = NetworkSystem((before,))
    systems: list[tuple[str, System]] = [(BEFORE, system), (AFTER, OnnxSystem(after))]
    comparison = Comparison(systems, data, Settings(), Procedure())
    numbers = assemble(evaluate_systems(comparison, running, watch))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        each: dict[str, Sequence[Checkpoint] | OnnxFile]
        each = {BEFORE: system.checkpoints, AFTER: OnnxSystem(after).file}
        timed = open_timed(each, torch.device("cpu"), torch.float32)
        rows = Timer(0, processor_time=True).time(timed, 1, TOKENS)
    finally:
        torch.set_num_threads(threads)
    return Change(results(numbers, describe_data(comparison), {}), rows)


def refuse_drop(change: Change, most: float | None, path: Path) -> None:
    """Raises OutputError if the accuracy falls by more percentage points than allowed, beyond chance."""
    if most is None or change.accuracy_drop <= most or "accuracy" not in change.beyond_chance:
        return
    low, high = (-100 * bound for bound in reversed(change.beyond_chance["accuracy"].interval))
    drop = f"accuracy falls by {change.accuracy_drop:.2f} points (95 % {low:.2f} to {high:.2f})"
    raise OutputError(f"{path}: not written, {drop}, `max_accuracy_drop` is {most:g}: export in float")


SCOPES = "pkg.torch.onnx.name_scopes"
TOWERS = ("model.vision'", "model.text'")


@dataclass(frozen=True, eq=False)
class Refit:
    """The data that a graph of eight bits is fitted on, and the way.

    Attributes:
        load: from a checkpoint to the network to trace.
        data: ID samples.
        on_batch: called with the size of each batch that is answered.
    """

    load: Callable[[Checkpoint], Hydra]
    data: CalibrationData
    running: Running
    on_batch: Callable[[int], None]

    def float_fit(self, checkpoint: Checkpoint) -> Checkpoint:
        """Returns the network as `calibrate` fits it by default, unless it has an OOD score already."""
        if checkpoint.calibration.ood is not None:
            return checkpoint
        fitted = fit_network(
            checkpoint,
            self.data,
            self.running,
            fit=_fit(checkpoint),
            request=_wanted(checkpoint),
            keep=None,
            on_batch=self.on_batch,
        )
        return calibrated(checkpoint, fitted, self.data, options={})

    def int8_fit(self, checkpoint: Checkpoint) -> Checkpoint:
        """Returns the network with all that `calibrate` fits fitted to the answers of its graph of eight bits."""
        model, plan = self.load(checkpoint), _wanted(checkpoint)
        traced = trace(model, fitting=True)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "fitting.onnx"
            path.write_bytes(quantized(traced).SerializeToString())
            data = EvaluationData(self.data.sets, self.running.reading.match_labels)
            network = OnnxSystem(path, tuple(traced.outputs), data=data, running=self.running)
            answers = network.answers(next(iter(self.data.sets)), plan.reads, self.on_batch)
        held = Held(answers, {}, {})
        fitted = fit_answers(held, _fit(checkpoint), plan, self.running.on_note)
        return calibrated(checkpoint, fitted, self.data, options={"precision": "int8"})


def write_int8(
    checkpoint: Checkpoint,
    path: Path,
    refit: Refit,
    data: EvaluationData,
    *,
    force: bool,
    most: float | None,
    watch: Watcher,
) -> Change:
    """Writes a graph of eight bits, fitted again and measured beside the network.

    Args:
        data: to measure on, which chose nothing.
        most: percentage points of accuracy that may be lost beyond chance; None for any.

    Raises:
        OptionError: `most` for answers that are not right or wrong.
        OutputError: more accuracy is lost, the file exists and `force` is not set, or the disk refuses it.
    """
    require_fresh(checkpoint, data)
    if most is not None:
        require_accuracy(checkpoint, data, refit.running)
    before = refit.float_fit(checkpoint)
    after = refit.int8_fit(before)
    content = quantized(trace(refit.load(after))).SerializeToString()
    with write_atomically(path, force) as file:
        file.write(content)
        file.flush()
        network = before if before.spec.classes is not None else refit.load(before)
        change = measure_change(network, Path(file.name), data, refit.running, watch=watch)
        change = replace(change, unfitted=_unfitted(before.calibration, after.calibration, refit.data))
        for warning in change.warnings:
            watch.warn(warning)
        refuse_drop(change, most, path)
    return change


def _unfitted(before: Calibration, after: Calibration, data: CalibrationData) -> str | None:
    """Returns what data without labels could not fit to the graph, a sentence; None if everything was."""
    lost = before.lost(after)
    kept = [name for name in ("temperature", "thresholds", "intervals") if getattr(after, name) is not None]
    if data.inside.labels is not None or not (lost or kept):
        return None
    parts = [f"the file no longer promises {lost}"] * bool(lost)
    parts += [f"{' and '.join(kept)} stay those of the network in float"] * bool(kept)
    return f"{data.inside.name} holds no labels: {'; '.join(parts)}: give labelled `id_data` to fit them to int8"


def _fit(checkpoint: Checkpoint) -> Fit:
    """Returns the fit of a temperature or of intervals, for the share of those that the file has."""
    share = INTERVAL if (around := checkpoint.calibration.intervals) is None else around.share
    task = find_task(checkpoint.spec.task)
    return partial(task.fit, interval=share, precision=_promised(checkpoint).accuracy)


def _wanted(checkpoint: Checkpoint) -> Wanted:
    """Returns the score to fit: the kind that the file has, with its promises, or the default."""
    fixed = find_task(checkpoint.spec.task).fixed
    if (ood := checkpoint.calibration.ood) is None:
        return Wanted(DEFAULT, 0.95, fixed=fixed)
    fit = ood.fit
    if not fixed and find_ood_score(fit.score).reads != "layers":
        return Wanted(DEFAULT, fit.accept, fixed=False)
    return Wanted(fit.score, fit.accept, _promised(checkpoint), fixed=fixed)


def _promised(checkpoint: Checkpoint) -> WantedPromises:
    calibration, shares = checkpoint.calibration, checkpoint.calibration.promises
    bounds = [promise.least for promise in (calibration.sets, calibration.recall, calibration.fit) if promise]
    by_class = any(len(least) > 1 for least in bounds)
    return WantedPromises(shares.get("accuracy"), shares.get("sets"), shares.get("recall"), by_class=by_class)


def quantized(traced: Traced) -> ModelProto:
    """Returns a traced model as ONNX with whole numbers of eight bits for the weights of its towers' linear maps.

    Raises:
        OutputError: a part of them is not found again in the graph that onnxruntime prepares.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    proto = to_onnx(traced)
    linear = {node.name for node in proto.graph.node if node.op_type in ("MatMul", "Gemm") and _of_tower(node)}
    with TemporaryDirectory() as folder:
        prepared = _folded(without_notes(proto), Path(folder))
        # A layer without heads or units has weights without numbers.
        matrices = {each.name for each in prepared.graph.initializer if len(each.dims) == 2 and prod(each.dims)}
        products = [node for node in prepared.graph.node if node.op_type in ("MatMul", "Gemm")]
        if lost := linear - {node.name for node in products}:
            raise OutputError(f"the int8 graph lacks the products {', '.join(sorted(lost)[:3])}: {REPORT}")
        kept = [node.name for node in products if node.name not in linear or node.input[1] not in matrices]
        prepared.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")  # else it warns
        quantize_dynamic(
            prepared,
            written := Path(folder) / "int8.onnx",
            per_channel=True,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["MatMul"],
            nodes_to_exclude=[*kept, *(f"{name}_MatMul" for name in kept)],  # its name for what a Gemm becomes
            extra_options={"MatMulConstBOnly": True},
        )
        loaded = onnx.load(written)
    return _finished(loaded, traced)


def _of_tower(node: NodeProto) -> bool:
    scopes = "".join(each.value for each in node.metadata_props if each.key == SCOPES)
    return any(tower in scopes for tower in TOWERS)


def _folded(proto: ModelProto, folder: Path) -> ModelProto:
    """Returns a graph with every weight as one plain tensor: those that are split or turned on the way are computed."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "folded.onnx")
    options.log_severity_level = 3
    left = ["MatMulAddFusion", "GemmActivationFusion"]  # which give products other names
    onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"], disabled_optimizers=left
    )
    return onnx.load(options.optimized_model_filepath)


def _finished(proto: ModelProto, traced: Traced) -> ModelProto:
    """Returns a graph with the metadata of ours, of ONNX's own operators alone."""
    for place in reversed(range(len(proto.opset_import))):
        if proto.opset_import[place].domain:
            del proto.opset_import[place]
    del proto.metadata_props[:]
    for key, value in {**traced.metadata, "precision": "int8"}.items():
        proto.metadata_props.add(key=key, value=value)
    return proto
