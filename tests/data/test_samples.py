import dataclasses
import os
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hydractl.data.hashes import image_hash, text_hash
from hydractl.data.open import open_samples
from hydractl.data.samples import Samples, form_notes, join
from tests.data.conftest import image_folder, picture
from tests.training.conftest import image_samples


@pytest.mark.parametrize("place", ["..", "beside"])
def test_an_image_folder_by_a_relative_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    folder = image_folder(tmp_path / "folder", [f"{at}.png" for at in range(4)])
    (tmp_path / "beside").mkdir()
    monkeypatch.chdir(tmp_path / place)
    relative = open_samples(os.path.relpath(folder), "image")
    assert relative.content_hashes().tolist() == [image_hash(picture(at)) for at in range(4)]


def test_grey_and_its_rgb_copy_are_one_sample_and_shape_counts() -> None:
    grey = picture(0, 3, 4)
    assert image_hash(grey) == image_hash(grey.convert("RGB"))
    assert image_hash(grey) != image_hash(Image.frombytes("L", (3, 4), grey.tobytes()))


def test_blanks_do_not_count_in_a_text_but_pairs_do() -> None:
    assert text_hash("one  two ") == text_hash("one two")
    assert len({text_hash(text) for text in ("one two", "onetwo", ("one", "two"), ("one two", ""), "One two")}) == 5


def test_identity_is_of_samples_order_and_labels() -> None:
    first = open_samples([("a", 0), ("b", 1)], "text")
    assert first.identity() == open_samples([("a ", 0), ("b", 1)], "text").identity()
    others = [open_samples(pairs, "text") for pairs in ([("b", 1), ("a", 0)], [("a", 1), ("b", 1)])]
    assert len({samples.identity() for samples in (first, *others)}) == 3


def test_hashes_of_samples_made_by_hand_stay_with_them() -> None:
    samples = Samples("mine", "image", [picture(0), picture(1)])
    assert samples.content_hashes().tolist() == [image_hash(picture(0)), image_hash(picture(1))]
    assert dataclasses.replace(samples, name="yours").hashes is samples.hashes


def test_joined_images_are_those_of_each_set_in_order() -> None:
    sets = [image_samples(3), image_samples(1, seed=1), image_samples(2, seed=2)]
    joined = join(sets)
    assert len(joined) == 6 and joined.labels is None
    expected = [np.asarray(image) for samples in sets for image in samples.inputs]
    assert all(np.array_equal(joined.inputs[i], image) for i, image in enumerate(expected))
    assert all(np.array_equal(one, image) for one, image in zip(joined.inputs[1:5], expected[1:5], strict=True))
    assert np.array_equal(joined.inputs[-1], expected[-1])
    assert joined.content_hashes().tolist() == [h for samples in sets for h in samples.content_hashes().tolist()]
    with pytest.raises(IndexError):
        joined.inputs[6]


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
