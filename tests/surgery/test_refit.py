"""Refitted networks beside the networks before their surgery, and beside numpy's own least squares."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.testing import assert_close

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, Unit
from hydractl.checkpoint.tensors import tensor_bytes
from hydractl.data.batching import Batch
from hydractl.errors import DataError, NotFiniteError
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.surgery.fusion import fuse, fused_layout
from hydractl.surgery.refit import FOLDS, NEARLY_MOST, RIDGES, Refitting, refit
from hydractl.surgery.slicing import drop_heads, drop_units
from tests.references import Reference, answers, with_tensors

Array = NDArray[np.float64]


def more(inputs: dict[str, Tensor], copies: int = 40) -> dict[str, Tensor]:
    """Many other inputs of the same form: other pixels, and other words in the places of words."""
    made = {name: torch.cat([x] * copies) for name, x in inputs.items()}
    if "pixel_values" in made:
        made["pixel_values"] = torch.randn_like(made["pixel_values"])
    if "input_ids" in made:
        ids = made["input_ids"]
        counts = inputs["input_ids"].unique(return_counts=True)
        words = counts[0][1:-1]  # what marks the ends or fills up has the least and the highest numbers
        drawn = words[torch.randint(len(words), ids.shape)]
        made["input_ids"] = torch.where((ids > words.min()) & (ids < words.max()), drawn, ids)
    return made


def by_tower(inputs: dict[str, Tensor], size: int = 1000) -> dict[str, list[Batch]]:
    """Inputs by the tower that reads them, in batches."""
    towers = {
        "vision": {name: x for name, x in inputs.items() if name == "pixel_values"},
        "text": {name: x for name, x in inputs.items() if name != "pixel_values"},
    }
    return {
        tower: list(Batch(tensors, None, torch.arange(len(next(iter(tensors.values()), ())))).parts(size))
        for tower, tensors in towers.items()
    }


def with_twins(dense: Checkpoint, twins: Sequence[tuple[Head, int]]) -> Checkpoint:
    """A network whose heads see what other heads of their layer see; what they say of it is their own."""
    changed = {}
    for name, slot in dense.slots().items():
        division = dense.layout.division(slot, dense.spec)
        if slot.head_axis is None or division is None or name.endswith("attention.o.weight"):
            continue
        tensor = dense.tensors[name].load().clone()
        for head, twin in twins:
            if (slot.tower, slot.layer) == head[:2]:
                width, axis = division.width, division.axis
                tensor.narrow(axis, head.head * width, width).copy_(tensor.narrow(axis, twin * width, width).clone())
        changed[name] = tensor
    return with_tensors(dense, changed)


def test_what_the_others_see_too_is_said_again(reference: Reference, tmp_path: Path) -> None:
    """Every family: uneven heads of every tower, one layer above another; fitted on other inputs."""
    torch.manual_seed(0)
    dense = read_checkpoint(reference.save(tmp_path / "dense"))
    lost = [
        Head(tower.name, layer, head)
        for tower in dense.spec.towers
        for layer, head in {(0, 1), (0, tower.heads - 1), (tower.layers - 1, 1)}
    ]
    dense = with_twins(dense, [(head, 0) for head in lost])
    pruned = drop_heads(dense, lost)
    expected = answers(dense, reference.inputs)
    assert float((answers(pruned, reference.inputs) - expected).abs().max()) > 1e-6
    refitted = refit(from_checkpoint(dense), pruned, by_tower(more(reference.inputs)), Refitting(ridge=0))
    # Without a ridge the error grows with the condition of the sums, which rounding of the processor changes.
    assert_close(answers(refitted, reference.inputs), expected, rtol=0, atol=1e-9)
    assert refitted.layout == pruned.layout


def least_squares(read: Array, wanted: Array, old: Array, ridge: float) -> tuple[Array, Array]:
    """A map and its bias, by numpy, near the old one as the ridge says."""
    centred = read - read.mean(0)
    strength = ridge * (centred**2).sum(0).mean()
    rows = np.concatenate([centred, strength**0.5 * np.eye(read.shape[1])])
    sides = np.concatenate([wanted - wanted.mean(0) - centred @ old.T, np.zeros((read.shape[1], old.shape[0]))])
    weight = old + np.linalg.lstsq(rows, sides, rcond=None)[0].T
    return weight, wanted.mean(0) - weight @ read.mean(0)


@pytest.mark.parametrize(("count", "ridge"), [(60, 0.0), (60, 1e-3), (7, None), (60, None), (20, None)])
def test_the_solution_is_that_of_least_squares(count: int, ridge: float | None, dense: Checkpoint) -> None:
    """One layer's output projection; without a ridge the one that serves parts best on which it was not solved."""
    torch.manual_seed(0)
    images, lost = torch.randn(count, 3, 12, 12, dtype=torch.float64), [Head("vision", 2, 0), Head("vision", 2, 3)]
    target, pruned = from_checkpoint(dense), drop_heads(dense, lost)
    batches = by_tower({"pixel_values": images}, size=16)
    refitted = from_checkpoint(refit(target, pruned, batches, Refitting(ridge=ridge)))
    layer, whole = from_checkpoint(pruned).vision.layers[2], target.vision.layers[2]
    with torch.no_grad():
        x = target.vision.embeddings(images)
        for below in target.vision.layers[:2]:
            x = below(x, None)
        z = layer.attention.mix(layer.attention_input(x), None)[0, :, 0].numpy()  # of the token that is read
        wanted = whole.attention(whole.attention_input(x), None)[0, :, 0].numpy()
    old = layer.attention.o.weight.detach().numpy()
    if ridge is None:
        part, missing = np.arange(count) % FOLDS, wanted - z @ old.T - layer.attention.o.bias.detach().numpy()
        explained = dict.fromkeys(RIDGES, (missing**2).sum())
        for each in RIDGES:
            for out in range(FOLDS):
                weight, bias = least_squares(z[part != out], wanted[part != out], old, min(each, 1e12))
                explained[each] -= ((wanted - z @ weight.T - bias)[part == out] ** 2).sum()
        most, least = max(explained.values()), explained[RIDGES[-1]]
        ridge = next(each for each in RIDGES if explained[each] - least >= NEARLY_MOST * (most - least))
        assert ridge == {7: 1.0, 20: 0.1, 60: 1e-3}[count]  # less the more inputs there are
    weight, bias = least_squares(z, wanted, old, ridge)
    new = refitted.vision.layers[2].attention.o
    np.testing.assert_allclose(new.weight.detach(), weight, atol=1e-10)
    np.testing.assert_allclose(new.bias.detach()[0], bias, atol=1e-10)


@pytest.mark.parametrize("count", [1, 6])
def test_inputs_that_are_all_alike_change_the_bias_alone(count: int, dense: Checkpoint) -> None:
    images = torch.full((count, 3, 12, 12), 0.3, dtype=torch.float64)
    pruned = drop_heads(dense, [Head("vision", 2, 0)])
    refitted = refit(from_checkpoint(dense), pruned, by_tower({"pixel_values": images}, size=4), Refitting())
    expected = answers(dense, {"pixel_values": images})
    assert_close(answers(refitted, {"pixel_values": images}), expected, rtol=0, atol=1e-10)
    assert same(refitted, pruned, "vision.layers.2.attention.o.weight")


def test_nothing_changes_where_nothing_went(dense: Checkpoint) -> None:
    batches = by_tower({"pixel_values": torch.randn(9, 3, 12, 12, dtype=torch.float64)})
    target = from_checkpoint(dense)
    assert refit(target, dense, {}, Refitting()).tensors == dense.tensors
    refitted = refit(target, drop_heads(dense, [Head("vision", 1, 2)]), batches, Refitting(ridge=1e-3))
    changed = [name for name in refitted.tensors if name not in dense.tensors or not same(refitted, dense, name)]
    other = {f"vision.layers.{layer}.attention.o.{part}" for layer in (1, 2) for part in ("weight", "bias")}
    sliced = {f"vision.layers.1.attention.{which}.{part}" for which in "qkv" for part in ("weight", "bias")}
    assert set(changed) - sliced == other


def same(one: Checkpoint, other: Checkpoint, name: str) -> bool:
    return torch.equal(one.tensors[name].load(), other.tensors[name].load())


def test_states_that_memory_does_not_hold_are_computed_again(
    dense: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = by_tower({"pixel_values": torch.randn(9, 3, 12, 12, dtype=torch.float64)}, size=2)
    pruned = drop_heads(dense, [Head("vision", 0, 2), Head("vision", 2, 1)])
    held = refit(from_checkpoint(dense), pruned, batches, Refitting())
    monkeypatch.setattr("hydractl.surgery.refit.HELD_BYTES", 3 * 10_000)
    again = refit(from_checkpoint(dense), pruned, batches, Refitting())
    assert all(same(held, again, name) for name in held.tensors)


def test_the_last_maps_of_mlps_are_refitted_where_units_went(dense: Checkpoint) -> None:
    batches = by_tower({"pixel_values": torch.randn(40, 3, 12, 12, dtype=torch.float64)})
    lost = [Unit("vision", 1, unit) for unit in range(0, 24, 3)]
    pruned = drop_units(dense, lost)
    refitted = refit(from_checkpoint(dense), pruned, batches, Refitting())
    changed = {name for name in pruned.tensors if not same(refitted, pruned, name)}
    maps = ("layers.1.mlp.fc2", "layers.2.attention.o")  # the first attention says what it said
    assert changed == {f"vision.{name}.{part}" for name in maps for part in ("weight", "bias")}
    images = {"pixel_values": torch.randn(64, 3, 12, 12, dtype=torch.float64)}
    expected = answers(dense, images)
    plain, after = ((answers(each, images) - expected).square().mean() for each in (pruned, refitted))
    assert after < plain / 2


def test_refitted_mlps_are_not_averaged_when_members_are_fused(dense: Checkpoint) -> None:
    batches = by_tower({"pixel_values": torch.randn(40, 3, 12, 12, dtype=torch.float64)})
    lost = ([Unit("vision", 1, unit) for unit in range(start, 24, 3)] for start in range(2))
    members = [refit(from_checkpoint(dense), drop_units(dense, units), batches, Refitting()) for units in lost]
    every = refit(from_checkpoint(dense), drop_heads(dense, [Head("vision", 1, 2)]), batches, Refitting(every_mlp=True))
    images = {"pixel_values": torch.randn(8, 3, 12, 12, dtype=torch.float64)}
    for together in ([dense, *members], [dense, every]):
        fused, expected = fuse(together), torch.cat([answers(each, images) for each in together])
        assert_close(answers(fused, images), expected, rtol=0, atol=1e-10)
        assert "vision.layers.1.mlp.fc1.weight" in fused.shared
    marks = [{name: bytes(tensor_bytes(tensor.load())) for name, tensor in each.tensors.items()} for each in together]
    assert fused_layout(together, marks) == fuse(together, ["all"]).layout
    assert "vision.layers.1.mlp.fc2.weight" in fuse(members, []).shared  # unless that is asked for


def test_the_bias_of_a_layer_without_heads_says_the_mean(dense: Checkpoint) -> None:
    images = torch.randn(20, 3, 12, 12, dtype=torch.float64)
    target, lost = from_checkpoint(dense), [Head("vision", 1, head) for head in range(4)]
    refitted = refit(target, drop_heads(dense, lost), by_tower({"pixel_values": images}, size=7), Refitting())
    x = target.vision.layers[0](target.vision.embeddings(images), None)
    layer = target.vision.layers[1]
    said = layer.attention(layer.attention_input(x), None).mean((0, 1, 2))
    assert_close(refitted.tensors["vision.layers.1.attention.o.bias"].load()[0], said, rtol=0, atol=1e-10)
    assert refitted.tensors["vision.layers.1.attention.o.weight"].shape == (16, 0)


def test_inputs_to_fit_on_are_there_and_finite(dense: Checkpoint) -> None:
    pruned = drop_heads(dense, [Head("vision", 1, 2)])
    nowhere = by_tower({"pixel_values": torch.full((4, 3, 12, 12), torch.nan).double()})
    for inputs, error, named in ((nowhere, NotFiniteError, "layer 1"), ({}, DataError, "vision")):
        with pytest.raises(error, match=named):
            refit(from_checkpoint(dense), pruned, inputs, Refitting())
