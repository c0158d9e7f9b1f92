"""Embeddings by a product equal those by torch's convolution."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from hydractl.model.embeddings import patches_by_product


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("size", [(8, 12), (9, 14)])
def test_patches_by_a_product_are_those_of_a_convolution(size: tuple[int, int], biased: bool) -> None:
    pixels, weights = torch.randn(2, 3, *size, dtype=torch.float64), torch.randn(2, 5, 3, 4, 6, dtype=torch.float64)
    biases = torch.randn(2, 5, dtype=torch.float64) if biased else None
    each = [
        F.conv2d(pixels, own, None if biases is None else biases[member], stride=(4, 6)).flatten(2).mT
        for member, own in enumerate(weights)
    ]
    assert_close(patches_by_product(pixels, weights, biases), torch.stack(each), rtol=0, atol=1e-12)
    shared = patches_by_product(pixels, weights[0], None if biases is None else biases[0])
    assert_close(shared, each[0][None], rtol=0, atol=1e-12)
