import math

import numpy as np
import pytest

from hydractl.uncertainty.ood_scores import ood_scores
from hydractl.uncertainty.table import tabulate

SCORES = ["msp", "entropy", "mutual-information", "max-logit", "energy"]


@pytest.mark.parametrize("score", SCORES)
def test_higher_is_more_ood(score):
    # The first sample: members sure and of one mind. The second: weak logits, members of two minds.
    logits = np.array([[[9.0, 0.0, 0.0], [1.0, -1.0, -1.0]], [[9.0, 0.0, 0.0], [-1.0, 1.0, -1.0]]])
    sure, unsure = ood_scores(tabulate(logits), score)

    assert unsure > sure


def test_values_by_hand():
    table = tabulate(np.array([[[math.log(3), 0.0]], [[0.0, 0.0]]]))

    assert ood_scores(table) == pytest.approx([-0.625], abs=1e-15)
    assert ood_scores(table, "max-logit") == pytest.approx([-math.log(3) / 2], abs=1e-15)
    assert ood_scores(table, "energy") == pytest.approx([-math.log(math.sqrt(3) + 1)], abs=1e-15)
    entropy = -0.625 * math.log(0.625) - 0.375 * math.log(0.375)
    assert ood_scores(table, "entropy") == pytest.approx([entropy], abs=1e-15)
    members = (math.log(2) - 0.75 * math.log(0.75) - 0.25 * math.log(0.25)) / 2
    assert ood_scores(table, "mutual-information") == pytest.approx([entropy - members], abs=1e-15)
