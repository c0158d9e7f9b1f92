from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image

from hydractl.data.hashes import image_hash, text_hash
from hydractl.data.open import open_samples
from hydractl.data.reading import Reading
from hydractl.data.samples import Samples
from hydractl.errors import DataError
from tests.data.conftest import image_folder, image_table, picture


def opened(place: object, modality: str = "text", **options: object) -> Samples:
    return open_samples(str(place), modality, **options)


def texts(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def test_texts_with_labels(tmp_path: Path) -> None:
    samples = opened(texts(tmp_path / "a.csv", "good,yes", "NA,no", '"one, two",yes'))
    assert samples.name == "a"
    assert samples.inputs == ["good", "NA", "one, two"]
    assert samples.labels is not None
    assert samples.labels.tolist() == [1, 0, 1]
    assert samples.label_names == ("no", "yes")
    assert str(samples.chosen_columns) == "input text; label label"


def test_pairs_of_texts(tmp_path: Path) -> None:
    datasets.Dataset.from_list([{"b": "x", "a": "y"}, {"b": "z", "a": "w"}]).to_parquet(tmp_path / "a.parquet")
    assert opened(tmp_path / "a.parquet", reading=Reading(text_column="a,b")).inputs == [("y", "x"), ("w", "z")]


def test_a_column_of_numbers_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="column label holds int64, not text"):
        opened(texts(tmp_path / "a.csv", "a,1"), reading=Reading(text_column="label"))


def test_a_limit_takes_samples_from_all_over_the_data(tmp_path: Path) -> None:
    rows = texts(tmp_path / "a.csv", "a,0", "b,0", "c,0", "d,1", "e,1", "f,1")
    assert opened(rows, reading=Reading(limit=3)).inputs == ["a", "c", "e"]
    assert opened(rows, reading=Reading(limit=2)).notes == ()
    assert opened(rows, reading=Reading(limit=1)).notes == (
        f"{tmp_path / 'a.csv'}: the 1 samples taken hold 1 of 2 classes",
    )
    assert opened(tmp_path / "a.csv", reading=Reading(limit=9)).notes == ()


def declared(labels: list[int], classes: int) -> datasets.Dataset:
    """Texts in order, labelled in so many classes, whether there are samples of each or not."""
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(classes)})
    rows = {"text": [f"text {place}" for place in range(len(labels))], "label": labels}
    return datasets.Dataset.from_dict(rows, features=features)


@pytest.mark.parametrize(
    ("labels", "classes", "noted"),
    [
        ([0] * 30, 10, True),
        ([at // 10 for at in range(90)], 10, True),  # of 90 drawn at random 10 classes are all but sure
        ([at % 10 for at in range(90)], 10, False),
        ([0, 1, 2], 10, False),  # three samples can be of three classes at most
        ([0, 0], 2, False),
        ([-1] * 30, 10, False),  # whose labels are kept back
        ([0] * 30, 1, False),
        ([at * 997 % 1000 for at in range(500)], 1000, False),
    ],
)
def test_fewer_classes_than_chance_would_give(labels: list[int], classes: int, noted: bool) -> None:
    notes = open_samples({"texts": declared(labels, classes)}, "text").notes
    have = len(set(labels))
    assert notes == ((f"texts: the {len(labels)} samples taken hold {have} of {classes} classes",) if noted else ())


def test_no_samples(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a.csv: .*no data"):
        opened(texts(tmp_path / "a.csv"))
    with pytest.raises(DataError, match="holds no samples"):
        opened(f"{texts(tmp_path / 'b.csv', 'a,0')}:[1:]")


def test_empty_texts_are_counted_or_left_out(tmp_path: Path) -> None:
    path = texts(tmp_path / "a.csv", "a,0", ",1", '"  ",1', "d,1")
    with pytest.raises(DataError, match="2 of 4 texts are empty, the first is sample 1: remove them"):
        opened(path)
    samples = opened(path, skip_bad=True)
    assert samples.inputs == ["a", "d"]
    assert samples.labels is not None
    assert samples.labels.tolist() == [0, 1]
    assert len(samples.skipped) == 2
    assert samples.content_hashes().tolist() == [text_hash("a"), text_hash("d")]


def test_a_pair_with_half_missing_is_empty(tmp_path: Path) -> None:
    rows = [{"premise": "x", "hypothesis": None}, {"premise": "z", "hypothesis": "w"}]
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="1 of 2 texts are empty"):
        opened(tmp_path / "a.parquet")


def test_labels_of_ood_data_may_be_missing_or_doubtful(tmp_path: Path) -> None:
    datasets.Dataset.from_list([{"text": "a", "label": 0.5}]).to_parquet(tmp_path / "a.parquet")
    samples = opened(tmp_path / "a.parquet")
    assert samples.labels is None
    assert samples.label_problem == "column label holds float64, not classes"


def test_unreadable_images_fail_or_are_left_out(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "d", ["cat/0.png", "cat/1.png", "dog/2.png"])
    (folder / "cat" / "1.png").write_bytes(b"no image")
    samples = opened(folder, "image")
    with pytest.raises(DataError, match=r"d: sample 1 \(.*1.png\): unreadable image"):
        samples.content_hashes()
    kept = opened(folder, "image", skip_bad=True)
    assert len(kept) == 2
    assert kept.labels is not None
    assert kept.labels.tolist() == [0, 1]
    assert kept.content_hashes().tolist() == [image_hash(picture(0)), image_hash(picture(2))]
    assert len(kept.skipped) == 1
    assert "1.png" in kept.skipped[0]
    with pytest.raises(DataError, match="not one of 1 samples can be read"):
        opened(f"{folder}:[1:2]", "image", skip_bad=True)


def test_names_of_image_files_beside_a_table(tmp_path: Path) -> None:
    image_folder(tmp_path, ["sub/0.png", "1.png"])
    (tmp_path / "a.csv").write_text("image,label\nsub/0.png,x\n1.png,y\n")
    samples = opened(tmp_path / "a.csv", "image")
    assert [image.tobytes() for image in samples.inputs] == [picture(0).tobytes(), picture(1).tobytes()]


def images_in_parquet(root: Path) -> Path:
    image_table(4).to_parquet(root / "a.parquet")
    return root / "a.parquet"


def images_in_folder(root: Path) -> Path:
    return image_folder(root / "folder", [f"{at}.png" for at in range(4)])


def images_saved(root: Path) -> Path:
    image_table(4).save_to_disk(root / "saved")
    return root / "saved"


def images_as_bytes(root: Path) -> Path:
    rows = image_table(4).cast_column("image", datasets.Image(decode=False)).to_list()
    datasets.Dataset.from_list([{"image": row["image"]["bytes"]} for row in rows]).to_parquet(root / "b.parquet")
    return root / "b.parquet"


@pytest.mark.parametrize("write", [images_in_parquet, images_in_folder, images_saved, images_as_bytes])
def test_hashes_are_of_the_pixels_in_any_format(write: Callable[[Path], Path], tmp_path: Path) -> None:
    hashes = opened(write(tmp_path), "image").content_hashes()
    assert hashes.dtype == np.uint64
    assert hashes.tolist() == [image_hash(picture(at)) for at in range(4)]


@pytest.mark.parametrize("place", ["..", "beside"])
def test_an_image_folder_by_a_relative_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    folder = images_in_folder(tmp_path)
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


def test_identity_is_of_samples_order_and_labels(tmp_path: Path) -> None:
    first = opened(texts(tmp_path / "a.csv", "a,0", "b,1"))
    same = opened(texts(tmp_path / "b.csv", '"a ",0', "b,1"))
    assert first.identity() == same.identity()
    others = [texts(tmp_path / "c.csv", "b,1", "a,0"), texts(tmp_path / "d.csv", "a,1", "b,1")]
    identities = {opened(path).identity() for path in others} | {first.identity()}
    assert len(identities) == 3


def test_hashes_of_samples_made_by_hand_stay_with_them() -> None:
    samples = Samples("mine", "image", [picture(0), picture(1)])
    assert samples.content_hashes().tolist() == [image_hash(picture(0)), image_hash(picture(1))]
    assert dataclasses.replace(samples, name="yours").hashes is samples.hashes


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("source", "modality", "count", "names"),
    [
        ("cifar10:validation", "image", 5000, 10),
        ("ood_textures", "image", 1200, 10),
        ("ood_mnist", "image", 3000, 10),
        ("ood_fashion", "image", 900, None),
        ("ood_val_imagenet", "image", 1000, None),
        ("sst2:validation", "text", 872, 2),
        ("ood_trec.csv", "text", 500, None),
        ("ood_captions.jsonl", "text", 1000, None),
        ("ood_val_agnews", "text", 2000, None),
    ],
)
def test_real_data(source: str, modality: str, count: int, names: int | None, data_folder: Path) -> None:
    samples = opened(data_folder / source, modality)
    assert len(samples) == count
    assert (samples.label_names and len(samples.label_names)) == names
    assert len(set(samples.content_hashes().tolist())) >= 0.99 * count
