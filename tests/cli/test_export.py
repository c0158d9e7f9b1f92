"""`hydractl export` writes what it says, and checks it when asked."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest
import torch

from tests.cli.conftest import Command


@pytest.mark.slow
def test_onnx_with_check(hydractl: Command, vit: Path, tmp_path: Path) -> None:
    result = hydractl("export", vit, "--format", "onnx", "-o", tmp_path / "vit.onnx", "--check")
    assert result.code == 0, result.err
    assert result.out.strip() == str(tmp_path / "vit.onnx")
    assert "of the model's" in result.err
    inputs = onnxruntime.InferenceSession(tmp_path / "vit.onnx").get_inputs()
    assert [(i.name, i.shape[1:]) for i in inputs] == [("pixel_values", [3, 8, 8])]
    assert isinstance(inputs[0].shape[0], str)


@pytest.mark.slow
def test_torch_export_with_check(hydractl: Command, bert: Path, tmp_path: Path) -> None:
    result = hydractl("export", bert, "--format", "torch-export", "-o", tmp_path / "bert.pt2", "--check", "--quiet")
    assert (result.code, result.err) == (0, "")
    graph = torch.export.load(tmp_path / "bert.pt2").module()
    ids = torch.ones(4, 11, dtype=torch.long)
    probabilities, member_logits = graph(input_ids=ids, attention_mask=ids, token_type_ids=0 * ids)
    assert probabilities.shape == (4, 3) and member_logits.shape == (1, 4, 3)


def test_does_not_replace_a_file(hydractl: Command, vit: Path, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("kept")
    result = hydractl("export", vit, "--format", "onnx", "-o", tmp_path / "there")
    assert result.code == 1 and "--force" in result.err
    assert (tmp_path / "there").read_text() == "kept"


def test_classes_of_a_classifier_cannot_be_set(hydractl: Command, vit: Path, tmp_path: Path) -> None:
    (tmp_path / "classes").write_text("cat\n")
    options = ["--format", "onnx", "-o", tmp_path / "m", "--classes", tmp_path / "classes"]
    result = hydractl("export", vit, *options)
    assert result.code == 2 and "cannot be set" in result.err
