import numpy as np
import torch

from hydractl.surgery.precision import rounded


def test_float64_goes_to_half_precision_in_one_rounding() -> None:
    drawn = torch.cat([torch.randn(2000, dtype=torch.float64) * scale for scale in (1, 1e-3, 1e-6, 1e3)])
    # NumPy rounds once; between two numbers of float16, just above and below the middle, is where twice would show.
    middles = 1 + (2 * torch.arange(512, dtype=torch.float64) + 1) * 2.0**-11
    for numbers in (drawn, middles, middles + 2.0**-40, middles - 2.0**-40, -middles - 2.0**-40):
        assert rounded(numbers, torch.float16).numpy().tolist() == numbers.numpy().astype(np.float16).tolist()


def test_ties_go_to_even_in_bfloat16() -> None:
    expected = [1.0, 1 + 2.0**-6, 1 + 2.0**-7, -1 - 2.0**-7, -0.0, float("inf")]
    numbers = torch.tensor(
        [1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-40, -1 - 2.0**-8 - 2.0**-40, -0.0, 1e39], dtype=torch.float64
    )
    assert rounded(numbers, torch.bfloat16).tolist() == expected
