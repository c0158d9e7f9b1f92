"""`hydractl predict`: a line for each input, the same numbers as the library and as transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, ViTForImageClassification

from tests.cli.conftest import LABELS, Command


@torch.no_grad()
def test_images_by_name_and_on_standard_input(hydractl: Command, vit: Path, images: Path) -> None:
    files = [images / "cat" / "0.png", images / "owl" / "3.png"]
    pictures = [Image.open(file) for file in files]
    inputs = AutoImageProcessor.from_pretrained(vit)(images=pictures, return_tensors="pt")
    expected = ViTForImageClassification.from_pretrained(vit).eval()(**inputs).logits.softmax(-1)
    result = hydractl("predict", vit, *files, "--json", "--batch-size", 1)
    rows = json.loads(result.out)["predictions"]
    assert [row["input"] for row in rows] == list(map(str, files))
    for row, probabilities in zip(rows, expected, strict=True):
        assert list(row["probabilities"]) == list(LABELS)
        assert list(row["probabilities"].values()) == pytest.approx(probabilities.tolist(), abs=1e-6)
        assert row["label"] == LABELS[probabilities.argmax()]
        assert row["msp"] == pytest.approx(probabilities.max().item(), abs=1e-6)
        assert row["mutual_information"] == pytest.approx(0, abs=1e-6)
    piped = hydractl("predict", vit, "-", stdin=files[0].read_bytes())
    line = f"-\t{rows[0]['label']}\t{rows[0]['msp']:.4f}\t0.0000\n"
    assert piped.out == f"input\tlabel\tmsp\tmutual_information\n{line}"


def test_products_are_in_full_float32(
    hydractl: Command, vit: Path, images: Path, tf32: Callable[[], set[bool]]
) -> None:
    assert hydractl("predict", vit, images / "cat" / "0.png").code == 0
    assert tf32() == {False}
