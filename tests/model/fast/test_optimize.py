"""A model laid out for inference answers as the plain one, whatever heads its members keep and share."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, member_heads
from hydractl.errors import OptionError
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.model.fast.packing import PackedAttention
from hydractl.model.hydra import from_checkpoint, to_checkpoint
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads
from tests.conftest import build_reference
from tests.references import answers, family_variants

FAMILIES = st.sampled_from([*family_variants(), "vit-no-qkv-bias", "deit-distilled", "bert-unpadded", "clip-unpadded"])


@cache
def dense(name: str, seed: int = 0) -> tuple[Checkpoint, dict[str, Tensor]]:
    reference = build_reference(name, seed)
    return read_checkpoint(reference.save(Path(mkdtemp()))), reference.inputs


def assert_same_answers(checkpoint: Checkpoint, inputs: dict[str, Tensor]) -> None:
    assert_close(answers(checkpoint, inputs, fast=True), answers(checkpoint, inputs), rtol=0, atol=1e-10)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(FAMILIES, st.data())
def test_random_head_sets(name: str, data: st.DataObject) -> None:
    """Members of one network, each without heads of its own, above a trunk of any depth."""
    checkpoint, inputs = dense(name)
    depth = data.draw(st.integers(0, 3), label="trunk")
    heads = member_heads(checkpoint.heads, 0)
    below = [head for head in heads if head.layer < depth]
    common = set(data.draw(st.lists(st.sampled_from(below), unique=True))) if below else set()
    members = []
    for _ in range(data.draw(st.integers(2, 4), label="members")):
        above = [head for head in heads if head.layer >= depth]
        own = set(data.draw(st.lists(st.sampled_from(above), unique=True))) if above else set()
        members.append(drop_heads(checkpoint, common | own))
    assert_same_answers(fuse(members), inputs)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.sampled_from(family_variants()),
    st.lists(st.sampled_from(["mlp", "norm", "embeddings", "pooler", "projection"]), unique=True),
    st.booleans(),
    st.data(),
)
def test_members_of_different_networks(name: str, separate: list[str], even: bool, data: st.DataObject) -> None:
    checkpoints = [dense(name, seed) for seed in range(3)]
    heads = member_heads(checkpoints[0][0].heads, 0)
    draw = st.lists(st.sampled_from(heads), unique=True)
    shared = data.draw(draw)
    members = [drop_heads(checkpoint, shared if even else data.draw(draw)) for checkpoint, _ in checkpoints]
    assert_same_answers(fuse(members, separate), checkpoints[0][1])


def test_a_head_that_members_keep_alike_is_computed_once() -> None:
    checkpoint, inputs = dense("vit")
    members = [drop_heads(checkpoint, [Head("vision", 1, head)]) for head in (0, 1, 0)]
    fused = fuse(members)
    model = from_checkpoint(fused).optimize_for_inference()
    attention = model.vision.layers[1].attention
    # Heads 1,2,3 and 0,2,3 and 1,2,3 of width 4: four different ones.
    assert isinstance(attention, PackedAttention) and attention.qkv.shape == (4 * 3 * 4, 16)
    assert_same_answers(fused, inputs)


def test_heads_of_other_weights_are_not_taken_for_the_same() -> None:
    first, second = (dense("vit", seed)[0] for seed in (0, 1))
    attention = {name: second.tensors[name] for name in second.tensors if "layers.0.attention.k.weight" in name}
    fused = fuse([first, replace(first, tensors={**first.tensors, **attention})])
    assert_same_answers(fused, dense("vit")[1])


def test_trunk_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, inputs = dense("vit")
    model = from_checkpoint(fuse([drop_heads(checkpoint, [Head("vision", 1, h)]) for h in (0, 1, 2)]))
    groups = []
    for layer in model.vision.layers:
        layer.register_forward_pre_hook(lambda _, arguments: groups.append(len(arguments[0])))
    model(**inputs)
    assert groups == [1, 1, 3]


@pytest.mark.parametrize("name", family_variants())
def test_saves_what_it_was_loaded_from(name: str, tmp_path: Path) -> None:
    checkpoint, _ = dense(name)
    heads = member_heads(checkpoint.heads, 0)
    fused = fuse([drop_heads(checkpoint, heads[:2]), drop_heads(checkpoint, heads[1:5])])
    model = from_checkpoint(fused).optimize_for_inference()
    # Zeros stand for the biases that some maps lack.
    before, after = (sum(int(p.count_nonzero()) for p in m.parameters()) for m in (from_checkpoint(fused), model))
    assert after <= before
    write_checkpoint(fused, tmp_path / "before")
    write_checkpoint(to_checkpoint(model), tmp_path / "after")
    assert (tmp_path / "after").read_bytes() == (tmp_path / "before").read_bytes()


def test_has_no_gradients_and_is_not_trained() -> None:
    checkpoint, inputs = dense("vit")
    model = from_checkpoint(checkpoint).requires_grad_(True).optimize_for_inference()
    assert not model(pixel_values=inputs["pixel_values"].clone().requires_grad_()).logits.requires_grad
    with pytest.raises(OptionError, match="load it again"):
        model.train()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.25), (torch.float16, 0.03)])
@pytest.mark.parametrize("name", family_variants())
def test_half_precision(name: str, dtype: torch.dtype, tolerance: float) -> None:
    checkpoint, inputs = dense(name)
    heads = member_heads(checkpoint.heads, 0)
    fused = fuse([drop_heads(checkpoint, heads[:2]), drop_heads(checkpoint, heads[3:5])])
    exact = from_checkpoint(fused)(**inputs)
    half = from_checkpoint(fused, dtype=dtype).optimize_for_inference()(**inputs)
    assert half.member_logits.dtype == dtype and half.probabilities.dtype == torch.float32
    scale = exact.member_logits.abs().max()
    assert (half.member_logits.double() - exact.member_logits).abs().max() < tolerance * scale


@pytest.mark.slow
@pytest.mark.parametrize("name", family_variants())
def test_compiles_into_one_graph_for_every_batch_size(name: str) -> None:
    checkpoint, inputs = dense(name)
    heads = member_heads(checkpoint.heads, 0)
    fused = fuse([drop_heads(checkpoint, heads[:count]) for count in (1, 2, 3)])
    plain, fast = from_checkpoint(fused), from_checkpoint(fused).optimize_for_inference()
    # What can break a graph is found in tracing; generating code for it takes a minute and finds no more.
    fast.compile(fullgraph=True, dynamic=True, backend="aot_eager")
    for batch in (3, 2):
        whole = {"input_ids", "attention_mask"} if plain.spec.task == "zero-shot" else set()
        part = {name: tensor if name in whole else tensor[:batch] for name, tensor in inputs.items()}
        # All models of a process count against one limit of compilations.
        with torch.inference_mode(), torch._dynamo.config.patch(recompile_limit=256):
            assert_close(fast(**part).member_logits, plain(**part).member_logits, rtol=0, atol=1e-10)
