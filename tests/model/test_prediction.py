import weakref
from collections.abc import Iterator
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from PIL import Image

import hydractl
from hydractl.checkpoint.calibration import Calibration
from hydractl.errors import DataError, NotFiniteError, OptionError
from hydractl.model.hydra import Hydra
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Answers
from tests.cli.conftest import LABELS, save_bert, save_vit
from tests.factories import pixels

TEXTS = ["good film", "a bad film a bad owl", "owl", "a good film a", "film a good a good owl"]


@pytest.fixture
def images() -> list[Image.Image]:
    return [Image.fromarray(one) for one in pixels(np.random.default_rng(0), 5)]


@pytest.fixture
def vit(tmp_path: Path) -> Hydra:
    return hydractl.load(save_vit(tmp_path / "vit"), dtype=torch.float64)


@pytest.fixture
def bert(tmp_path: Path) -> Hydra:
    return hydractl.load(save_bert(tmp_path / "bert"), dtype=torch.float64)


def test_worked_out_by_hand() -> None:
    logits = np.log([[[0.8, 0.2]], [[0.4, 0.6]]])
    task = find_task("text-classification")
    found = Answers(task=task, member_logits=logits, classes=("yes", "no"))
    entropies = [-sum(p * log(p) for p in pair) for pair in ((0.6, 0.4), (0.8, 0.2), (0.4, 0.6))]
    assert (found.labels, found.names, len(found)) == (["yes"], ("yes", "no"), 1)
    assert found.probabilities[0].tolist() == pytest.approx([0.6, 0.4])
    assert (found.msp.item(), found.entropy.item()) == pytest.approx((0.6, entropies[0]))
    assert found.mutual_information.item() == pytest.approx(entropies[0] - (entropies[1] + entropies[2]) / 2)
    cooled = Answers(task=task, member_logits=logits, calibration=Calibration(2.0))
    assert cooled.labels == ["LABEL_0"]
    assert cooled.probabilities[0, 0].item() == pytest.approx((2 / 3 + 1 / (1 + 1.5**0.5)) / 2)


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_images_in_batches_of_any_size(vit: Hydra, images: list[Image.Image], batch_size: int) -> None:
    output = vit(**vit.preprocessor(images))
    found = vit.predict((image for image in images), batch_size)
    assert_allclose(found.member_logits, output.member_logits, rtol=0, atol=1e-10)
    assert_allclose(found.probabilities, output.probabilities, rtol=0, atol=1e-10)
    assert found.labels == [LABELS[i] for i in output.probabilities.argmax(-1)]
    assert_allclose(vit.predict(images[0]).member_logits, output.member_logits[:, :1], rtol=0, atol=1e-10)


@pytest.mark.parametrize("batch_size", [2, 5])
def test_texts_come_back_in_their_order(bert: Hydra, batch_size: int) -> None:
    apart = torch.cat([bert(**bert.preprocessor([text])).member_logits for text in TEXTS], 1)
    assert_allclose(bert.predict(iter(TEXTS), batch_size).member_logits, apart, rtol=0, atol=1e-10)


def test_texts_of_like_length_share_a_batch(bert: Hydra) -> None:
    seen: list[int] = []
    bert.register_forward_pre_hook(lambda _, __, inputs: seen.append(inputs["input_ids"].shape[1]), with_kwargs=True)
    bert.predict(TEXTS, batch_size=2)
    assert seen == [8, 6, 3]


def test_no_more_images_than_a_batch_are_held(vit: Hydra) -> None:
    held = {"now": 0, "most": 0}

    def leave() -> None:
        held["now"] -= 1

    def read() -> Iterator[Image.Image]:
        for shade in range(40):
            image = Image.new("RGB", (8, 8), (shade, 0, 0))
            weakref.finalize(image, leave)
            held["now"] += 1
            held["most"] = max(held.values())
            yield image

    assert len(vit.predict(read(), batch_size=4)) == 40
    # Those of a batch, and of the next one as it is read.
    assert held["most"] <= 2 * 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("optimized", [False, True])
def test_every_dtype(tmp_path: Path, images: list[Image.Image], dtype: torch.dtype, optimized: bool) -> None:
    exact = hydractl.load(save_vit(tmp_path), dtype=torch.float64).predict(images)
    model = hydractl.load(tmp_path, dtype=dtype)
    found = (model.optimize_for_inference() if optimized else model).predict(images)
    columns = (found.member_logits, found.msp, found.entropy, found.mutual_information)
    assert {column.dtype for column in columns} == {np.dtype("float64" if dtype == torch.float64 else "float32")}
    assert_allclose(found.probabilities, exact.probabilities, rtol=0, atol=0.02)


def test_what_cannot_be_predicted(vit: Hydra, bert: Hydra, images: list[Image.Image]) -> None:
    for model, samples, message in (
        (vit, [], "no samples"),
        (bert, iter([]), "no samples"),
        (vit, "a text", "a text: unreadable image: .*No such file"),
        (vit, [images[0], 3], "int is not an image"),
        (bert, images, "takes texts, not Image"),
    ):
        with pytest.raises(DataError, match=message):
            model.predict(samples)
    with pytest.raises(OptionError, match="`batch_size` 0"):
        vit.predict(images, batch_size=0)
    vit.classifier.bias.fill_(torch.nan)
    with pytest.raises(NotFiniteError, match="try `dtype` float32"):
        vit.predict(images)


def test_answers_are_shown_as_a_table_where_labels_are_text() -> None:
    logits = np.log([[[0.75, 0.25], [0.1, 0.9]]])
    answers = Answers(task=find_task("text-classification"), member_logits=logits, classes=("<b>", "dog"))
    assert ["dog", "0.9000", "0.0000"] in [line.split() for line in repr(answers).splitlines()]
    for cell in ("&lt;b&gt;", "0.7500", "0.0000"):
        assert f"<td>{cell}</td>" in answers._repr_html_()
