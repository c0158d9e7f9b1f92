from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset

from hydractl.data.hashes import image_hash, text_hash
from hydractl.data.labels import match_labels
from hydractl.data.open import open_samples
from hydractl.data.reading import Reading
from hydractl.data.samples import Samples
from hydractl.errors import DataError
from tests.data.conftest import image_folder, image_table, noise, picture

CLASSES = ["cat", "dog"]


def opened(place: object, modality: str = "text", **options: object) -> Samples:
    return open_samples(str(place), modality, **options)


def texts(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def test_pairs_of_texts(tmp_path: Path) -> None:
    rows = [{"b": "x", "a": "y"}, {"b": None, "a": "w"}]
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "a.parquet")
    reading = Reading(text_column="a,b")
    assert opened(f"{tmp_path / 'a.parquet'}:[:1]", reading=reading).inputs == [("y", "x")]
    with pytest.raises(DataError, match="1 of 2 texts are empty"):
        opened(tmp_path / "a.parquet", reading=reading)


def test_what_is_no_text_or_no_class_is_named_by_its_column(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"words": [[1, 2]]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="column words holds List"):
        opened(tmp_path / "a.parquet", reading=Reading(text_column="words"))
    assert opened(texts(tmp_path / "a.csv", "a,0.5")).label_problem == "column label holds float64, not classes"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([12, 2024], ["12", "2024"]),
        ([1.5, -2.0], ["1.5", "-2.0"]),
        ([True, False], ["True", "False"]),
        ([date(2024, 1, 2), date(2024, 2, 3)], ["2024-01-02", "2024-02-03"]),
        ([datetime(2024, 1, 2, 3, 4, 5), datetime(1999, 1, 1)], ["2024-01-02 03:04:05", "1999-01-01 00:00:00"]),
    ],
)
def test_numbers_and_dates_are_texts_in_a_column_that_is_called_so(
    tmp_path: Path, values: list[Any], expected: list[str]
) -> None:
    datasets.Dataset.from_dict({"text": values, "title": ["a", "b"]}).to_parquet(tmp_path / "a.parquet")
    assert opened(tmp_path / "a.parquet").inputs == expected
    assert opened(f"{tmp_path}/a.parquet?text=title").inputs == ["a", "b"]
    datasets.Dataset.from_dict({"sentence1": values, "sentence2": ["a", "b"]}).to_parquet(tmp_path / "b.parquet")
    assert opened(tmp_path / "b.parquet").inputs == list(zip(expected, "ab", strict=True))
    datasets.Dataset.from_dict({"code": values, "title": ["a", "b"]}).to_parquet(tmp_path / "c.parquet")
    assert opened(tmp_path / "c.parquet").inputs == ["a", "b"]
    assert opened(tmp_path / "c.parquet", reading=Reading(text_column="code")).inputs == expected


def test_a_limit_takes_samples_from_all_over_the_data(tmp_path: Path) -> None:
    pairs = [(letter, at // 3) for at, letter in enumerate("abcdef")]
    table = texts(tmp_path / "a.csv", *(f"{letter},{label}" for letter, label in pairs))
    for data in (str(table), pairs):
        assert open_samples(data, "text", Reading(limit=3)).inputs == ["a", "c", "e"]
        assert len(open_samples(data, "text", Reading(limit=9))) == 6


@pytest.mark.parametrize(
    ("labels", "classes", "noted"),
    [
        ([at // 10 for at in range(90)], 10, True),  # 90 random samples almost surely hold 10 classes
        ([at % 10 for at in range(90)], 10, False),
        ([0, 1, 2], 10, False),  # three samples are of three classes at most
        ([-1] * 30, 10, False),  # unlabelled
    ],
)
def test_fewer_classes_than_chance_would_give(labels: list[int], classes: int, noted: bool) -> None:
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(classes)})
    rows = {"text": [f"text {place}" for place in range(len(labels))], "label": labels}
    notes = open_samples({"texts": datasets.Dataset.from_dict(rows, features=features)}, "text").notes
    have = len(set(labels))
    assert notes == ((f"texts: the {len(labels)} samples taken hold {have} of {classes} classes",) if noted else ())


def test_empty_texts_are_counted_or_left_out(tmp_path: Path) -> None:
    path = texts(tmp_path / "a.csv", "a,0", ",1", '"  ",1', "d,1")
    with pytest.raises(DataError, match="2 of 4 .*is sample 1"):
        opened(path)
    samples = opened(path, skip_bad=True)
    assert (list(samples.inputs), samples.labels.tolist()) == (["a", "d"], [0, 1])
    assert "2 samples left out" in samples.notes[0]
    assert samples.content_hashes().tolist() == [text_hash("a"), text_hash("d")]


def test_unreadable_images_fail_or_are_left_out(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "d", ["cat/0.png", "cat/1.png", "dog/2.png"])
    (folder / "cat" / "1.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"sample 1 \(.*1.png\)"):
        opened(folder, "image").content_hashes()
    kept = opened(folder, "image", skip_bad=True)
    assert kept.labels.tolist() == [0, 1]
    assert kept.content_hashes().tolist() == [image_hash(picture(0)), image_hash(picture(2))]
    assert "1.png" in kept.notes[0]
    with pytest.raises(DataError, match="not one of 1 samples"):
        opened(f"{folder}:[1:2]", "image", skip_bad=True)


class Torch(Dataset):
    """As torchvision's data sets are."""

    def __init__(self, values: list[Any], classes: list[str] | None = None) -> None:
        self.values, self.read = values, 0
        if classes:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Any:
        self.read += 1
        return self.values[index]


def labelled(label: Callable[[int], Any] = lambda at: CLASSES[at % 2]) -> list[Any]:
    return [(picture(at), label(at)) for at in range(4)]


def classes_by_hash(samples: Samples) -> dict[int, str]:
    names = [samples.label_names[label] for label in samples.labels]
    return dict(zip(samples.content_hashes().tolist(), names, strict=True))


@pytest.mark.parametrize(
    "values",
    [
        image_table(4),
        labelled(),
        [[noise(at, 3, 4, 3), CLASSES[at % 2]] for at in range(4)],
        Torch(labelled(lambda at: torch.tensor(at % 2)), CLASSES),
    ],
    ids=["Dataset", "list", "arrays", "torch"],
)
def test_images_with_labels_are_the_samples_of_a_folder(values: Any, tmp_path: Path) -> None:
    folder = image_folder(tmp_path, ["cat/0.png", "dog/1.png", "cat/2.png", "dog/3.png"])
    samples = open_samples(values, "image", name="mine")
    assert (samples.name, samples.label_names) == ("mine", tuple(CLASSES))
    assert classes_by_hash(samples) == classes_by_hash(open_samples(folder, "image"))
    assert isinstance(samples.inputs[-1], Image.Image)
    assert image_hash(samples.inputs[1:3][0]) == image_hash(picture(1))
    assert match_labels(samples, ["dog", "cat"]).labels.tolist() == [1, 0, 1, 0]


def test_texts_pairs_of_texts_and_their_labels() -> None:
    assert open_samples({"reviews": ["good", "bad"]}, "text").inputs == ["good", "bad"]
    samples = open_samples([("good", 1), ("bad", None)], "text")
    assert (samples.inputs, samples.labels.tolist(), samples.label_names) == (["good", "bad"], [1, -1], None)
    assert open_samples([("good", np.bool_(True)), ("bad", False)], "text").label_names == ("False", "True")
    samples = open_samples([(("a", "b"), "yes"), (["c", "d"], "no")], "text")
    assert (samples.inputs, samples.labels.tolist()) == ([("a", "b"), ("c", "d")], [1, 0])
    assert open_samples([(("a", "b"), None)], "text").label_problem == "holds no labels"
    with pytest.raises(DataError, match="a pair or a text and its label"):  # where labels are not read
        open_samples([("a", "b")], "text", keep_bad=True)


def test_inputs_alone_and_odd_labels_will_do_for_ood_data() -> None:
    alone = open_samples([picture(0), noise(1, 3, 4, 3), noise(2, 3, 4)], "image")
    assert (alone.labels, alone.label_problem) == (None, "holds only inputs, not (input, label) pairs")
    assert [image.mode for image in alone.inputs] == ["RGB", "RGB", "L"]
    odd = open_samples([("a", 0.5), ("b", 1)], "text")
    assert odd.label_problem == "its labels are float, int, not whole numbers or class names"
    assert len(open_samples(noise(0, 5, 3, 4, 3), "image").inputs) == 5


def test_values_are_read_no_more_than_needed() -> None:
    pairs = Torch([(letter, at // 3) for at, letter in enumerate("abcdef")])
    assert open_samples(pairs, "text", Reading(limit=2)).inputs == ["a", "d"]
    assert pairs.read == 1 + 2 * 2  # the first to know its form, then inputs and labels
    images = Torch([picture(at) for at in range(4)])
    samples = open_samples(images, "image")
    assert images.read == 1
    assert len(list(samples.inputs[2:4])) == 2
    assert images.read == 3


class Broken(Torch):
    def __getitem__(self, index: int) -> Any:
        if index == 1:
            raise OSError("disk gone\nfor good")
        return super().__getitem__(index)


def test_bad_values_fail_by_name_or_are_left_out() -> None:
    with pytest.raises(DataError, match=": disk gone$"):
        open_samples(Broken(labelled()), "image")
    kept = open_samples(Broken(labelled()), "image", skip_bad=True)
    assert kept.notes == ("data: 1 samples left out: data: sample 1: cannot be read: disk gone",)
    assert kept.labels.tolist() == [0, 0, 1]
    with pytest.raises(DataError, match="mine: 1 of 3 texts"):
        open_samples({"mine": ["a", " ", "c"]}, "text")
    assert list(open_samples({"mine": ["a", " ", "c"]}, "text", skip_bad=True).inputs) == ["a", "c"]


@pytest.mark.parametrize(
    ("values", "modality", "message"),
    [
        ([], "text", "expected one data set, got 0|holds no samples"),
        ([1, 2], "image", "sample 0: int is not an image: give images of Pillow"),
        ([np.zeros((8, 8, 3))], "image", "sample 0: pixels of float64 have no agreed range"),
        ([np.zeros((8, 8, 2), np.uint8)], "image", r"sample 0: ndarray of shape \[8, 8, 2\] is not an image"),
        ([b"%!PS-Adobe-3.0 EPSF-3.0"], "image", "sample 0: unreadable image: not one of PNG"),
        ([("a", 0), "b"], "text", r"sample 1 is not an \(input, label\) pair"),
        ([("a", "b", "c")], "text", "sample 0 is tuple: give texts or pairs of texts"),
        ({1, 2}, "text", "sample 0: cannot be read: 'set' object is not subscriptable"),
        (datasets.Dataset.from_dict({"text": []}), "text", "data: holds no samples"),
        (datasets.Dataset.from_dict({"a": ["x"]}).to_iterable_dataset(), "text", "IterableDataset has no length"),
    ],
)
def test_refuses_what_is_no_data(values: Any, modality: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(open_samples(values, modality).inputs)
