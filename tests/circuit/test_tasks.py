"""A search over several tasks makes the decisions of Algorithm 1 on the mean of their objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hydractl.checkpoint.heads import member_heads
from hydractl.circuit import shortcuts
from hydractl.circuit.modes import Exact, Mode, Screened, Shortlist
from hydractl.circuit.objective import OBJECTIVES, ScoringData
from hydractl.circuit.ranking import Ranking, Search
from hydractl.circuit.search import extract_circuits
from tests.circuit.conftest import Case, batches, build_case, samples
from tests.circuit.naive import Naive, algorithm_1

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


@pytest.fixture(params=["vit", "clip"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return build_case(request.param, tmp_path)


@pytest.fixture
def tasks(case: Case) -> list[Task]:
    torch.manual_seed(2)
    found = []
    for inside, outside, classes in SIZES:
        prompts = {name: tensor[-classes:] for name, tensor in case.prompts.items()}
        found.append(Task(prompts, samples("vit", inside), torch.randint(classes, (inside,)), samples("vit", outside)))
    return found


def search_of(case: Case, mode: Mode) -> Search:
    return Search(tuple(member_heads(case.model.heads, 0)), BUDGET, mode)


def found_by(case: Case, tasks: Sequence[Task], mode: Mode) -> list[Ranking]:
    empty = [Ranking(objective) for objective in OBJECTIVES]
    return extract_circuits(case.model, [task.data() for task in tasks], search_of(case, mode), empty)


def test_equals_algorithm_1_on_the_mean_over_tasks(
    case: Case, tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A margin and a shortlist that leave no candidate out: then these modes are the exact search.
    monkeypatch.setattr(shortcuts, "_margin", lambda rough, full, objective: 10**9)
    exact, screened, listed = (found_by(case, tasks, mode) for mode in (Exact(), Screened(), Shortlist(shortlist=1000)))
    naive = case.naive(NaiveMean)
    for ranking in exact:
        expected = algorithm_1(naive, ranking.objective, BUDGET, tasks)
        assert [step.head for step in ranking.steps] == [head for head, *_ in expected]
        for step, (_, score, accuracy, auroc) in zip(ranking.steps, expected, strict=True):
            assert step.measure.accuracy == pytest.approx(accuracy, rel=0, abs=1e-12)
            assert step.measure.auroc == pytest.approx(auroc, rel=0, abs=1e-12)
            assert step.measure.score(ranking.objective) == pytest.approx(score, rel=0, abs=1e-12)
    steps = [ranking.steps for ranking in exact]
    assert [ranking.steps for ranking in screened] == [ranking.steps for ranking in listed] == steps
    assert steps != [ranking.steps for ranking in found_by(case, tasks[:1], Exact())]
