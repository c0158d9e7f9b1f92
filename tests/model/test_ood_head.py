import numpy as np
import pytest
import torch
from torch.testing import assert_close

from hydractl.checkpoint.ood import FittedOod, OodFit
from hydractl.metrics.ood_scores import OOD_SCORES, Answers, find_ood_score
from hydractl.metrics.prediction_table import tabulate
from hydractl.model.ood_head import ANSWER_SCORES, DETECTORS, OodHead, ood_score, typicality
from tests.checkpoint.test_ood import lazy


def test_every_score_has_one_way_to_be_computed() -> None:
    assert ANSWER_SCORES.keys() == {score.name for score in OOD_SCORES if not score.needs_features}
    assert DETECTORS.keys() == {score.name for score in OOD_SCORES if score.needs_features}


@pytest.mark.parametrize("name", list(ANSWER_SCORES))
@pytest.mark.parametrize("classes", [3, 150])
def test_scores_of_answers_are_those_of_an_evaluation(name: str, classes: int) -> None:
    logits = 4 * np.random.default_rng(0).normal(size=(3, 20, classes))
    expected = find_ood_score(name).of_answers(Answers(tabulate(logits, temperature=1.7), logits, 1.7))
    found = ood_score(name, {}, torch.empty(3, 20, 0), torch.from_numpy(logits), 1.7)
    assert_close(found.numpy(), expected, rtol=1e-10, atol=1e-12)


def test_typicality_counts_calibration_scores() -> None:
    quantiles = torch.tensor([1.0, 2.0, 2.0, 5.0])
    found = typicality(torch.tensor([0.0, 1.0, 2.0, 2.5, 6.0], dtype=torch.float64), quantiles)
    assert found.tolist() == [1, 1, 0.8, 0.4, 0.2]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_head_keeps_its_precision_and_flags_the_least_typical(dtype: torch.dtype) -> None:
    quantiles = torch.linspace(-1, 0, 19)
    head = OodHead.of(FittedOod(OodFit("msp", 19, 0.9), {"quantiles": lazy(quantiles)}), "cpu", dtype)
    assert not head.state_dict()
    logits = torch.tensor([[[9.0, 0.0], [0.0, 0.0]]], dtype=dtype)
    score, typical = head(torch.zeros(1, 2, 4, dtype=dtype), logits, 1.0)
    assert score.dtype == torch.promote_types(dtype, torch.float32)
    assert_close(score[1].item(), -0.5)
    # 9 of 19 quantiles are above -0.5, and itself.
    assert typical.tolist() == pytest.approx([19 / 20, 11 / 20])
    assert head.flags(torch.tensor([0.05, 0.1, 0.15])).tolist() == [True, False, False]
