"""`hydractl export` writes what it says, and checks it when asked."""

from __future__ import annotations

import json
from pathlib import Path

import onnxruntime
import pytest
import torch
from transformers import pipeline

import hydractl.auto  # noqa: F401  (importing it is what makes pipelines find the folders)
from hydractl.evaluation.results import LabelledMetrics, Results, System
from hydractl.report.artifact import report_json
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("graph", "dtype"), [("onnx", "float16"), ("torch-export", "float16"), ("torch-export", "bfloat16")]
)
def test_half_precision_with_check(hydractl: Command, vit: Path, tmp_path: Path, graph: str, dtype: str) -> None:
    options = ["--format", graph, "--dtype", dtype, "-o", tmp_path / "vit", "--check"]
    assert hydractl("export", vit, *options).code == 0


def test_hf_of_several_is_a_hydra_with_a_card(hydractl: Command, bert: Path, tmp_path: Path) -> None:
    for seed in (1, 2):
        hydractl("prune", bert, "--method=random", "--budget=3", f"--seed={seed}", "-o", tmp_path / f"m{seed}")
    hydractl("fuse", tmp_path / "m1", tmp_path / "m2", "-o", tmp_path / "hydra")
    report = report_json(Results(models={"it": System(id=LabelledMetrics(ece=0.1, accuracy=0.5), ood={})}))
    (tmp_path / "report.json").write_text(json.dumps(report))
    options = ["--format", "hf", "-o", tmp_path / "folder", "--report", tmp_path / "report.json"]
    result = hydractl("export", tmp_path / "hydra", *options)
    assert (result.code, result.err) == (0, "")
    assert "| id accuracy | 0.5 |" in (tmp_path / "folder" / "README.md").read_text()
    pipe = pipeline("text-classification", str(tmp_path / "folder"))
    said = hydractl("predict", tmp_path / "hydra", "-", stdin=b"a good film\n").out.split("\t")
    [answer] = pipe("a good film")
    assert answer["label"] == said[1] and answer["score"] == pytest.approx(float(said[2]), abs=1e-3)
