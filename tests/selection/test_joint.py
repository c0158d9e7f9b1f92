from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax

from hydractl.checkpoint.heads import Head, member_heads
from hydractl.errors import OptionError
from hydractl.selection.answers import answer
from hydractl.selection.candidates import OBJECTIVES
from hydractl.selection.forward import CandidateNetworks
from hydractl.selection.greedy import CandidateLogits, Goal, quality
from hydractl.selection.joint import Ask, JointSearch, _side_by_side, possible, search_jointly
from tests.circuit import naive
from tests.circuit.conftest import OOD, Case, case, samples, vit
from tests.references import CLASSES

__all__ = ["case", "vit"]  # fixtures

MEMBERS = 3


def ask_of(case: Case, batch_size: int = 100, ood_score: str = "msp") -> Ask:
    data = replace(case.data(batch_size), ood_sets=(OOD,))

    def ask(dropped: Sequence[frozenset[Head]]) -> CandidateLogits:
        networks = [CandidateNetworks(case.model, dropped, data.prompts)]
        return answer(networks, data, torch.device("cpu"), temperature=case.model.temperature, ood_score=ood_score)

    return ask


def search_of(case: Case, budget: int = 2, members: int = MEMBERS) -> JointSearch:
    return JointSearch(tuple(member_heads(case.model.heads, 0)), members, (budget,))


def test_members_detect_by_the_mean_of_scores_fitted_on_the_features_of_each(case: Case) -> None:
    case.id_inputs, case.labels = samples(case.reference.name, 40), torch.arange(40) % CLASSES
    theirs, heads = case.naive(naive.NaiveMahalanobis), member_heads(case.model.heads, 0)
    dropped = [frozenset[Head](), frozenset(heads[:3]), frozenset(heads[2:4])]
    scores = []
    for gone in dropped:
        with theirs.without(gone):
            scores.append(theirs.scores(case.id_inputs, case.labels, case.ood_inputs))
    ask = ask_of(case, 9, "mahalanobis")
    # As in a joint search, where each member's answers come by themselves.
    for answers in (ask(dropped), _side_by_side([ask(dropped[:2]), ask(dropped[2:])])):
        for chosen in ([0], [2], [0, 1], [2, 1, 0]):
            expected = naive.auroc(*(np.mean(each, axis=0) for each in zip(*(scores[k] for k in chosen), strict=True)))
            assert float(quality(answers, chosen).auroc or 0) == pytest.approx(expected, rel=0, abs=1e-12)


class Together:
    """Several members of a transformers model, whose heads are turned off by zeroing their columns of W_O."""

    def __init__(self, case: Case) -> None:
        self.naive = case.naive()
        self.case = case
        self.known: dict[frozenset[Head], tuple[np.ndarray, np.ndarray]] = {}

    def probabilities(self, dropped: frozenset[Head]) -> tuple[np.ndarray, np.ndarray]:
        if dropped not in self.known:
            sets = (self.case.id_inputs, self.case.ood_inputs)
            with self.naive.without(dropped):
                inside, outside = (softmax(self.naive.logits(inputs), axis=-1) for inputs in sets)
            self.known[dropped] = inside, outside
        return self.known[dropped]

    def score(self, members: Sequence[frozenset[Head]], objective: str) -> float:
        inside, outside = (np.mean(each, axis=0) for each in zip(*map(self.probabilities, members), strict=True))
        return naive.quality(objective, self.case.labels.numpy(), inside, outside)


def naively(together: Together, objective: str, budget: int) -> tuple[list[Head], float]:
    """The heads that leave in turn, and how the members do after the last."""
    heads = together.naive.heads
    members, turns, score = [frozenset[Head]()] * MEMBERS, [], 0.0
    for _ in range(budget):
        for number in range(MEMBERS):
            trials = {}
            for head in heads:
                gone = members[number] | {head}
                if head not in members[number] and gone not in members:
                    trials[head] = [*members[:number], gone, *members[number + 1 :]]
            scores = {head: together.score(trial, objective) for head, trial in trials.items()}
            score = max(scores.values())
            turns.append(next(head for head in scores if scores[head] > score - 1e-9))
            members[number] = members[number] | {turns[-1]}
    return turns, score


def test_each_turn_is_that_of_the_naive_search(case: Case) -> None:
    together, ask = Together(case), ask_of(case)
    for objective in OBJECTIVES:
        expected, score = naively(together, objective, 2)
        found = []
        turns = search_jointly(
            search_of(case), Goal(objective), ask, on_turn=lambda turns, quality, found=found: found.append(quality)
        )
        assert list(turns) == expected
        assert float(found[-1].score(objective)) == pytest.approx(score, abs=1e-10)


def test_a_member_alone_is_searched_for_as_a_circuit_is(vit: Case) -> None:
    turns = search_jointly(search_of(vit, 4, members=1), Goal("avg"), ask_of(vit))
    data = (vit.id_inputs, vit.labels, vit.ood_inputs)
    assert list(turns) == [head for head, *_ in naive.algorithm_1(vit.naive(), "avg", 4, data)]


def test_budgets_that_leave_members_nothing_to_differ_by_are_passed_over() -> None:
    assert possible((0, 1, 2, 3, 4), 4, 3) == (1, 2)
    for budgets in ((), (0,), (3,)):
        with pytest.raises(OptionError, match="from 1 to 2"):
            possible(budgets, 4, 3)
    with pytest.raises(OptionError, match="`members` 5: there are 4 heads"):
        possible((1,), 4, 5)
