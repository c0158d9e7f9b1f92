import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.image_transforms import convert_to_rgb
from transformers.image_utils import load_image

from hydractl.data.images import EncodedImages, is_one_image, read_image, with_channels
from hydractl.errors import DataError
from tests.data.conftest import image_table, noise, over_white, picture

RAMP = (np.arange(12, dtype=np.uint16) * 5000).reshape(3, 4)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> dict[str, object]:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return {"bytes": buffer.getvalue(), "path": "a.file"}


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF", "MPO"])
def test_a_photo_shows_the_same_whatever_it_came_as(kind: str, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    content, path = encoded(picture(0, 8, 16, 3), kind, exif=exif)["bytes"], tmp_path / "a.file"
    path.write_bytes(content)
    theirs = np.asarray(load_image(str(path)))
    assert theirs.shape == (16, 8, 3)
    pixels = [theirs, theirs.transpose(2, 0, 1), torch.from_numpy(theirs.copy()), theirs.astype(np.int64)]
    for one in (content, path, str(path), {"bytes": None, "path": str(path)}, Image.open(path), *pixels):
        np.testing.assert_array_equal(np.asarray(with_channels(one, 3)), theirs)
        np.testing.assert_array_equal(np.asarray(with_channels(read_image(one), 3)), theirs)
    assert [is_one_image(one) for one in pixels] == [True] * 4  # and not three grey images


def test_a_sideways_tiff_of_one_channel_is_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(0, 8, 16).save(tmp_path / "a.tif", exif=exif)
    for one in (tmp_path / "a.tif", (tmp_path / "a.tif").read_bytes()):
        np.testing.assert_array_equal(np.asarray(read_image(one)), np.rot90(noise(0, 8, 16), 3))


@pytest.mark.parametrize("kind", [np.uint16, np.int32])
def test_eight_bits_in_a_wider_type_are_as_they_are(kind: type) -> None:
    pixels = noise(0, 3, 4).astype(kind)
    for one in (pixels, Image.fromarray(pixels), encoded(Image.fromarray(pixels), "TIFF")):
        np.testing.assert_array_equal(np.asarray(with_channels(one, 1)), pixels)
        colours = convert_to_rgb(Image.fromarray(noise(0, 3, 4)), True)
        np.testing.assert_array_equal(np.asarray(with_channels(one, 3)), colours)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_keep_their_upper_byte(kind: str) -> None:
    decoded = read_image(encoded(Image.fromarray(RAMP), kind), "sample 0")
    np.testing.assert_array_equal(np.asarray(decoded), RAMP // 256)
    clear = RAMP == 40_000
    cut_out = encoded(Image.fromarray(RAMP), transparency=40_000)
    np.testing.assert_array_equal(np.asarray(with_channels(cut_out, 1)), np.where(clear, 255, RAMP // 256))
    assert np.asarray(with_channels(Image.fromarray(RAMP), 3))[2, 3].tolist() == [55_000 // 256] * 3


def test_pixels_without_a_range_are_refused_by_sample() -> None:
    for pixels in (RAMP.astype(np.float32), RAMP.astype(np.int32) * 7):
        with pytest.raises(DataError, match=r"sample 3 \(a.file\): "):
            read_image(encoded(Image.fromarray(pixels), "TIFF"), "sample 3")


@over_white
@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV"])
def test_rgb_is_that_of_transformers(mode: str) -> None:
    image = picture(1, 5, 6, 4).convert("RGBA").convert(mode)
    np.testing.assert_array_equal(np.asarray(with_channels(image, 3)), convert_to_rgb(image, return_numpy=True))


@over_white
def test_a_transparent_palette_is_laid_over_white() -> None:
    image = read_image(encoded(picture(2).convert("P"), transparency=0), "sample 0")
    assert image.mode == "P"
    np.testing.assert_array_equal(np.asarray(with_channels(image, 3)), convert_to_rgb(image, return_numpy=True))


def test_one_channel() -> None:
    grey = picture(3, 3, 4)
    assert with_channels(grey, 1) is grey
    assert np.asarray(with_channels(picture(4), 1)).shape == (3, 4)
    clear = Image.new("RGBA", (1, 1), (0, 0, 0, 0))
    assert with_channels(clear, 1).getpixel((0, 0)) == 255


def test_the_first_frame_of_several() -> None:
    frames = [picture(5, 3, 4).convert("P"), picture(6, 3, 4).convert("P")]
    decoded = read_image(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]), "sample 0")
    np.testing.assert_array_equal(np.asarray(with_channels(decoded, 1)), noise(5, 3, 4))


def test_truncated_and_unreadable_images_are_named() -> None:
    whole = encoded(picture(0, 40, 40, 3), "JPEG")["bytes"]
    for content, reason in (
        (whole[: len(whole) // 2], "truncated"),
        (b"", "not one of PNG, JPEG"),
        (b"GIF89a", "not one of"),
    ):
        with pytest.raises(DataError, match=rf"^data: sample 7 \(x.jpg\): unreadable image: .*{reason}") as caught:
            read_image({"bytes": content, "path": "x.jpg"}, "data: sample 7")
        assert "\n" not in str(caught.value)


def test_a_column_is_a_sequence() -> None:
    images = EncodedImages(image_table(4), "image", "data")
    assert len(images) == 4
    for at in (0, 3, -1, -4):
        np.testing.assert_array_equal(np.asarray(images[at]), noise(at % 4, 3, 4, 3))
    assert [np.asarray(image).tolist() for image in images[1:3]] == [noise(at, 3, 4, 3).tolist() for at in (1, 2)]
    assert len(list(images)) == 4
    with pytest.raises(IndexError):
        images[4]
