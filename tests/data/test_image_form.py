from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from hydractl.data.image_form import form_notes
from hydractl.data.open import open_samples
from hydractl.data.samples import Samples


def images(*sizes: int) -> Samples:
    return open_samples({"inside": [Image.new("RGB", (size, 8)) for size in sizes]}, "image")


@pytest.mark.parametrize(("sizes", "told"), [((96, 80, 64), True), ((8, 9, 8), True), ((32, 32, 40), False)])
def test_a_set_that_its_size_tells_apart_is_named(sizes: tuple[int, ...], told: bool) -> None:
    notes = list(form_notes(images(*([32] * 20), 31, 33), [images(*sizes)]))
    assert [" the size of its images alone" in note for note in notes] == ([True] if told else [])
    texts = open_samples({"texts": ["a", "b"]}, "text")
    assert not list(form_notes(texts, [texts]))


@pytest.mark.parametrize(("quality", "told"), [(30, True), (75, False), (None, True)])
def test_a_set_that_its_compression_tells_apart_is_named(quality: int | None, told: bool) -> None:
    def encoded(quality: int | None) -> Samples:
        out = BytesIO()
        pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        image = Image.fromarray(pixels)
        image.save(out, "PNG") if quality is None else image.save(out, "JPEG", quality=quality)
        return open_samples({"images": [out.getvalue()] * 10}, "image")

    notes = list(form_notes(encoded(75), [encoded(quality)]))
    assert ["the compression of its images alone" in note for note in notes] == ([True] if told else [])
