"""ONNX files as systems: what `predict` and an evaluation do with a network of torch, by onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydractl.checkpoint.calibration import Calibration
from hydractl.checkpoint.spec import ModelSpec
from hydractl.data.batching import Batch
from hydractl.data.preprocess import Preprocessor, preprocessor_from_json
from hydractl.data.reading import Modality
from hydractl.data.samples import Samples
from hydractl.errors import DataError
from hydractl.evaluation.answer_kinds import AnswerKind, answer_kind
from hydractl.evaluation.checkpoints import kept_heads
from hydractl.evaluation.networks import answers_in_order, batches_of, labels_of
from hydractl.evaluation.onnx_file import SUFFIX, OnnxFile, OnnxGraph, open_onnx
from hydractl.evaluation.results import Cost, Description, KnownLeak, Model, Network
from hydractl.evaluation.set_answers import Classifier, SetAnswers
from hydractl.evaluation.sets import EvaluationData, SetKey
from hydractl.evaluation.systems import OnBatch, Running
from hydractl.inference import MemberAnswers
from hydractl.metrics.checks import FloatArray
from hydractl.model.answering import Answer, Answering
from hydractl.model.finite import finite_on_cpu
from hydractl.model.ood_head import OodHead
from hydractl.ood.score import QUANTILES, Reads
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.prediction import AnyPrediction
from hydractl.tasks.task import TaskRow

FEATURES, HIDDEN = "features", "hidden."  # outputs of a graph that fits are made on


@dataclass(frozen=True)
class OnnxSystem:
    """An ONNX file; it is opened at the first use of what it holds, and its graph by `load`."""

    path: Path
    draws: ClassVar[bool] = False
    sets: ClassVar[Mapping[SetKey, int]] = {}
    leaks: ClassVar[Sequence[KnownLeak]] = ()

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(SUFFIX)

    @cached_property
    def file(self) -> OnnxFile:
        """The open file."""
        return open_onnx(self.path)

    @property
    def modality(self) -> Modality:
        return self.file.checkpoint.spec.modality

    @property
    def histories(self) -> Sequence[Mapping[str, Any]]:
        return [self.file.checkpoint.provenance]

    def describe(self) -> Description:
        file = self.file
        network = Network(file.name, file.sha256, kept_heads(file.checkpoint))
        return Description(Model(file.name, file.sha256), (network,))

    def conditions(self, running: Running) -> dict[str, Any]:
        """Returns what the answers depend on besides the data, as plain JSON."""
        return {"onnx": self.file.sha256, "batch_size": running.batch_size}

    def check(self, data: EvaluationData | None) -> None:
        """Accepts any data: labels are matched when they are read."""

    def load(self, data: EvaluationData | None, running: Running) -> OnnxNetwork:
        """Returns the file with its graph in memory."""
        assert data is not None
        return OnnxNetwork(start_onnx(self.file), data, running)


def start_onnx(file: OnnxFile) -> OnnxModel:
    """Returns a file that is ready to answer, on as many threads as torch takes."""
    return OnnxModel(file.start(torch.get_num_threads()))


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """A graph with its preprocessing; it predicts as a `Hydra` does."""

    graph: OnnxGraph

    @property
    def spec(self) -> ModelSpec:
        return self.graph.file.checkpoint.spec

    @property
    def labels(self) -> tuple[str, ...] | None:
        return self.graph.file.checkpoint.labels

    @property
    def calibration(self) -> Calibration:
        """What was fitted to its answers."""
        return self.graph.file.checkpoint.calibration

    @property
    def task(self) -> TaskRow:
        """The row of its task."""
        return find_task(self.spec.task)

    @cached_property
    def preprocessor(self) -> Preprocessor:
        checkpoint = self.graph.file.checkpoint
        return preprocessor_from_json(checkpoint.preprocessing, checkpoint.spec, checkpoint.name, checkpoint.config)

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the outputs by name for preprocessed inputs."""
        found = self.graph.run({name: tensor.numpy() for name, tensor in inputs.items()})
        return {name: torch.from_numpy(values) for name, values in found.items()}

    def predict(
        self, samples: object, batch_size: int = 64, on_batch: Callable[[int], None] = lambda samples: None
    ) -> AnyPrediction:
        """Predicts raw images or texts; see `Hydra.predict`."""
        return self.answering().predict(samples, batch_size, on_batch)

    def answering(self) -> Answering:
        """Returns the network with all that makes predictions of its answers."""
        return Answering(self._answer, self.preprocessor, self)

    def _answer(self, inputs: dict[str, Tensor]) -> Answer:
        found = self.run(inputs)
        return Answer(found["member_logits"], *(found.get(name) for name in ("ood_score", "typicality", "profile")))


@dataclass(frozen=True, eq=False)
class OnnxNetwork:
    """A graph that answers the data sets of an evaluation; under torchrun the leading process alone runs it."""

    model: OnnxModel
    data: EvaluationData
    running: Running
    classifier: Classifier | None = None
    confident: ClassVar[bool] = False
    scores_itself: ClassVar[bool] = True

    @property
    def labels(self) -> tuple[str, ...] | None:
        return self.model.labels

    @property
    def temperature(self) -> float:
        return self.calibration.divisor

    @property
    def kind(self) -> AnswerKind:
        return answer_kind(self.model.task, self.calibration, names=self.model.labels)

    @property
    def calibration(self) -> Calibration:
        return self.model.calibration

    @property
    def cost(self) -> Cost:
        return self.model.graph.file.cost

    @cached_property
    def ood_head(self) -> OodHead | None:
        fit = self.calibration.fit
        quantiles = torch.tensor(self.model.graph.file.quantiles, dtype=torch.float64)
        return None if fit is None else OodHead(fit, {QUANTILES: quantiles})

    def samples(self, key: SetKey) -> int:
        return len(self.data.sets[key])

    def answers(self, key: SetKey, reads: Reads, on_batch: OnBatch) -> SetAnswers:
        """Returns the answers to a set.

        Raises:
            DataError: the score reads more than the graph gives.
        """
        file = self.model.graph.file
        if reads != "logits" and FEATURES not in file.outputs:
            raise DataError(f"{file.name}: gives no features: choose an `ood_score` of logits, or evaluate its source")
        labels = labels_of(key, self.data, self.labels, self.model.spec, running=self.running)

        def answer(batch: Batch) -> tuple[NDArray[np.int64], MemberAnswers]:
            return batch.positions.numpy(), self._of_batch(batch, reads)

        parts = []
        batches = batches_of(self.data.sets[key], self.model.preprocessor, self.running)
        for positions, found in self.running.in_parallel(answer, batches):
            parts.append((positions, found))
            on_batch(len(positions))
        return answers_in_order(parts, labels)

    def _of_batch(self, batch: Batch, reads: Reads) -> MemberAnswers:
        found = self.model.run(batch.inputs)
        finite = {name: finite_on_cpu(tensor, name) for name, tensor in found.items() if name != "probabilities"}
        features = None if reads == "logits" else finite[FEATURES]
        hidden = [tensor for name, tensor in finite.items() if name.startswith(HIDDEN)] if reads == "layers" else ()
        logits = batch.answered(finite["member_logits"])
        return MemberAnswers(logits, features, hidden, finite.get("ood_score"), places=batch.places)

    def profiles(self, samples: Samples) -> tuple[FloatArray, FloatArray] | None:
        """Returns the typicality of some samples `[N]`, and that by each layer `[N,L]`; None without a score for it."""
        if "profile" not in self.model.graph.file.outputs:
            return None
        found = self.model.predict(list(samples.inputs), self.running.batch_size)
        assert found.typicality is not None and found.profile is not None
        return found.typicality.double().numpy(), found.profile.double().numpy()

    def serve(self) -> None:
        """Does nothing: the leading process runs it alone."""

    def dismiss(self) -> None:
        """Does nothing either."""
