"""What is exported answers as the model does, at every batch size and text length."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch.testing import assert_close

from hydractl.checkpoint.heads import Head
from hydractl.errors import OutputError
from hydractl.exports import graph
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import Hydra, from_checkpoint
from hydractl.ood.ood_scores import OOD_SCORES
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads
from tests.checkpoint.test_calibration import with_ood
from tests.conftest import build_reference
from tests.references import family_variants, uneven_members


def hydra(name: str, folder: Path, dtype: torch.dtype = torch.float32) -> Hydra:
    """Three members over a trunk of one layer, with layers that lack all heads or units in one of them."""
    reference = build_reference(name, dtype=dtype)
    model = from_checkpoint(fuse(uneven_members(read_checkpoint(reference.save(folder / name)))))
    if model.spec.task == "zero-shot":
        with torch.inference_mode():
            classes = model.embed_texts(reference.inputs["input_ids"], reference.inputs.get("attention_mask"))
        model.class_embeddings = classes.clone()
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", family_variants())
def test_onnx(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = hydra(name, tmp_path)
    assert graph.write_onnx(model, tmp_path / "m.onnx") < 1e-5
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]  # as libraries print
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    inputs = graph.example_inputs(model, batch=4, tokens=6, seed=9)
    arrays = {key: value.numpy() for key, value in inputs.items()}
    probabilities, member_logits = session.run(["probabilities", "member_logits"], arrays)
    expected = model(**inputs)
    assert member_logits.shape == (3, 4, 5)
    assert_close(torch.from_numpy(member_logits), expected.member_logits, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-5)
    manifest = json.loads(session.get_modelmeta().custom_metadata_map["hydractl"])
    assert manifest["members"] == 3


@pytest.mark.parametrize("name", ["bert", "vit"])
def test_networks_that_share_nothing_take_any_length(name: str, tmp_path: Path) -> None:
    references = [build_reference(name, seed, torch.float32) for seed in (0, 1)]
    dense = [read_checkpoint(made.save(tmp_path / f"{seed}")) for seed, made in enumerate(references)]
    model = from_checkpoint(fuse(dense, ("all",)))
    assert graph.write_onnx(model, tmp_path / "m.onnx") < 1e-5


@pytest.mark.parametrize("name", ["vit", "bert"])
def test_a_float32_graph_runs_wherever_torch_does(name: str, tmp_path: Path) -> None:
    called = [node.target for node in graph.trace(hydra(name, tmp_path)).program.graph.nodes]
    assert {target.namespace for target in called if isinstance(target, torch._ops.OpOverload)} == {"aten"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["beit", "mpnet"])
def test_members_with_as_many_heads_and_relative_positions_take_any_batch(name: str, tmp_path: Path) -> None:
    dense = read_checkpoint(build_reference(name, dtype=torch.float32).save(tmp_path / name))
    members = [drop_heads(dense, [Head(dense.spec.towers[0].name, layer, m) for layer in range(3)]) for m in range(2)]
    assert graph.write_onnx(from_checkpoint(fuse(members)), tmp_path / "m.onnx") < 1e-5


def wrong(inputs: graph.Inputs) -> torch.Tensor:
    return torch.zeros(len(inputs["pixel_values"]), 5)


def stuck(inputs: graph.Inputs) -> torch.Tensor:
    raise RuntimeError(f"fixed to 1, found {len(inputs['pixel_values'])}\nand more")


@pytest.mark.parametrize(("runner", "finding"), [(wrong, "answers differ"), (stuck, "does not run")])
def test_a_graph_that_answers_otherwise_is_not_written(
    runner: Any, finding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "_onnx_runner", lambda file: runner)
    (tmp_path / "m.onnx").write_bytes(b"an older one")
    with pytest.raises(OutputError, match=f"m.onnx: not written, .*{finding}"):
        graph.write_onnx(hydra("vit", tmp_path), tmp_path / "m.onnx", force=True)
    assert (tmp_path / "m.onnx").read_bytes() == b"an older one"


def assert_same_score(found: torch.Tensor, expected: torch.Tensor | None) -> None:
    """Equal within 1e-5 of the largest score, or of 1."""
    assert expected is not None
    assert_close(found, expected, rtol=0, atol=1e-5 * max(1.0, expected.abs().max().item()))


@pytest.mark.slow
@pytest.mark.parametrize("score", [score.name for score in OOD_SCORES])
def test_files_of_every_score(score: str, tmp_path: Path) -> None:
    dense = read_checkpoint(build_reference("vit", dtype=torch.float32).save(tmp_path / "vit"))
    model = from_checkpoint(with_ood(fuse([dense, drop_heads(dense, [Head("vision", 1, 2)])]), score))
    graph.write_onnx(model, tmp_path / "m.onnx")
    inputs = graph.example_inputs(model, batch=5, tokens=6, seed=9)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    names = graph.graph_outputs(model)[2:]
    found = session.run(list(names), {key: value.numpy() for key, value in inputs.items()})
    expected = model(**inputs)
    odd, typical, *profile = map(torch.from_numpy, found)
    assert_same_score(odd, expected.ood_score)
    assert_close(typical, expected.typicality, rtol=0, atol=1e-6)
    assert len(profile) == (score == "layers")
    for layers in profile:
        assert_close(layers, expected.profile, rtol=0, atol=1e-6)
