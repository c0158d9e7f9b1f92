from base64 import b64decode
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import TypeAdapter, ValidationError

from hydractl.checkpoint.calibration import Calibration
from hydractl.data.samples import Samples
from hydractl.evaluation.curves import LONGEST, SIDE, doubts_of
from hydractl.evaluation.results import Doubts, Sample
from hydractl.evaluation.run import SystemPredictions
from hydractl.metrics.classification import tabulate
from hydractl.systems.saved_file import SAVED
from hydractl.systems.system import SetKey

#: Of four samples with label 0: sure and right, unsure and right, unsure and wrong, sure and wrong.
LOGITS = np.array([[[5.0, 0.0], [0.2, 0.0], [0.0, 0.1], [0.0, 4.0]]])


def shown(inputs: list[Any], modality: Any, names: tuple[str, ...] | None = ("cat", "dog")) -> Doubts:
    key = SetKey("id", "id")
    table = tabulate(LOGITS, np.zeros(4, dtype=np.int64))
    samples = Samples("pets", modality, inputs, np.zeros(4, dtype=np.int64), ("cat", "dog"))
    return doubts_of(SystemPredictions(SAVED, Calibration(), None, {key: table}, {key: -table.msp}), samples, names)


def test_the_least_sure_and_the_wrongly_sure_come_first() -> None:
    found = shown(["a", "b", "c", "d"], "text")
    assert [one.text for one in found.doubted] == ["c", "b", "d", "a"]
    assert [(one.text, one.said, one.right) for one in found.wrong] == [("d", "dog", "cat"), ("c", "dog", "cat")]
    assert found.wrong[0].confidence == pytest.approx(1 / (1 + np.exp(-4)), abs=1e-5)


def test_pairs_long_texts_and_classes_without_names() -> None:
    found = shown([("a", "b"), "x" * 1000, "\x1b[2J", "d"], "text", None)
    by_place = {str(one.text)[:1]: one for one in found.doubted}
    assert by_place["a"].text == "a | b"
    assert len(str(by_place["x"].text)) == LONGEST
    assert all("\x1b" not in str(one.text) for one in found.doubted)
    assert found.wrong[0].said == "1"


@pytest.mark.parametrize(("size", "form"), [((8, 8), "png"), ((640, 480), "jpeg")])
def test_images_are_embedded_small(size: tuple[int, int], form: str) -> None:
    found = shown([Image.new(mode, size) for mode in ("RGB", "L", "P", "RGBA")], "image")
    for one in found.doubted:
        kind, _, data = str(one.image).partition(";base64,")
        assert kind == f"data:image/{form}"
        assert max(Image.open(BytesIO(b64decode(data))).size) == min(max(size), SIDE)
        TypeAdapter(Sample).validate_python(vars(one))
    transparent = str(found.wrong[0].image).partition(";base64,")[2]
    assert Image.open(BytesIO(b64decode(transparent))).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("image", ["https://x.example/x", "javascript:alert(1)", "data:image/svg+xml;base64,AA=="])
def test_a_report_of_a_stranger_fetches_nothing(image: str) -> None:
    with pytest.raises(ValidationError, match="image"):
        TypeAdapter(Sample).validate_python({"confidence": 0.5, "said": "a", "right": "b", "image": image})
