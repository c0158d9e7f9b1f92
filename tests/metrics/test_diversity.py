import math

import numpy as np
import pytest
import torch

from hydractl.metrics.diversity import diversity_metrics
from hydractl.metrics.table import tabulate


def test_by_hand():
    sure = 1e4
    logits = np.array([[[sure, 0.0], [sure, 0.0]], [[sure, 0.0], [0.0, sure]]])
    metrics = diversity_metrics(tabulate(logits))

    assert metrics.mutual_information == pytest.approx(math.log(2) / 2, abs=1e-15)
    assert metrics.disagreement == 0.5


def test_equals_torch_uncertainty(ensemble, torch_uncertainty):
    metrics = diversity_metrics(tabulate(ensemble[0]))
    per_sample = torch.from_numpy(ensemble[0]).double().softmax(-1).transpose(0, 1)

    for ours, theirs in (
        (metrics.mutual_information, torch_uncertainty.MutualInformation()),
        (metrics.disagreement, torch_uncertainty.Disagreement()),
    ):
        theirs.update(per_sample)
        assert ours == pytest.approx(float(theirs.compute()), abs=1e-6)


def test_a_single_network_has_none(ensemble):
    metrics = diversity_metrics(tabulate(ensemble[0][:1]))

    assert (metrics.mutual_information, metrics.disagreement) == (0, 0)
