from pathlib import Path

import pytest
from PIL import Image

from hydractl.data.image_sizes import size_notes
from hydractl.data.open import open_samples


def images(*sizes: int) -> list[Image.Image]:
    return [Image.new("RGB", (size, 8)) for size in sizes]


@pytest.mark.parametrize(("sizes", "told"), [((96, 80, 64), True), ((8, 9, 8), True), ((32, 32, 40), False)])
def test_a_set_that_its_size_tells_apart_is_named(sizes: tuple[int, ...], told: bool, tmp_path: Path) -> None:
    inside = open_samples({"inside": images(*([32] * 20), 31, 33)}, "image")
    outside = open_samples({"outside": images(*sizes)}, "image")
    assert [note.startswith("outside: ") for note in size_notes(inside, [outside])] == ([True] if told else [])
    texts = open_samples({"texts": ["a", "b"]}, "text")
    assert not list(size_notes(texts, [texts]))
