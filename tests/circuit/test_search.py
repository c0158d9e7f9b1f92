from dataclasses import replace

import pytest
import torch

from hydractl.checkpoint.heads import member_heads
from hydractl.circuit.objective import OBJECTIVES, ScoringData
from hydractl.circuit.ranking import Ranking, Search
from hydractl.circuit.replay import Replay
from hydractl.circuit.search import extract_circuits
from hydractl.data.batching import JoinedBatches
from tests.circuit.conftest import OOD, Case, batches, samples
from tests.circuit.naive import Naive, assert_decides_alike

BUDGET = 5


def search(case: Case, *data: ScoringData, budget: int = BUDGET) -> list[Ranking]:
    candidates = tuple(member_heads(case.model.heads, 0))
    return extract_circuits(case.model, data, Search(candidates, budget), list(map(Ranking, OBJECTIVES)))


def test_equals_algorithm_1_with_transformers_forward(case: Case) -> None:
    for ranking in search(case, case.data()):
        assert len(ranking.steps) == BUDGET
        assert_decides_alike(ranking, case.naive(), (case.id_inputs, case.labels, case.ood_inputs))


def test_several_ood_sets_count_alike_whatever_their_sizes(case: Case) -> None:
    other, sizes = samples(case.reference.name, 4), (OOD, 4)
    joined = JoinedBatches([batches(case.ood_inputs, None, 4), batches(other, None, 3)], sizes)
    data = replace(case.data(3), ood=joined, ood_samples=sum(sizes), ood_sets=sizes)
    for ranking in search(case, data, budget=3):
        assert_decides_alike(ranking, case.naive(), (case.id_inputs, case.labels, case.ood_inputs, other))


class NaiveMean(Naive):
    """Measured on each task in turn: the means of the accuracies and of the AUROCs."""

    def measure(self, *tasks: Case) -> tuple[float, float]:
        each = []
        for task in tasks:
            self.extra = task.prompts
            each.append(super().measure(task.id_inputs, task.labels, task.ood_inputs))
        accuracies, aurocs = zip(*each, strict=True)
        return sum(accuracies) / len(each), sum(aurocs) / len(each)


@pytest.mark.parametrize("case", ["vit", "clip"], indirect=True)
def test_several_tasks_count_by_the_mean_of_their_objectives(case: Case) -> None:
    tasks = []
    for inside, outside, classes in ((14, 11, 5), (9, 4, 3)):
        own = {"id_inputs": samples("vit", inside), "labels": torch.randint(classes, (inside,))}
        prompts = {name: tensor[-classes:] for name, tensor in case.prompts.items()}
        tasks.append(replace(case, **own, ood_inputs=samples("vit", outside), prompts=prompts))
    naive, found = case.naive(NaiveMean), search(case, *(task.data(4) for task in tasks), budget=3)
    for ranking in found:
        assert_decides_alike(ranking, naive, tasks)
    steps = [ranking.steps for ranking in found]
    assert steps != [ranking.steps for ranking in search(case, tasks[0].data(4), budget=3)]


def test_batches_and_parts_of_them_change_no_decision(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _decisions(search(case, case.data()))
    assert _decisions(search(case, case.data(batch_size=3))) == whole
    monkeypatch.setattr(Replay, "at_once", lambda self, inputs: 4)
    assert _decisions(search(case, case.data())) == whole


def _decisions(found: list[Ranking]) -> list[list[tuple[object, ...]]]:
    return [[(s.head, s.measure.correct, s.measure.ordered) for s in ranking.steps] for ranking in found]
