import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.metrics import average_precision_score, roc_auc_score

from hydractl.analysis.budgets import Budgets, Cut, cuts_of_ranking, cuts_of_scores, measure_all, parse_budgets
from hydractl.checkpoint.heads import Head
from hydractl.errors import OptionError
from hydractl.selection.forward import CandidateNetworks
from tests.circuit.conftest import Case, case

__all__ = ["case"]  # a fixture
HEADS = [Head("vision", layer, head) for layer in range(2) for head in range(4)]


@pytest.mark.parametrize(
    ("text", "budgets"),
    [("1,4", Budgets((1, 4))), ("50%,2", Budgets((2, 4))), ("1,3/layer", Budgets((1, 3), per_layer=True))],
)
def test_budgets_are_numbers_shares_or_numbers_of_each_layer(text: str, budgets: Budgets) -> None:
    assert parse_budgets(text, HEADS) == budgets


@pytest.mark.parametrize("text", ["", "/layer", "9", "5/layer", "x", "-1", "1;2"])
def test_other_budgets_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="`budgets`"):
        parse_budgets(text, HEADS)


def test_a_ranking_loses_its_first_heads_over_all_layers_or_in_each() -> None:
    a, b, c, d, e, *_ = order = [HEADS[i] for i in (0, 1, 4, 5, 2, 3, 6, 7)]
    assert cuts_of_ranking("acc", order, Budgets((1, 3)), HEADS) == [
        Cut("acc", frozenset({a})),
        Cut("acc", frozenset({a, b, c})),
    ]
    assert cuts_of_ranking("acc", order, Budgets((1, 2), True), HEADS)[1].dropped == {a, b, c, d}
    with pytest.raises(OptionError, match="`budgets` 2: acc ranks 1 heads of some layer"):
        cuts_of_ranking("acc", [a, b, c, e], Budgets((2,), True), HEADS)


def test_scores_lose_their_lowest_over_all_layers_or_in_each() -> None:
    scores = {head: float(value) for head, value in zip(HEADS, (0, 1, 2, 3, 4, 5, -1, 7), strict=True)}
    assert cuts_of_scores("gate", scores, Budgets((2,)))[0].dropped == {HEADS[6], HEADS[0]}
    assert cuts_of_scores("gate", scores, Budgets((2,), True))[0].dropped == {HEADS[0], HEADS[1], HEADS[6], HEADS[4]}


def test_every_network_does_what_their_forward_does_with_its_heads_off(case: Case) -> None:
    tower = case.model.spec.towers[0].name
    dropped = [frozenset(), frozenset({Head(tower, 0, 1)}), frozenset({Head(tower, 0, 1), Head(tower, 1, 2)})]
    data, seen = case.data(5), list[int]()
    networks, outside = [CandidateNetworks(case.model, dropped, data.prompts)], {"a": data.ood, "b": data.ood}
    found = measure_all(networks, data.id, outside, torch.device("cpu"), on_batch=seen.append)
    assert sum(seen) == 14 + 2 * 11
    naive, labels = case.naive(), case.labels.numpy()
    for gone, quality in zip(dropped, found, strict=True):
        with naive.without(gone):
            p, q = (softmax(naive.logits(inputs), axis=1) for inputs in (case.id_inputs, case.ood_inputs))
        is_ood, score = np.repeat([0, 1], [14, 11]), -np.concatenate([p.max(1), q.max(1)])
        assert quality.accuracy == (p.argmax(1) == labels).mean()
        assert quality.nll == pytest.approx(-np.log(p[range(14), labels]).mean(), abs=1e-10)
        assert quality.mean("auroc") == pytest.approx(roc_auc_score(is_ood, score), abs=1e-12)
        assert quality.mean("aupr_out") == pytest.approx(average_precision_score(is_ood, score), abs=1e-12)
        assert set(quality.ood) == {"a", "b"}
