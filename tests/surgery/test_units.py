import json
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from hydractl.checkpoint.arithmetic import multiply_adds
from hydractl.checkpoint.contents import Checkpoint, identity, trunk_depth
from hydractl.checkpoint.heads import Head, Unit
from hydractl.checkpoint.layout import member_units
from hydractl.checkpoint.manifest import KEY, from_metadata, read, to_metadata
from hydractl.checkpoint.tower_spec import TowerSpec
from hydractl.errors import CheckpointError, OptionError
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.model.hydra import from_checkpoint, to_checkpoint, without_heads
from hydractl.reports.summary import key_facts, summarize, summary_lines
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads, drop_units, pick_members, split_members
from tests.conftest import build_reference
from tests.references import Reference, answers, with_tensors
from tests.surgery.test_slicing import TOWER_INPUTS


def unit_reader(reference: Reference, tower: TowerSpec, layer: int) -> nn.Linear:
    """The matrix of the library's own model that reads a layer's units: within the layer it comes last."""
    alone = len(reference.inputs.keys() & TOWER_INPUTS) == 1
    *_, reader = (
        module
        for name, module in reference.model.named_modules()
        if isinstance(module, nn.Linear)
        and module.in_features == tower.mlp_width
        and f".{layer}." in name
        and (alone or tower.name == ("vision" if "vis" in name else "text"))
    )
    return reader


def draws(dense: Checkpoint) -> list[set[Unit]]:
    """What three members lose: some units, most of them, and a whole layer with some others."""
    units, generator = member_units(dense.layout, dense.spec, 0), random.Random(3)
    return [
        set(generator.sample(units, len(units) // 4)),
        set(generator.sample(units, len(units) - 9)),
        {unit for unit in units if unit.layer == 1} | set(generator.sample(units, 7)),
    ]


def test_members_equal_their_networks_with_activations_zeroed(family_reference: Reference, tmp_path: Path) -> None:
    reference, members, expected = family_reference, [], []
    dense = read_checkpoint(reference.save(tmp_path / "dense"))
    state = {name: tensor.clone() for name, tensor in reference.model.state_dict().items()}
    for number, gone in enumerate(draws(dense)):
        write_checkpoint(drop_units(dense, gone), tmp_path / f"m{number}")
        members.append(read_checkpoint(tmp_path / f"m{number}"))
        reference.model.load_state_dict(state)
        for unit in gone:
            unit_reader(reference, dense.spec.tower(unit.tower), unit.layer).weight.data[:, unit.unit] = 0
        expected.append(reference.logits())
        for fast in (False, True):
            assert_close(answers(members[-1], reference.inputs, fast)[0], expected[-1], rtol=0, atol=1e-10)
    for separate in ([], ["mlp"], ["all"]):
        write_checkpoint(fuse(members, separate), tmp_path / "fused", force=True)
        fused = read_checkpoint(tmp_path / "fused")
        for fast in (False, True):
            assert_close(answers(fused, reference.inputs, fast), torch.stack(expected), rtol=0, atol=1e-10)
        some = pick_members(fused, [2, 0])
        some.verify()
        assert_close(answers(some, reference.inputs), torch.stack(expected)[[2, 0]], rtol=0, atol=1e-10)
        assert fuse(split_members(fused), separate).units == fused.units


def without(checkpoint: Checkpoint, layer: int, units: Iterable[int]) -> Checkpoint:
    return drop_units(checkpoint, [Unit("vision", layer, unit) for unit in units])


def test_rows_and_columns_are_slices_in_the_original_numbering(dense: Checkpoint) -> None:
    once, twice = without(dense, 1, [0, 5, 7]), without(without(dense, 1, [5]), 1, [7, 0])
    kept = [unit for unit in range(24) if unit not in (0, 5, 7)]
    assert once.units == twice.units == {"vision": (None, (tuple(kept),), None)}
    name = "vision.layers.1.mlp.fc"
    for checkpoint in (once, twice):
        assert torch.equal(checkpoint.tensors[f"{name}1.weight"].load(), dense.tensors[f"{name}1.weight"].load()[kept])
        columns = dense.tensors[f"{name}2.weight"].load()[:, kept]
        assert torch.equal(checkpoint.tensors[f"{name}2.weight"].load(), columns)
    with pytest.raises(OptionError, match="vision layer 1 unit 5"):
        without(once, 1, [4, 5])
    with pytest.raises(OptionError, match="has 2 members"):
        drop_units(fuse([once, dense]), [])


def test_shared_units_are_stored_once_and_others_averaged_over_those_that_keep_them(dense: Checkpoint) -> None:
    first, second = without(dense, 0, range(12, 24)), without(dense, 0, [*range(6), 23])
    fused = fuse([first, second])
    name = "vision.layers.0.mlp.fc1.weight"
    assert torch.equal(fused.tensors[name].load(), dense.tensors[name].load()[:23])
    assert trunk_depth(fused.spec, fused.layout, "vision") == 0 < trunk_depth(dense.spec, dense.layout, "vision")
    raised = second.tensors[name].load() + 1
    tuned = with_tensors(second, {name: raised})
    merged = fuse([first, tuned]).tensors[name].load()
    shift = torch.tensor([0.0] * 6 + [0.5] * 6 + [1.0] * 11, dtype=torch.float64)
    assert_close(merged, dense.tensors[name].load()[:23] + shift[:, None], rtol=0, atol=1e-12)
    apart = fuse([first, tuned], ["mlp"])
    assert apart.tensors[name].shape == (12 + 17, 16)
    assert torch.equal(apart.tensors[name].load()[12:], raised)


def test_alike_members_share_a_layer_of_fewer_units(dense: Checkpoint) -> None:
    thin = without(dense, 0, range(20))
    fused = fuse([thin, drop_heads(thin, [Head("vision", 2, 0)])])
    assert trunk_depth(fused.spec, fused.layout, "vision") == 2
    assert fused.tensors["vision.layers.0.mlp.fc1.weight"].shape == (4, 16)
    alone = multiply_adds(dense.spec, dense.layout) - multiply_adds(thin.spec, thin.layout)
    assert alone == 20 * 2 * 16 * dense.spec.tower("vision").embeddings.tokens


def test_a_model_is_identified_by_the_units_too(dense: Checkpoint, tmp_path: Path) -> None:
    low, high = without(dense, 0, range(12)), without(dense, 0, range(12, 24))
    assert identity(replace(low, tensors=high.tensors)) != identity(high) != identity(dense)
    write_checkpoint(fuse([low, high]), tmp_path / "both")
    stored = read(tmp_path / "both")
    assert identity(stored) == identity(fuse([low, high])) != identity(fuse([high, low]))
    for model in (from_checkpoint(stored), from_checkpoint(stored).optimize_for_inference()):
        assert identity(to_checkpoint(model)) == identity(stored)
    assert key_facts(stored)["vision units"] == "60+60 of 72"
    assert any(line.endswith("units 12+12") for line in summary_lines(summarize(stored)))


def test_heads_go_from_a_model_without_some_units(dense: Checkpoint) -> None:
    model, inputs = from_checkpoint(without(dense, 1, range(7))), build_reference("vit").inputs
    head = Head("vision", 1, 2)
    expected = answers(drop_heads(without(dense, 1, range(7)), [head]), inputs)
    assert_close(without_heads(model, {head})(**inputs).member_logits, expected, rtol=0, atol=0)


def test_gradients_of_shared_matrices_are_the_sums_over_members(dense: Checkpoint) -> None:
    members = [without(dense, 0, range(8)), without(dense, 0, range(10, 20))]
    inputs, name = build_reference("vit").inputs, "vision.layers.0.mlp.fc2.weight"
    expected = torch.zeros_like(dense.tensors[name].load())
    for member in members:
        model = from_checkpoint(member).requires_grad_()
        model(**inputs).member_logits.square().sum().backward()
        expected[:, list(member.units["vision"][0][0])] += model.get_parameter(name).grad
    fused = from_checkpoint(fuse(members)).requires_grad_()
    fused(**inputs).member_logits.square().sum().backward()
    assert_close(fused.get_parameter(name).grad, expected, rtol=0, atol=1e-10)


def test_units_that_a_manifest_cannot_have(dense: Checkpoint) -> None:
    thin = without(dense, 0, [1])
    for units, finding in [
        ([[[0, 99]], None, None], "units.vision.0 keeps .0, 99., expected ascending numbers from 0 to 23"),
        ([[[3, 2]], None, None], "units.vision.0 keeps .3, 2."),
        ([[[1], [2]], None, None], "units.vision.0 has 2 members, the file has 1"),
        ([None], "units.vision has 1 layers, the network has 3"),
        ([[list(range(5))], None, None], r"fc1.weight has shape \[23, 16\], expected \[5, 16\]"),
    ]:
        manifest = {**json.loads(to_metadata(thin)[KEY]), "units": {"vision": units}}
        with pytest.raises(CheckpointError, match=finding):
            from_metadata("file", {KEY: json.dumps(manifest)}, thin.tensors)


def test_units_that_are_normed_together_stay(tmp_path: Path) -> None:
    dense = read_checkpoint(build_reference("timm-eva02").save(tmp_path / "eva02"))
    with pytest.raises(OptionError, match="normalises its units together"):
        drop_units(dense, [Unit("vision", 0, 0)])
    manifest = {**json.loads(to_metadata(dense)[KEY]), "units": {"vision": [None, [[0]], None]}}
    with pytest.raises(CheckpointError, match="normalises all of them"):
        from_metadata("file", {KEY: json.dumps(manifest)}, dense.tensors)
