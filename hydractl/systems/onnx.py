"""ONNX files as systems: what `predict` and an evaluation do with a network of torch, by onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from hydractl.data.ranks import Ranks
from hydractl.data.reading import Modality
from hydractl.data.samples import Samples
from hydractl.errors import DataError
from hydractl.inference import with_typicality
from hydractl.metrics.arrays import FloatArray
from hydractl.model.answering import Answering, BatchAnswers, OodHead, finite_on_cpu, joined
from hydractl.ood.score import QUANTILES, Beside
from hydractl.systems.networks import batches_of, kept_heads, labels_of
from hydractl.systems.onnx_file import SUFFIX, OnnxFile, OnnxGraph, open_onnx
from hydractl.systems.system import (
    Cost,
    Description,
    EvaluationData,
    KnownLeak,
    Model,
    Network,
    OnBatch,
    Running,
    SetKey,
)
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Answers, Task

FEATURES, HIDDEN = "features", "hidden."  # outputs of a graph that fits are made on


@dataclass(frozen=True)
class OnnxSystem:
    """An ONNX file; it is opened at the first use of what it holds, and its graph by `load`."""

    path: Path
    expected: tuple[str, ...] | None = None  # its outputs, where it is no file for users
    loaded: OnnxModel | None = None  # the file with its graph in memory
    data: EvaluationData | None = None
    running: Running | None = None
    own_confidence: ClassVar[bool] = False
    scores_itself: ClassVar[bool] = True
    draws: ClassVar[bool] = False
    sets: ClassVar[Mapping[SetKey, int]] = {}
    leaks: ClassVar[Sequence[KnownLeak]] = ()

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(SUFFIX)

    @cached_property
    def file(self) -> OnnxFile:
        """The open file."""
        return self.loaded.graph.file if self.loaded else open_onnx(self.path, self.expected)

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

    def on(self, data: EvaluationData | None, running: Running) -> OnnxSystem:
        return replace(self, data=data, running=running)

    @property
    def _run(self) -> tuple[EvaluationData, Running]:
        assert self.data is not None and self.running is not None
        return self.data, self.running

    @cached_property
    def model(self) -> OnnxModel:
        """The file with its graph in memory."""
        return self.loaded or start_onnx(self.file)

    @property
    def spec(self) -> ModelSpec:
        """The spec of its network."""
        return self.file.checkpoint.spec

    @property
    def labels(self) -> tuple[str, ...] | None:
        return self.file.checkpoint.labels

    @property
    def task(self) -> Task:
        return find_task(self.spec.task)

    @property
    def calibration(self) -> Calibration:
        return self.file.checkpoint.calibration

    @property
    def cost(self) -> Cost:
        return self.file.cost

    @cached_property
    def ood_head(self) -> OodHead | None:
        fit = self.calibration.fit
        quantiles = torch.tensor(self.file.quantiles, dtype=torch.float64)
        return None if fit is None else OodHead(fit, {QUANTILES: quantiles})

    def samples(self, key: SetKey) -> int:
        return len(self._run[0].sets[key])

    def answers(self, key: SetKey, reads: Beside, on_batch: OnBatch) -> Answers:
        """Returns the answers to a set.

        Raises:
            DataError: the score reads more than the graph gives.
        """
        file, (data, running) = self.file, self._run
        if reads in ("features", "layers") and FEATURES not in file.outputs:
            raise DataError(f"{file.name}: gives no features: choose an `ood_score` of logits, or evaluate its source")
        labels = labels_of(key, data, self.labels, self.spec, running=running)

        def answer(batch: Batch) -> tuple[NDArray[np.int64], BatchAnswers]:
            return batch.positions.numpy(), self._of_batch(batch, reads)

        parts = []
        batches = batches_of(
            data, key, self.model.preprocessor, running, ranks=Ranks()
        )  # the leading one runs it alone
        for positions, batch_answers in running.in_parallel(answer, batches):
            parts.append((positions, batch_answers))
            on_batch(len(positions))
        return joined(parts, self, labels)

    def _of_batch(self, batch: Batch, reads: Beside) -> BatchAnswers:
        if reads == "typicality":
            return with_typicality(batch, self.model.own(batch.inputs))
        outputs = self.model.run(batch.inputs)
        finite = {name: finite_on_cpu(tensor, name) for name, tensor in outputs.items() if name != "probabilities"}
        features = None if reads == "logits" else finite[FEATURES]
        hidden = [tensor for name, tensor in finite.items() if name.startswith(HIDDEN)] if reads == "layers" else ()
        logits = batch.answered(finite["member_logits"])
        return BatchAnswers(logits, finite.get("ood_score"), features=features, hidden=hidden, places=batch.places)

    def profiles(self, samples: Samples) -> tuple[FloatArray, FloatArray] | None:
        """Returns the typicality of some samples `[N]`, and that by each layer `[N,L]`; None without a score for it."""
        if "profile" not in self.file.outputs:
            return None
        answers = self.model.predict(list(samples.inputs), self._run[1].batch_size)
        assert answers.typicality is not None and answers.profile is not None
        return answers.typicality.astype(np.float64), answers.profile.astype(np.float64)

    def serve(self) -> None:
        """Does nothing: the leading process runs it alone."""

    def dismiss(self) -> None:
        """Does nothing either."""


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
        """The fits to its answers."""
        return self.graph.file.checkpoint.calibration

    @property
    def task(self) -> Task:
        """The row of its task."""
        return find_task(self.spec.task)

    @cached_property
    def preprocessor(self) -> Preprocessor:
        checkpoint = self.graph.file.checkpoint
        return preprocessor_from_json(checkpoint.preprocessing, checkpoint.spec, checkpoint.name, checkpoint.config)

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the outputs by name for preprocessed inputs."""
        outputs = self.graph.run({name: tensor.numpy() for name, tensor in inputs.items()})
        return {name: torch.from_numpy(values) for name, values in outputs.items()}

    def predict(
        self, samples: object, batch_size: int = 64, on_batch: Callable[[int], None] = lambda samples: None
    ) -> Answers:
        """Predicts raw images or texts; see `Hydra.predict`."""
        return self.answering().predict(samples, batch_size, on_batch)

    def answering(self) -> Answering:
        """Returns the network with all that makes predictions of its answers."""
        return Answering(self.own, self.preprocessor, self)

    def own(self, inputs: dict[str, Tensor]) -> BatchAnswers:
        """Returns the members' answers, with the numbers of the file's own score."""
        outputs = self.run(inputs)
        score, typicality, profile = (outputs.get(name) for name in ("ood_score", "typicality", "profile"))
        return BatchAnswers(outputs["member_logits"], score, typicality, profile)
