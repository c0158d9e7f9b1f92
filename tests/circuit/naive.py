"""Algorithm 1 as printed, with transformers' own forward: what the search is held against."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from torch import Tensor

from hydractl.checkpoint.heads import Head, member_heads
from hydractl.circuit.ranking import Ranking
from hydractl.model.hydra import Hydra
from tests.references import Reference
from tests.surgery.test_slicing import head_columns


class Naive:
    """A transformers model whose heads are turned off by zeroing their columns of W_O."""

    def __init__(self, reference: Reference, ours: Hydra, extra: Mapping[str, Tensor] = MappingProxyType({})) -> None:
        self.model, self.heads, self.extra = reference.model, member_heads(ours.heads, 0), extra
        widths = {tower.name: tower.head_width for tower in ours.spec.towers}
        self.columns = {head: head_columns(reference, head, widths[head.tower]) for head in self.heads}
        self.weights = {head: columns.clone() for head, columns in self.columns.items()}
        self.known: dict[Any, tuple[float, float]] = {}

    def turn(self, head: Head, on: bool) -> None:
        self.columns[head].copy_(self.weights[head] if on else torch.zeros_like(self.weights[head]))

    @contextmanager
    def without(self, heads: Iterable[Head]) -> Iterator[None]:
        """Turns heads off for a while."""
        heads = list(heads)
        for head in heads:
            self.turn(head, on=False)
        yield
        for head in heads:
            self.turn(head, on=True)

    @torch.no_grad()
    def logits(self, inputs: dict[str, Tensor]) -> np.ndarray:
        output = self.model(**inputs, **self.extra)
        return (output.logits_per_image if "logits_per_image" in output else output.logits).numpy()

    def scores(self, id_inputs: dict[str, Tensor], labels: Tensor, ood_inputs: dict[str, Tensor]) -> list[np.ndarray]:
        """Of the ID and the OOD samples, by MSP; higher is more OOD."""
        return [-softmax(self.logits(inputs), axis=-1).max(-1) for inputs in (id_inputs, ood_inputs)]

    def measure(
        self, id_inputs: dict[str, Tensor], labels: Tensor, *ood_sets: dict[str, Tensor]
    ) -> tuple[float, float]:
        """Accuracy, and the mean over OOD sets of the AUROC with OOD positive."""
        aurocs = [auroc(*self.scores(id_inputs, labels, ood_inputs)) for ood_inputs in ood_sets]
        return float((self.logits(id_inputs).argmax(-1) == labels.numpy()).mean()), float(np.mean(aurocs))


def auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    return float(roc_auc_score(np.repeat([0, 1], [len(inside), len(outside)]), np.concatenate([inside, outside])))


def score(objective: str, accuracy: float, auroc: float) -> float:
    return {"acc": accuracy, "ood": auroc, "avg": (accuracy + auroc) / 2}[objective]


def quality(objective: str, labels: np.ndarray, inside: np.ndarray, *outside: np.ndarray) -> float:
    """How well mean probabilities `[N,C]` do, higher is better; `outside` are those of each OOD set."""
    if objective == "nll":
        return -float(log_loss(labels, inside, labels=range(inside.shape[1])))
    detected = np.mean([auroc(-inside.max(-1), -each.max(-1)) for each in outside])
    return score(objective, accuracy_score(labels, inside.argmax(-1)), float(detected))


def algorithm_1(
    naive: Naive, objective: str, budget: int, data: Sequence[Any]
) -> list[tuple[Head, float, float, float]]:
    """Head, score, accuracy and AUROC of each step."""
    left, gone = list(naive.heads), frozenset[Head]()
    steps = []
    for _ in range(budget):
        found = []
        for head in left:
            key = gone | {head}, *map(id, data)
            if key not in naive.known:  # objectives try the same heads
                with naive.without([head]):
                    naive.known[key] = naive.measure(*data)
            accuracy, auroc = naive.known[key]
            found.append((head, score(objective, accuracy, auroc), accuracy, auroc))
        # The first among equals; averages of fractions that are equal may differ in their last bit.
        largest = max(value for _, value, *_ in found)
        best = next(entry for entry in found if entry[1] > largest - 1e-9)
        naive.turn(best[0], on=False)
        left.remove(best[0])
        gone |= {best[0]}
        steps.append(best)
    for head, *_ in steps:
        naive.turn(head, on=True)
    return steps


def assert_decides_alike(ranking: Ranking, naive: Naive, data: Sequence[Any]) -> None:
    """The steps of a search are those of Algorithm 1 on the same data, with the same numbers."""
    expected = algorithm_1(naive, ranking.objective, len(ranking.steps), data)
    assert [step.head for step in ranking.steps] == [head for head, *_ in expected]
    for step, (_, score, accuracy, auroc) in zip(ranking.steps, expected, strict=True):
        found = step.measure.score(ranking.objective), step.measure.accuracy, step.measure.auroc
        assert found == pytest.approx((score, accuracy, auroc), rel=0, abs=1e-12)
