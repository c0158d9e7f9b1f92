"""Probes are inputs that the network reads as it reads the samples that they were made from."""

import numpy as np
import pytest
from PIL import Image

from hydractl.evaluation.probes import IMAGE_PROBES, Probe


@pytest.mark.parametrize("probe", IMAGE_PROBES, ids=lambda probe: probe.name)
@pytest.mark.parametrize("size", [(8, 8), (10, 7), (32, 31)])
def test_a_probe_of_an_image_has_its_size(probe: Probe, size: tuple[int, int]) -> None:
    draw = np.random.default_rng(0)
    image, other = (Image.fromarray(draw.integers(0, 256, (*size[::-1], 3), dtype=np.uint8)) for _ in range(2))
    changed = probe.change(image, other, draw)
    assert (changed.size, changed.mode) == (size, "RGB")
    assert np.any(np.asarray(changed) != np.asarray(image))
