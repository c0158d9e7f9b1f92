"""The search makes the decisions of Algorithm 1."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from hydractl.checkpoint.heads import member_heads
from hydractl.circuit.modes import Exact
from hydractl.circuit.objective import OBJECTIVES
from hydractl.circuit.ranking import Ranking, Search
from hydractl.circuit.replay import Replay
from hydractl.circuit.search import extract_circuits
from hydractl.data.batching import JoinedBatches
from tests.circuit.conftest import OOD, Case, batches, samples
from tests.circuit.naive import NaiveMahalanobis, algorithm_1
from tests.references import CLASSES

BUDGET = 5


def search(case: Case, budget: int = BUDGET, batch_size: int = 100) -> dict[str, Ranking]:
    candidates = tuple(member_heads(case.model.heads, 0))
    empty = [Ranking(objective) for objective in OBJECTIVES]
    found = extract_circuits(case.model, [case.data(batch_size)], Search(candidates, budget, Exact()), empty)
    return {ranking.objective: ranking for ranking in found}


def test_equals_algorithm_1_with_transformers_forward(case: Case) -> None:
    found = search(case)
    data = (case.id_inputs, case.labels, case.ood_inputs)
    naive = case.naive()
    for objective, ranking in found.items():
        expected = algorithm_1(naive, objective, BUDGET, data)
        assert [step.head for step in ranking.steps] == [head for head, *_ in expected]
        for step, (_, score, accuracy, auroc) in zip(ranking.steps, expected, strict=True):
            assert step.measure.accuracy == accuracy
            assert step.measure.auroc == pytest.approx(auroc, rel=0, abs=1e-12)
            assert step.measure.score(objective) == pytest.approx(score, rel=0, abs=1e-12)


def test_features_are_fitted_again_for_every_candidate(case: Case) -> None:
    name = "bert" if "input_ids" in case.ood_inputs else "vit"
    inputs, other = samples(name, 40), samples(name, 7)
    labels = torch.arange(40) % CLASSES
    ood = JoinedBatches([batches(case.ood_inputs, None, 4), batches(other, None, 3)], (OOD, 7))
    data = replace(case.data(), id=batches(inputs, labels, 9), id_samples=40)
    data = replace(data, ood=ood, ood_samples=OOD + 7, ood_sets=(OOD, 7))
    naive = case.naive(NaiveMahalanobis)
    naive.heads = naive.heads[::5]
    wanted = Search(tuple(naive.heads), 2, Exact(), ood_score="mahalanobis")
    (ranking,) = extract_circuits(case.model, [data], wanted, [Ranking("avg")])
    expected = algorithm_1(naive, "avg", 2, (inputs, labels, case.ood_inputs, other))
    assert [step.head for step in ranking.steps] == [head for head, *_ in expected]
    for step, (_, score, _, auroc) in zip(ranking.steps, expected, strict=True):
        assert step.measure.auroc == pytest.approx(auroc, rel=0, abs=1e-12)
        assert step.measure.score("avg") == pytest.approx(score, rel=0, abs=1e-12)


def test_several_ood_sets_count_alike_whatever_their_sizes(case: Case) -> None:
    name = "bert" if "input_ids" in case.ood_inputs else "vit"
    other = samples(name, 4)
    data = case.data(3)
    joined = JoinedBatches([data.ood, batches(other, None, 3)], (OOD, 4))
    data = replace(data, ood=joined, ood_samples=OOD + 4, ood_sets=(OOD, 4))
    candidates = tuple(member_heads(case.model.heads, 0))
    found = extract_circuits(case.model, [data], Search(candidates, 3, Exact()), [Ranking("ood"), Ranking("avg")])
    naive = case.naive()
    for ranking in found:
        expected = algorithm_1(naive, ranking.objective, 3, (case.id_inputs, case.labels, case.ood_inputs, other))
        assert [step.head for step in ranking.steps] == [head for head, *_ in expected]
        for step, (_, score, _, auroc) in zip(ranking.steps, expected, strict=True):
            assert step.measure.auroc == pytest.approx(auroc, rel=0, abs=1e-12)
            assert step.measure.score(ranking.objective) == pytest.approx(score, rel=0, abs=1e-12)


def test_batches_and_parts_of_them_change_no_decision(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _decisions(search(case))
    assert _decisions(search(case, batch_size=3)) == whole
    monkeypatch.setattr(Replay, "at_once", lambda self, inputs: 4)
    assert _decisions(search(case)) == whole


def _decisions(found: dict[str, Ranking]) -> dict[str, list[tuple[object, ...]]]:
    return {
        objective: [(s.head, s.measure.correct, s.measure.ordered) for s in ranking.steps]
        for objective, ranking in found.items()
    }
