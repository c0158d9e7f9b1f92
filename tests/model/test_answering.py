import math

import pytest
import torch
from torch.testing import assert_close

from hydractl.checkpoint.calibration import FittedOod, OodFit
from hydractl.checkpoint.tensors import in_memory
from hydractl.model.answering import OodHead
from hydractl.ood.score import Outputs, typicality


def test_typicality_counts_calibration_scores() -> None:
    quantiles = torch.tensor([1.0, 2.0, 2.0, 5.0])
    found = typicality(torch.tensor([0.0, 1.0, 2.0, 2.5, 6.0], dtype=torch.float64), quantiles)
    assert found.tolist() == [1, 1, 0.8, 0.4, 0.2]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_head_keeps_its_precision_and_flags_the_least_typical(dtype: torch.dtype) -> None:
    quantiles = torch.linspace(-9, 0, 19)
    head = OodHead.of(FittedOod(OodFit("msp", 19, 0.9), {"quantiles": in_memory(quantiles)}), "cpu", dtype)
    assert not head.state_dict()
    logits = torch.tensor([[[9.0, 0.0], [0.0, 0.0]]], dtype=dtype)
    score, typical, profile = head(Outputs(logits))
    assert profile is None
    assert score.dtype == torch.promote_types(dtype, torch.float32)
    assert_close(score[1].item(), math.log(0.5))
    # -0.5 and 0 of the 19 quantiles are above log 0.5, and itself.
    assert typical.tolist() == pytest.approx([20 / 20, 3 / 20])
    assert head.flags(torch.tensor([0.05, 0.1, 0.15])).tolist() == [True, False, False]
