"""A monitor of the answers of one calibrated model, and its state file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from hydractl.artifacts import open_artifact
from hydractl.bounds import parse_share
from hydractl.checkpoint.contents import Checkpoint, tensors_identity
from hydractl.checkpoint.output import write_bytes
from hydractl.errors import OptionError
from hydractl.inputs.models import ModelLike, as_checkpoint
from hydractl.inputs.predictions import Predictions
from hydractl.monitoring.findings import Findings, find, prometheus
from hydractl.monitoring.stream import Known, Scale, Stream, StreamState
from hydractl.ood.score import PROFILE, QUANTILES
from hydractl.schema import Checked, Items, Schema
from hydractl.systems.onnx_file import OnnxFile, is_onnx, open_onnx
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Answers, OneAnswer
from hydractl.text import shortened

FORMAT, VERSION = "hydractl-monitor", 1


class StateForm(Schema):
    """The form of a state file."""

    format: str
    version: int
    calibration: Annotated[str, Checked(pattern="^[0-9a-f]{64}$")]
    alpha: Annotated[float, Checked(gt=0, lt=1)]
    streams: Annotated[Items[StreamState], Checked(min_length=1)]


class Monitor:
    """Watches the answers of a calibrated model, and says when its inputs have changed.

    >>> model = hydractl.load(hydractl.calibrate("hydra", id_data="data/pets"))
    >>> monitor = hydractl.Monitor(model)
    >>> monitor.update(model.predict("data/pets/cat/0.png"))
    False
    >>> monitor.findings().inputs
    1
    """

    def __init__(self, model: ModelLike, alpha: float | str = "1%", state: str | Path | None = None) -> None:
        """
        Args:
            alpha: the probability of a false alarm, over all inputs that ever come.
            state: a file of `save` to go on from.

        Raises:
            ArtifactError: the state is damaged, or of another calibration or alpha.
            OptionError: the model is not calibrated, or alpha is no share.
        """
        self.known, self.alpha = _known(model), parse_share("alpha", str(alpha))
        if self.alpha == 1:
            raise OptionError("`alpha` 1: must be below 1")
        self.streams = [Stream.start(self.known, self.alpha)]
        if state is not None:
            self.streams = self._read(state)

    def update(self, prediction: Answers | Predictions) -> bool:
        """Adds predictions, and returns whether there has been an alarm.

        Raises:
            OptionError: they are of a model without typicality, or answer with other classes.
        """
        return self.add(prediction.each())

    def add(self, answers: Iterable[OneAnswer]) -> bool:
        """Adds answers one by one, and returns whether there has been an alarm.

        Raises:
            OptionError: a label is no class of the model, or the model chooses one class or several labels, and they do
                not.
        """
        known = self.known
        for answer in map(known.watched, answers):
            wrong = [name for name in answer.labels if known.classes is not None and name not in known.classes]
            if wrong or (known.task.label_type is not None and not isinstance(answer.label, known.task.label_type)):
                label = shortened(str(wrong[0] if wrong else answer.label), 40)
                raise OptionError(f"the model has no class {label!r}: watch its own predictions")
            self.streams[0].add(answer)
        return self.alarmed

    @property
    def alarmed(self) -> bool:
        """True once there has been an alarm."""
        return max(stream.highest for stream in self.streams) >= len(self.streams) / self.alpha

    def findings(self) -> Findings:
        """Returns what the answers show."""
        return find(self.known, self.alpha, self.streams)

    def metrics(self) -> str:
        """Returns what they show in the text format of Prometheus."""
        return prometheus(self.findings())

    def save(self, path: str | Path) -> None:
        """Writes the state as JSON, whole or not at all; replaces an older one.

        Raises:
            OutputError: the disk refuses it.
        """
        content = {
            "format": FORMAT,
            "version": VERSION,
            "calibration": self.known.calibration,
            "alpha": self.alpha,
            "streams": [stream.state() for stream in self.streams],
        }
        write_bytes(Path(path), f"{json.dumps(content, default=vars)}\n".encode(), force=True)

    def merge(self, states: Iterable[str | Path]) -> None:
        """Adds the streams of other processes; this one goes on with its own, if it has seen anything.

        Raises:
            ArtifactError: a state is damaged, or of another calibration or alpha.
        """
        others = [stream for path in states for stream in self._read(path)]
        self.streams = [stream for stream in [*self.streams, *others] if stream.evidence.seen] or self.streams[:1]

    def _read(self, path: str | Path) -> list[Stream]:
        document = open_artifact(str(path), FORMAT, VERSION)
        form = document.read(StateForm)
        if form.calibration != self.known.calibration:
            raise document.origin.refusal("is of another calibration", "name its model, or another state file")
        if form.alpha != self.alpha:
            raise document.origin.refusal(f"has alpha {form.alpha:g}, not {self.alpha:g}", "give the same alpha")
        try:
            return [Stream.of(state, self.known, self.alpha) for state in form.streams]
        except ValueError as error:
            raise document.origin.refusal(str(error)) from None


def _known(model: ModelLike) -> Known:
    """Returns what a model's file says of ID inputs.

    Raises:
        OptionError: it is not calibrated.
    """
    file = open_onnx(model) if is_onnx(model) else None
    checkpoint = as_checkpoint(model) if file is None else file.checkpoint
    spec = checkpoint.spec
    task = find_task(spec.task)
    if (fit := checkpoint.calibration.fit) is None:
        raise OptionError(f"{checkpoint.name}: has no typicality to watch: run `hydractl calibrate` on it first")
    calibration = checkpoint.calibration
    numbers, quantiles, layers = _numbers(checkpoint) if file is None else _numbers_of_graph(file)
    # Others answer with other confidences, flags or labels, which a stream may not mix.
    conditions = [numbers, spec.task, fit.to_json(), calibration.divisor, calibration.answered_from]
    names = tuple(checkpoint.labels or (f"LABEL_{at}" for at in range(spec.classes or 0)))
    return Known(
        calibration=hashlib.sha256(json.dumps(conditions).encode()).hexdigest(),
        # Samples of shifted data count too, but a file does not say how many: fewer are the safe side.
        scale=Scale(max(fit.samples, quantiles), quantiles),
        accept=fit.accept,
        layers=layers,
        classes=task.watched(names),
        baseline=fit.baseline,
        task=task,
    )


def _numbers(checkpoint: Checkpoint) -> tuple[str, int, int]:
    """Returns the identity of the fitted numbers, and how many quantiles and layers there are."""
    assert checkpoint.calibration.ood is not None
    tensors = checkpoint.calibration.ood.tensors
    layers = tensors[PROFILE].shape[0] if PROFILE in tensors else 0
    return tensors_identity(tensors), tensors[QUANTILES].shape[0], layers


def _numbers_of_graph(file: OnnxFile) -> tuple[str, int, int]:
    """Returns the same of a graph, which names its quantiles alone; no two fits have the same."""
    layers = file.checkpoint.spec.towers[0].layers if PROFILE in file.outputs else 0
    return json.dumps(list(file.quantiles)), len(file.quantiles), layers
