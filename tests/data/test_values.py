"""Values of Python become the same samples as the files that hold them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset

from hydractl.data.hashes import image_hash
from hydractl.data.labels import match_labels
from hydractl.data.open import SampleStream, open_samples, open_stream
from hydractl.data.reading import Reading
from hydractl.data.samples import Samples
from hydractl.errors import DataError
from tests.data.conftest import image_folder, image_table, noise, picture

CLASSES = ["cat", "dog"]


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
    assert samples.label_names is not None
    names = [samples.label_names[label] for label in samples.labels]
    return dict(zip(samples.content_hashes().tolist(), names, strict=True))


@pytest.mark.parametrize(
    "values",
    [
        image_table(4),
        labelled(),
        tuple(labelled()),
        [[noise(at, 3, 4, 3), CLASSES[at % 2]] for at in range(4)],
        Torch(labelled()),
        Torch(labelled(lambda at: at % 2), CLASSES),
        Torch(labelled(lambda at: torch.tensor(at % 2)), CLASSES),
    ],
    ids=["Dataset", "list", "tuple", "arrays", "torch", "classes", "tensors"],
)
def test_images_with_labels_are_the_samples_of_a_folder(values: Any, tmp_path: Path) -> None:
    folder = image_folder(tmp_path, ["cat/0.png", "dog/1.png", "cat/2.png", "dog/3.png"])
    samples = open_samples(values, "image", name="mine")
    assert samples.name == "mine"
    assert samples.label_names == tuple(CLASSES)
    assert classes_by_hash(samples) == classes_by_hash(open_samples(folder, "image"))
    assert isinstance(samples.inputs[-1], Image.Image)
    assert image_hash(samples.inputs[1:3][0]) == image_hash(picture(1))
    assert match_labels(samples, ["dog", "cat"]).labels.tolist() == [1, 0, 1, 0]


def test_texts_pairs_of_texts_and_their_labels() -> None:
    assert open_samples({"reviews": ["good", "bad"]}, "text").inputs == ["good", "bad"]
    samples = open_samples([("good", 1), ("bad", None)], "text")
    assert (samples.inputs, samples.labels.tolist(), samples.label_names) == (["good", "bad"], [1, -1], None)
    samples = open_samples([(("a", "b"), "yes"), (["c", "d"], "no")], "text")
    assert (samples.inputs, samples.labels.tolist(), samples.label_names) == (
        [("a", "b"), ("c", "d")],
        [1, 0],
        ("no", "yes"),
    )
    assert open_samples([(("a", "b"), None)], "text").label_problem == "holds no labels"


def test_inputs_alone_and_odd_labels_will_do_for_ood_data() -> None:
    alone = open_samples([picture(0), noise(1, 3, 4, 3), noise(2, 3, 4)], "image")
    assert alone.labels is None
    assert alone.label_problem == "holds inputs alone, no (input, label) pairs"
    assert [image.mode for image in alone.inputs] == ["RGB", "RGB", "L"]
    odd = open_samples([("a", 0.5), ("b", 1)], "text")
    assert odd.labels is None
    assert odd.label_problem == "its labels are float, int, not whole numbers or class names"
    with pytest.raises(DataError, match="data: its labels are float, int"):
        match_labels(odd, ["a", "b"])


def test_an_array_of_images_is_a_list_of_them() -> None:
    assert len(open_samples(noise(0, 5, 3, 4, 3), "image").inputs) == 5


def test_a_limit_is_spread_evenly_and_notes_a_lack_of_classes() -> None:
    rows = [(letter, at // 3) for at, letter in enumerate("abcdef")]
    assert open_samples(rows, "text", reading=Reading(limit=3)).inputs == ["a", "c", "e"]
    assert open_samples(rows, "text", reading=Reading(limit=2)).notes == ()
    assert open_samples(rows, "text", reading=Reading(limit=1)).notes == (
        "data: the 1 samples taken hold 1 of 2 classes",
    )
    lazy = Torch(rows)
    assert open_samples(lazy, "text", reading=Reading(limit=2)).inputs == ["a", "d"]
    assert lazy.read == 1 + 2 * 2  # the first to know its form, then inputs and labels


def test_images_stay_where_they_are_until_they_are_asked_for() -> None:
    lazy = Torch([picture(at) for at in range(4)])
    samples = open_samples(lazy, "image")
    assert lazy.read == 1
    samples.inputs[2:4]
    assert lazy.read == 3


class Broken(Torch):
    def __getitem__(self, index: int) -> Any:
        if index == 1:
            raise OSError("disk gone\nfor good")
        return super().__getitem__(index)


def test_bad_samples_fail_by_name_or_are_left_out() -> None:
    with pytest.raises(DataError, match="^data: sample 1: cannot be read: disk gone$"):
        open_samples(Broken(labelled()), "image")
    kept = open_samples(Broken(labelled()), "image", skip_bad=True)
    assert kept.skipped == ("data: sample 1: cannot be read: disk gone",)
    assert kept.labels.tolist() == [0, 0, 1]
    assert kept.content_hashes().tolist() == [image_hash(picture(at)) for at in (0, 2, 3)]
    texts = {"mine": ["a", " ", "c"]}
    with pytest.raises(DataError, match="mine: sample 1: empty text: remove it"):
        open_samples(texts, "text")
    assert open_samples(texts, "text", skip_bad=True).inputs == ["a", "c"]
    with pytest.raises(DataError, match="not one of 1 samples can be read: mine: sample 0: empty text"):
        open_samples({"mine": [" "]}, "text", skip_bad=True)


@pytest.mark.parametrize(
    ("values", "modality", "message"),
    [
        ({"x": []}, "image", "x: holds no samples"),
        ({"x": ["a.png"]}, "image", r"x: sample 0 is str: give images of Pillow or uint8 arrays \[height,width,3\]"),
        ([torch.zeros(3, 8, 8)], "image", r"sample 0 is Tensor of torch.float32 \[3, 8, 8\]: give images"),
        ([np.zeros((8, 8, 3))], "image", r"sample 0 is ndarray of float64 \[8, 8, 3\]"),
        ([np.zeros((8, 8, 2), dtype=np.uint8)], "image", r"sample 0 is ndarray of uint8 \[8, 8, 2\]"),
        ([("a", 0), "b"], "text", r"sample 1 is no \(input, label\) pair, as the first one is"),
        ([1, 2], "text", "sample 0 is int: give texts or pairs of texts"),
        ([(1, 2)], "text", "sample 0 is int"),
        ([("a", "b", "c")], "text", "sample 0 is tuple"),
        ([{"text": "a", "label": 0}], "text", "sample 0 is dict"),
        (iter("ab"), "text", "str_ascii_iterator has no length|str_iterator has no length"),
        ({1, 2}, "text", "sample 0: cannot be read: 'set' object is not subscriptable"),
        (datasets.Dataset.from_dict({"text": []}), "text", "data: holds no samples"),
        (datasets.Dataset.from_dict({"a": ["x"]}).to_iterable_dataset(), "text", "pass `streaming`"),
    ],
)
def test_refuses_what_is_no_data(values: Any, modality: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        samples = open_samples(values, modality)
        list(samples.inputs)
    assert "\n" not in str(caught.value)


def test_torch_data_without_a_length_is_refused() -> None:
    class Endless(IterableDataset):
        def __iter__(self) -> Any:
            yield "a"

    with pytest.raises(DataError, match="Endless has no length"):
        open_samples(Endless(), "text")


def test_numbers_beyond_the_class_names_are_refused() -> None:
    samples = open_samples(Torch([("a", 0), ("b", 2)], CLASSES), "text")
    with pytest.raises(DataError, match=r"a label is 2, its classes are \[cat, dog\]"):
        match_labels(samples, CLASSES)


def test_columns_of_a_dataset() -> None:
    table = datasets.Dataset.from_dict({"a": ["x", "y"], "b": ["z", "w"], "l": [1, 0]})
    samples = open_samples(table, "text", Reading(text_column="b", label_column="l"))
    assert (samples.inputs, samples.labels.tolist()) == (["z", "w"], [1, 0])


def test_a_dataset_can_be_streamed_and_what_is_at_hand_needs_none() -> None:
    table = datasets.Dataset.from_dict({"text": list("abcdef"), "label": [0] * 6})
    for data, length in ((table, 4), (table.to_iterable_dataset(), None)):
        stream = open_stream(data, "text", reading=Reading(limit=4))
        assert isinstance(stream, SampleStream)
        assert [block.inputs for block in stream.blocks(3)] == [["a", "b", "c"], ["d"]]
        assert (stream.length, stream.name) == (length, "data")
        assert "takes the first 4 samples" in stream.notes[0]
    samples = open_stream({"mine": list("abcd")}, "text", reading=Reading(limit=2))
    assert isinstance(samples, Samples)
    assert samples.inputs == ["a", "c"]
