import numpy as np
import pytest
from PIL import Image

from hydractl.data.corruptions import CORRUPTIONS, GROUPS, Corruption, corrupted, parse_corruptions
from hydractl.data.samples import Samples
from hydractl.errors import OptionError

KINDS = {kind.name: kind for kind in CORRUPTIONS}
EVERY_KIND = pytest.mark.parametrize("kind", CORRUPTIONS, ids=lambda kind: kind.name)


def photo(mode: str = "RGB", size: tuple[int, int] = (32, 32)) -> Image.Image:
    generator = np.random.default_rng(0)
    small = Image.fromarray(generator.integers(60, 196, (6, 6, 3), dtype=np.uint8))
    return small.resize(size, Image.Resampling.BICUBIC).convert(mode)


def samples(*images: Image.Image) -> Samples:
    return Samples("photos", "image", list(images), labels=np.zeros(len(images), dtype=np.int64))


@EVERY_KIND
@pytest.mark.parametrize(("mode", "size"), [("L", (32, 24)), ("RGB", (66, 80)), ("RGBA", (3, 2))])
def test_size_labels_and_slices_stay(kind: Corruption, mode: str, size: tuple[int, int]) -> None:
    worse = corrupted(samples(photo(mode, size), photo(mode, size)), kind, 2)
    assert len(worse) == 2
    assert (worse.inputs[0].size, worse.inputs[0].mode) == (size, "L" if mode == "L" else "RGB")
    for one, other in zip(worse.inputs[:2], (worse.inputs[0], worse.inputs[1]), strict=True):
        assert one.tobytes() == other.tobytes()


@EVERY_KIND
def test_what_is_drawn_is_of_the_seed_and_the_image(kind: Corruption) -> None:
    other = photo().transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    first, again = (corrupted(samples(photo(), other), kind, 3).inputs for _ in range(2))
    assert [image.tobytes() for image in first] == [image.tobytes() for image in again]
    # Wherever among however many others: a limit or a process of its own changes nothing.
    assert corrupted(samples(other), kind, 3).inputs[0].tobytes() == first[1].tobytes()
    drawn = corrupted(samples(photo()), kind, 3, seed=1).inputs[0].tobytes() != first[0].tobytes()
    certain = {"defocus_blur", "zoom_blur", "brightness", "contrast"}
    assert drawn == (kind.name not in certain | {"pixelate", "jpeg_compression"})


def test_kinds_groups_and_severities_by_name() -> None:
    def asked(text: str) -> list[tuple[str, int]]:
        return [(kind.name, severity) for kind, severity in parse_corruptions(text)]

    assert asked("contrast, fog:2-3") == [("contrast", 2), ("contrast", 3), ("fog", 2), ("fog", 3)]
    assert asked("frost") == [("frost", severity) for severity in range(1, 6)]
    assert [name for name, _ in asked("noise,fog:4")][1:] == ["shot_noise", "impulse_noise", "fog"]
    assert len(asked("all")) == 15 * 5
    assert asked(",".join(GROUPS)) == asked("all")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("blizzard", "blizzard: is not a corruption: choose from all, noise, blur"),
        ("contrast:6", "severities from 1 to 5"),
        ("contrast:0-2", "severities from 1 to 5"),
        ("", "expected kinds"),
        ("contrast:5-2", "write 2-5"),
    ],
)
def test_what_cannot_be_asked_for(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=f"`corrupt`.*{message}"):
        parse_corruptions(text)


def test_what_cannot_be_corrupted() -> None:
    with pytest.raises(OptionError, match="`shift_data`"):
        corrupted(Samples("t", "text", ["a"]), KINDS["pixelate"], 1)
