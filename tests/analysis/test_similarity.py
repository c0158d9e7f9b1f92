from math import log, sqrt

import numpy as np
import torch
from torch import Tensor

from hydractl.analysis.similarity import similarity, weights_cosine
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads
from hydractl.training.ensembles import Ensemble, LoraEnsemble, spread
from tests.references import with_tensors
from tests.training.conftest import RECIPE


def with_bias(checkpoint: Checkpoint, more: Tensor) -> Checkpoint:
    return with_tensors(checkpoint, {"classifier.bias": checkpoint.tensors["classifier.bias"].load() + more})


def test_answers_by_hand(dense: Checkpoint) -> None:
    pair = fuse([dense, with_bias(dense, torch.ones(5))])
    # Member 0 says 3 to 1 for the first class both times; member 1 says 1 to 3 to the first sample, then the same as 0.
    logits = torch.tensor([[[log(3), 0.0], [log(3), 0.0]], [[0.0, log(3)], [log(3), 0.0]]])
    found = similarity(pair, logits)
    assert found.disagreement.tolist() == [[0, 0.5], [0.5, 0]]
    kl = (0.75 * log(3) + 0.25 * log(1 / 3)) / 2
    np.testing.assert_allclose(found.kl, [[0, kl], [kl, 0]], atol=1e-7)
    np.testing.assert_allclose(found.logits_cosine, [[1, 0], [0, 1]], atol=1e-7)  # -1 and 1
    sharper = similarity(pair, logits, temperature=0.5)  # 9 to 1
    np.testing.assert_allclose(sharper.kl[0, 1], 0.8 * log(9) / 2, atol=1e-6)
    assert found.weights_from == "member 0"
    assert np.isnan(found.weights_cosine).tolist() == [[True, True], [True, False]]


def test_changes_from_the_first_member_by_hand(dense: Checkpoint) -> None:
    one = with_bias(dense, torch.tensor([3.0, 4.0, 0, 0, 0]))
    other = with_bias(dense, torch.tensor([0, 2.0, 0, 0, 0]))
    found = weights_cosine(fuse([dense, one, other]))
    np.testing.assert_allclose(found[1:, 1:], [[1, 0.8], [0.8, 1]], atol=1e-12)
    assert np.isnan(found[0]).all() and np.isnan(found[:, 0]).all()
    # A head that is gone has given up all its weights: those of another point elsewhere.
    pruned = [drop_heads(dense, [Head("vision", 0, head)]) for head in (0, 1)]
    apart = weights_cosine(fuse([dense, *pruned], ["all"]))
    np.testing.assert_allclose(apart[1, 2], 0, atol=1e-12)


def test_changes_of_a_shared_network_by_hand(dense: Checkpoint) -> None:
    made = spread(dense, Ensemble(LoraEnsemble(rank=1, alpha=5.0), 2), RECIPE, 0)
    factors = {
        name: torch.zeros(tensor.shape, dtype=torch.float64)
        for name, tensor in made.tensors.items()
        if name.endswith((".lora_a", ".lora_b"))
    }
    prefix = "vision.layers.0.attention.q"
    # B A of the members: ones in the first column of two rows, and in one of these rows.
    factors[f"{prefix}.lora_a"][:, 0, 0] = 1
    factors[f"{prefix}.lora_b"][0, :2, 0] = 1
    factors[f"{prefix}.lora_b"][1, 0, 0] = 7
    found = weights_cosine(with_tensors(made, factors))
    np.testing.assert_allclose(found, [[1, 1 / sqrt(2)], [1 / sqrt(2), 1]], atol=1e-9)
