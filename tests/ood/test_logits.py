import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch

from hydractl.errors import OptionError
from hydractl.ood.fit import score_samples
from hydractl.ood.ood_scores import find_ood_score
from hydractl.ood.score import FitSamples, Outputs


def scores(logits, name, temperature=1.0):
    return score_samples(find_ood_score(name), {}, FitSamples(logits, logits[..., :0]), temperature)


def test_values_by_hand():
    logits = np.array([[[math.log(3), 0.0]], [[0.0, 0.0]]])
    assert scores(logits, "msp") == pytest.approx([math.log(0.375)], abs=1e-15)
    assert scores(logits, "max-logit") == pytest.approx([-math.log(3) / 2], abs=1e-15)
    assert scores(logits, "energy") == pytest.approx([-math.log(math.sqrt(3) + 1)], abs=1e-15)
    entropy = -0.625 * math.log(0.625) - 0.375 * math.log(0.375)
    assert scores(logits, "entropy") == pytest.approx([math.log(entropy)], abs=1e-15)
    members = (math.log(2) - 0.75 * math.log(0.75) - 0.25 * math.log(0.25)) / 2
    assert scores(logits, "mutual-information") == pytest.approx([math.log(entropy - members)], abs=1e-13)
    assert scores(logits[:1], "mutual-information") == pytest.approx([0.0])


def exactly(logits, temperature):
    """The scores of members' logits `[M,C]` with hundreds of digits."""
    with localcontext(prec=800):
        members = [[(Decimal(float(z)) / Decimal(temperature)).exp() for z in own] for own in logits]
        members = [[x / sum(own) for x in own] for own in members]
        p = [sum(column) / len(members) for column in zip(*members, strict=True)]

        def entropy(shares):
            return -sum(x * x.ln() for x in shares)

        found = {
            "msp": 1 - max(p),
            "entropy": entropy(p),
            "mutual-information": entropy(p) - sum(map(entropy, members)) / len(members),
        }
        return {name: float(value.ln()) for name, value in found.items()}


@pytest.mark.parametrize(("dtype", "close"), [(np.float64, 1e-12), (np.float32, 1e-3)])
def test_no_score_saturates_where_every_msp_is_exactly_1(dtype, close):
    logits, temperature = np.array([[[9, 8, 1], [7, 3, 2], [14, 1, 2]], [[10, 8.5, 1], [7, 5, 1], [13, 1, 0]]]), 2**-6
    scaled = torch.from_numpy(logits.astype(dtype)) / temperature
    assert (scaled.softmax(-1).amax(-1) == 1).all()
    answers = Outputs(torch.from_numpy(logits.astype(dtype)), temperature)
    each = [exactly(logits[:, sample], temperature) for sample in range(3)]
    for name in each[0]:
        expected = [one[name] for one in each]
        assert find_ood_score(name).score({}, answers).tolist() == pytest.approx(expected, rel=close)
        assert len({*expected}) == 3


def test_energy_has_the_temperature_of_the_free_energy():
    logits = np.array([[[2.0, 0.0]]])
    assert scores(logits, "energy", 2.0) == pytest.approx([-2 * math.log(math.e + 1)], abs=1e-15)
    assert scores(logits, "max-logit", 2.0) == pytest.approx([-2.0], abs=1e-15)


def test_another_name_is_refused():
    with pytest.raises(OptionError, match="expected layers, msp"):
        find_ood_score("odin")
