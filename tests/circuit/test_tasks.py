"""A search over several tasks makes the decisions of Algorithm 1 on the mean of their objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from hydractl.checkpoint.heads import member_heads
from hydractl.circuit import shortcuts
from hydractl.circuit.modes import Exact, Mode, Screened, Shortlist
from hydractl.circuit.objective import OBJECTIVES, ScoringData
from hydractl.circuit.ranking import Ranking, Search
from hydractl.circuit.search import extract_circuits
from tests.circuit.conftest import Case, batches, samples
from tests.circuit.naive import Naive, assert_decides_alike

BUDGET = 3
SIZES = ((14, 11, 5), (9, 4, 3))  # ID samples, OOD samples and classes of two tasks


@dataclass(frozen=True)
class Task:
    """The data of a task, with prompts of its own where the network is told its classes."""

    prompts: dict[str, Tensor]
    inside: dict[str, Tensor]
    labels: Tensor
    outside: dict[str, Tensor]

    def data(self) -> ScoringData:
        inside, outside = batches(self.inside, self.labels, 4), batches(self.outside, None, 4)
        prompts = (self.prompts,) if self.prompts else ()
        return ScoringData(inside, len(self.labels), outside, len(self.outside["pixel_values"]), prompts)


class NaiveMean(Naive):
    """Measured on each task in turn: the means of the accuracies and of the AUROCs."""

    def measure(self, *tasks: Task) -> tuple[float, float]:
        each = []
        for task in tasks:
            self.extra = task.prompts
            each.append(super().measure(task.inside, task.labels, task.outside))
        accuracies, aurocs = zip(*each, strict=True)
        return sum(accuracies) / len(each), sum(aurocs) / len(each)


@pytest.fixture
def tasks(case: Case) -> list[Task]:
    torch.manual_seed(2)
    found = []
    for inside, outside, classes in SIZES:
        prompts = {name: tensor[-classes:] for name, tensor in case.prompts.items()}
        found.append(Task(prompts, samples("vit", inside), torch.randint(classes, (inside,)), samples("vit", outside)))
    return found


def found_by(case: Case, tasks: Sequence[Task], mode: Mode) -> list[Ranking]:
    empty = [Ranking(objective) for objective in OBJECTIVES]
    search = Search(tuple(member_heads(case.model.heads, 0)), BUDGET, mode)
    return extract_circuits(case.model, [task.data() for task in tasks], search, empty)


@pytest.mark.parametrize("case", ["vit", "clip"], indirect=True)
def test_equals_algorithm_1_on_the_mean_over_tasks(
    case: Case, tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A margin and a shortlist that leave no candidate out: then these modes are the exact search.
    monkeypatch.setattr(shortcuts, "_margin", lambda rough, full, objective: 10**9)
    exact, screened, listed = (found_by(case, tasks, mode) for mode in (Exact(), Screened(), Shortlist(shortlist=1000)))
    naive = case.naive(NaiveMean)
    for ranking in exact:
        assert_decides_alike(ranking, naive, tasks)
    steps = [ranking.steps for ranking in exact]
    assert [ranking.steps for ranking in screened] == [ranking.steps for ranking in listed] == steps
    assert steps != [ranking.steps for ranking in found_by(case, tasks[:1], Exact())]
