"""Shuffled epochs of samples and of streams: the same batches whoever loads them and wherever a run starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import datasets
import pytest
import torch

from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.data.batching import Batch
from hydractl.data.open import open_samples
from hydractl.data.preprocess import preprocessor_from_json
from hydractl.errors import DataError, OptionError
from hydractl.training.augment import Preparation, build_augmentation
from hydractl.training.batches import ShuffledSamples, ShuffledStream
from hydractl.training.conditions import Training
from hydractl.training.order import Division
from hydractl.training.request import Seeds, TrainingSources
from hydractl.training.trainset import open_training_data
from tests.training.conftest import RECIPE, Fit, image_samples, text_samples
from tests.training.test_order import AUGMENTED

COUNT = 10
TrainingBatches = ShuffledSamples | ShuffledStream


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of images that declares its classes and knows how long it is."""
    samples = image_samples(COUNT)
    rows = []
    for image in samples.inputs:
        encoded = BytesIO()
        image.save(encoded, "PNG")
        rows.append({"bytes": encoded.getvalue(), "path": None})
    assert samples.labels is not None and samples.label_names is not None
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=samples.label_names)})
    path = tmp_path_factory.mktemp("streams") / "images"
    datasets.Dataset.from_dict({"image": rows, "label": samples.labels.tolist()}, features=features).save_to_disk(path)
    return str(path)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of texts, whose length shows at its end only."""
    samples = text_samples(COUNT)
    assert samples.labels is not None and samples.label_names is not None
    words = [samples.label_names[label] for label in samples.labels]
    path = tmp_path_factory.mktemp("streams") / "train.csv"
    datasets.Dataset.from_dict({"text": list(samples.inputs), "label": words}).to_csv(path)
    return str(path)


@pytest.fixture(params=["held", "images", "texts"])
def batches(request: pytest.FixtureRequest, vit: Checkpoint, bert: Checkpoint) -> Callable[..., TrainingBatches]:
    """Training batches of samples that are held or of either stream, divided as asked for."""
    kind, checkpoint = ("text", bert) if request.param == "texts" else ("image", vit)
    preprocessor = preprocessor_from_json(checkpoint.preprocessing, checkpoint.spec, "model")
    preparation = Preparation(preprocessor, build_augmentation(AUGMENTED, checkpoint.spec), Seeds(7))
    if request.param != "held":
        data = open_training_data(kind, request.getfixturevalue(request.param), TrainingSources(streaming=True))
        assert data.size == (COUNT if kind == "image" else None)

    def make(world_size: int = 1, passes: int = 1, rank: int = 0, workers: int = 0) -> TrainingBatches:
        division = Division(4, world_size, passes)
        if request.param == "held":
            return ShuffledSamples(image_samples(COUNT), preparation, division, rank=rank, workers=workers)
        return ShuffledStream(data.train, preparation, division, rank=rank, workers=workers)  # type: ignore[arg-type]

    return make


def rows(made: list[Batch]) -> list[list[float]]:
    """Each sample of some batches as numbers, texts without their padding."""
    tensors = [batch.inputs.get("pixel_values", batch.inputs.get("input_ids")) for batch in made]
    return [[n for n in row.flatten().tolist() if n != 0] for tensor in tensors for row in tensor]  # type: ignore[union-attr]


def test_each_epoch_is_every_sample_once_in_an_order_of_its_own(images: str) -> None:
    stream = open_training_data("image", images, TrainingSources(streaming=True)).train

    def see(inputs: list[object]) -> dict[str, torch.Tensor]:
        return {"brightness": torch.tensor([float(sum(image.tobytes())) for image in inputs])}  # type: ignore[attr-defined]

    preparation = Preparation(see, None, Seeds(3))  # type: ignore[arg-type]
    made = list(ShuffledStream(stream, preparation, Division(4, 1, 1)).from_step(0, 5))  # type: ignore[arg-type]
    seen = torch.cat([batch.inputs["brightness"] for batch in made]).tolist()
    expected = [float(sum(image.tobytes())) for image in image_samples(COUNT).inputs]
    assert sorted(seen[:COUNT]) == sorted(seen[COUNT:]) == sorted(expected)
    assert len({tuple(seen[:COUNT]), tuple(seen[COUNT:]), tuple(expected)}) == 3
    labels = torch.cat([batch.labels for batch in made]).tolist()  # type: ignore[misc]
    known = dict(zip(expected, image_samples(COUNT).labels.tolist(), strict=True))  # type: ignore[union-attr]
    assert labels == [known[one] for one in seen]


@pytest.mark.usefixtures("beside_ranks")
def test_a_step_is_the_same_samples_whoever_loads_them(
    batches: Callable[..., TrainingBatches], request: pytest.FixtureRequest
) -> None:
    whole = rows(list(batches().from_step(0, 6)))
    halves = [rows(list(batches(2, 1, rank).from_step(0, 6))) for rank in (0, 1)]
    dealt = [row for at in range(0, len(halves[0]), 2) for half in halves for row in half[at : at + 2]]
    assert dealt == whole
    assert rows(list(batches(passes=2, workers=2).from_step(0, 6))) == whole
    if "texts" not in request.node.callspec.id:  # other epochs hold other views of the same images
        assert len(set(map(tuple, whole))) == len(whole)


def test_starting_late_gives_what_an_uninterrupted_run_gets(batches: Callable[..., TrainingBatches]) -> None:
    whole = rows(list(batches().from_step(0, 8)))
    for start in (1, 4, 7):
        assert rows(list(batches().from_step(start, 8))) == whole[4 * start :]


def test_a_run_on_a_stream_resumes_to_the_same_bits(vit: Checkpoint, images: str, folder: Path, fit: Fit) -> None:
    data = open_training_data("image", images, TrainingSources(val_data=images, streaming=True))
    recipe = replace(RECIPE, steps=6, flip=True, dropout=0.2)
    whole = fit(vit, Training(data, recipe), save_every=2)
    for state in ("state-00000006.pt",):
        (folder / state).unlink()
    resumed = fit(vit, Training(data, recipe), resume=True)
    assert identity(resumed.checkpoint) == identity(whole.checkpoint) != identity(vit)
    assert whole.checkpoint.provenance["options"]["training_data"] == {"stream": "images", "samples": COUNT}


def test_what_a_stream_cannot_do(vit: Checkpoint, bert: Checkpoint, images: str, texts: str, fit: Fit) -> None:
    with pytest.raises(OptionError, match=r"`val_split` 3: .*`val_data` SOURCE:train\[:3\]"):
        open_training_data("image", images, TrainingSources(val_split=3, streaming=True))
    data = open_training_data("text", texts, TrainingSources(streaming=True))
    epochs = replace(RECIPE, steps=0, epochs=2)
    with pytest.raises(OptionError, match="2 epochs of a stream.*`steps`"):
        fit(bert, Training(data, epochs))
    with pytest.raises(DataError, match="declares no classes"):
        fit(bert, Training(data, replace(RECIPE, new_classifier="zeros")))
    renamed = replace(vit, labels=("red", "green", "blue"))
    with pytest.raises(DataError, match="train a new classifier with `new_classifier` zeros"):
        data = open_training_data("image", images, TrainingSources(streaming=True))
        fit(renamed, Training(data, RECIPE))


def test_streamed_pairs_keep_together(pair_folder: Path, clip: Checkpoint, fit: Fit) -> None:
    data = open_training_data("pair", str(pair_folder), TrainingSources(streaming=True))
    images = open_samples(str(pair_folder), "image")
    texts = open_samples(str(pair_folder), "text")
    captions = {image.tobytes(): text for image, text in zip(images.inputs, texts.inputs, strict=True)}
    seen = [pair for block in data.train.shuffled(3).blocks(4) for pair in block.inputs]  # type: ignore[union-attr]
    assert len(seen) == COUNT and all(captions[image.tobytes()] == text for image, text in seen)
    assert [text for _, text in seen] != list(texts.inputs)
    recipe = replace(RECIPE, loss="contrastive", train_only=("text",), batch=4, steps=3)
    trained = fit(clip, Training(data, recipe)).checkpoint
    assert identity(trained) != identity(clip)
