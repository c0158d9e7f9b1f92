"""Probes are inputs that the network reads as it reads the samples that they were made from."""

import numpy as np
import pytest
from PIL import Image

from hydractl.data.samples import Samples
from hydractl.evaluation.probes import IMAGE_PROBES, Probe, probed


@pytest.mark.parametrize("probe", IMAGE_PROBES, ids=lambda probe: probe.name)
@pytest.mark.parametrize("size", [(8, 8), (10, 7), (32, 31), (1, 50), (300, 2)])
def test_a_probe_of_an_image_has_its_size(probe: Probe, size: tuple[int, int]) -> None:
    draw = np.random.default_rng(0)
    image, other = (Image.fromarray(draw.integers(0, 256, (*size[::-1], 3), dtype=np.uint8)) for _ in range(2))
    changed = probe.change(image, other, draw)
    assert (changed.size, changed.mode) == (size, "RGB")
    assert np.any(np.asarray(changed) != np.asarray(image))


def test_transparent_pixels_lie_over_white() -> None:
    samples = Samples("logos", "image", [Image.new("RGBA", (4, 4)), Image.new("L", (4, 4), 9)])
    colours = [
        probe.inputs[0].getpixel((0, 0)) for of, probe in probed(samples, 2, 0).items() if of.name == "plain colour"
    ]
    assert colours == [(255, 255, 255)]
    assert samples.inputs[0].mode == "RGBA"
