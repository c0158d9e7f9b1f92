import random
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, member_heads
from hydractl.errors import OptionError
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.surgery.slicing import drop_heads
from tests.references import Reference

TOWER_INPUTS = {"pixel_values", "input_ids"}
OUTPUT_PROJECTIONS = (
    *("attention.o_proj", "attention.output.dense", "self_attn.out_proj", "attention.out_lin"),
    *("attn.proj", "attn.Wo", "attention.attn.o", "attn.out_proj", "self_attn.o_proj"),
)


def output_projection(reference: Reference, head: Head) -> nn.Linear:
    """The layer of transformers' own model whose columns belong to the heads of one layer."""
    [name] = [
        name
        for name, _ in reference.model.named_modules()
        if name.endswith(tuple(f".{head.layer}.{ending}" for ending in OUTPUT_PROJECTIONS))
        and (head.tower == ("vision" if "vis" in name else "text") or len(reference.inputs.keys() & TOWER_INPUTS) == 1)
    ]
    return reference.model.get_submodule(name)


def head_columns(reference: Reference, head: Head, width: int) -> Tensor:
    """The columns of one head in the output projection, which share the model's memory."""
    return output_projection(reference, head).weight.data[:, head.head * width : (head.head + 1) * width]


def zero_heads(reference: Reference, heads: Iterable[Head], width_of: dict[str, int]) -> None:
    """Turns heads off in transformers' own model, as Algorithm 1 does."""
    for head in heads:
        head_columns(reference, head, width_of[head.tower]).zero_()


def test_pruned_equals_zeroed_columns(reference: Reference, tmp_path: Path) -> None:
    dense = read_checkpoint(reference.save(tmp_path / "dense"))
    heads, widths = member_heads(dense.heads, 0), {tower.name: tower.head_width for tower in dense.spec.towers}
    state = {name: tensor.clone() for name, tensor in reference.model.state_dict().items()}
    layers = [[head for head in heads if head.layer == layer] for layer in (1, 2)]
    for dropped in (random.Random(7).sample(heads, len(heads) // 3), *layers, heads):
        write_checkpoint(drop_heads(dense, dropped), tmp_path / "pruned", force=True)
        pruned = from_checkpoint(read_checkpoint(tmp_path / "pruned"))
        reference.model.load_state_dict(state)
        zero_heads(reference, dropped, widths)
        assert_close(pruned(**reference.inputs).member_logits[0], reference.logits(), rtol=0, atol=1e-10)


def test_pruned_weights_are_slices_whether_pruned_once_or_twice(dense: Checkpoint) -> None:
    first, second = Head("vision", 1, 0), Head("vision", 1, 2)
    name = "vision.layers.1.attention"
    query = dense.tensors[f"{name}.q.weight"].load()
    for pruned in (drop_heads(dense, [first, second]), drop_heads(drop_heads(dense, [second]), [first])):
        assert pruned.heads["vision"] == (((0, 1, 2, 3),), ((1, 3),), ((0, 1, 2, 3),))
        assert pruned.tensors[f"{name}.o.weight"].shape == (16, 8)
        assert pruned.tensors[f"{name}.o.bias"].shape == (1, 16)
        assert torch.equal(pruned.tensors[f"{name}.q.weight"].load(), query[[4, 5, 6, 7, 12, 13, 14, 15]])


def test_a_head_that_is_gone_cannot_be_dropped(dense: Checkpoint) -> None:
    once = drop_heads(dense, [Head("vision", 1, 0)])
    with pytest.raises(OptionError, match="vision layer 1 head 0"):
        drop_heads(once, [Head("vision", 1, 0)])
