from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from hydractl.checkpoint.contents import Checkpoint, trunk_depth
from hydractl.checkpoint.heads import member_heads
from hydractl.checkpoint.layout import member_units
from hydractl.errors import CheckpointError, OptionError
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.surgery.choose import at_random
from hydractl.surgery.fusion import fuse, soup
from hydractl.surgery.slicing import drop_heads, drop_units, with_dtype
from tests.conftest import build_reference
from tests.references import Reference, answers, family_variants, with_tensors


def through_a_file(checkpoint: Checkpoint, path: Path) -> Checkpoint:
    write_checkpoint(checkpoint, path, force=True)
    return read_checkpoint(path)


def assert_same_answers(fused: Checkpoint, members: Sequence[Checkpoint], reference: Reference) -> None:
    expected = torch.cat([answers(member, reference.inputs) for member in members])
    assert_close(answers(fused, reference.inputs), expected, rtol=0, atol=1e-10)


def different_models(name: str, folder: Path, count: int = 3) -> tuple[list[Checkpoint], list[Reference]]:
    references = [build_reference(name, seed) for seed in range(count)]
    inputs = references[0].inputs
    references = [replace(reference, inputs=inputs) for reference in references]
    return [read_checkpoint(r.save(folder / str(i))) for i, r in enumerate(references)], references


@pytest.mark.parametrize("name", family_variants())
def test_separate_all_is_a_deep_ensemble(name: str, tmp_path: Path) -> None:
    checkpoints, references = different_models(name, tmp_path)
    fused = through_a_file(fuse(checkpoints, ["all"]), tmp_path / "ensemble")
    expected = torch.stack([reference.logits() for reference in references])
    assert_close(answers(fused, references[0].inputs), expected, rtol=0, atol=1e-10)
    output = from_checkpoint(fused)(**references[0].inputs)
    assert_close(output.probabilities, expected.softmax(-1).mean(0), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", family_variants())
def test_a_soup_is_the_network_of_mean_weights(name: str, tmp_path: Path) -> None:
    checkpoints, (first, *others) = different_models(name, tmp_path)
    mixed = through_a_file(soup([fuse(checkpoints[:2], ["all"]), checkpoints[2]]), tmp_path / "soup")
    assert mixed.members == 1
    weights = [reference.model.state_dict() for reference in (first, *others)]
    floating = [key for key, value in weights[0].items() if value.is_floating_point()]
    means = {key: sum(one[key] for one in weights) / 3 for key in floating}
    first.model.load_state_dict(means, strict=False)
    assert_close(answers(mixed, first.inputs)[0], first.logits(), rtol=0, atol=1e-10)


def test_only_networks_of_the_same_heads_and_units_make_a_soup(dense: Checkpoint) -> None:
    heads, units = member_heads(dense.heads, 0), member_units(dense.layout, dense.spec, 0)
    one, other = (drop_heads(dense, [head]) for head in heads[:2])
    assert soup([one, one]).heads == one.heads
    for unlike, kind in ((other, "heads"), (drop_units(one, units[:1]), "MLP units")):
        with pytest.raises(CheckpointError, match=f"keeps other {kind} than"):
            soup([one, unlike])


def test_members_that_share_their_mlp_keep_their_logits(reference: Reference, tmp_path: Path) -> None:
    dense = read_checkpoint(reference.save(tmp_path / "dense"))
    heads = member_heads(dense.heads, 0)
    for budgets in ((1, 5, 8), (0, 12, 4), (12, 12)):
        members = [drop_heads(dense, at_random(heads, budget, seed)) for seed, budget in enumerate(budgets)]
        assert_same_answers(through_a_file(fuse(members), tmp_path / "hydra"), members, reference)


def test_merging_averages_what_differs_and_nothing_else(tmp_path: Path) -> None:
    checkpoints, _ = different_models("vit", tmp_path, count=2)
    common = checkpoints[0].tensors["vision.layers.0.mlp.fc1.weight"]
    second = replace(checkpoints[1], tensors={**checkpoints[1].tensors, "vision.layers.0.mlp.fc1.weight": common})
    fused = fuse([checkpoints[0], second])
    assert torch.equal(fused.tensors["vision.layers.0.mlp.fc1.weight"].load(), common.load())
    name = "vision.layers.1.mlp.fc2.weight"
    a, b = checkpoints[0].tensors[name].load(), checkpoints[1].tensors[name].load()
    assert torch.equal(fused.tensors[name].load(), (a + b) / 2)
    assert "classifier.weight" not in fused.shared
    assert "vision.norm.weight" in fused.shared


@pytest.mark.parametrize(
    ("held", "dtype", "values", "mean"),
    [
        # In float32 the sum of 2^24 and 1 loses the 1, in whichever order; the mean of three is exact in float64.
        (torch.float32, None, [2.0**24, 1.0, 1.0], (2.0**24 + 2) / 3),
        # bfloat16 has eight bits: it would round 257/256 to 1 before float32 could hold it.
        (torch.bfloat16, torch.float32, [1.0, 1.0 + 2.0**-7], 1.0 + 2.0**-8),
        # 1 + 2^-8 + 2^-25 lies above the middle of two bfloat16; float32 would round it onto the middle, then down.
        (torch.float32, torch.bfloat16, [1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-23, *[1 + 2.0**-8] * 2], 1 + 2.0**-7),
    ],
)
def test_means_are_taken_in_float64_and_rounded_once(
    held: torch.dtype, dtype: torch.dtype | None, values: list[float], mean: float, tmp_path: Path
) -> None:
    dense = read_checkpoint(build_reference("vit", dtype=held).save(tmp_path))
    name = "vision.layers.0.mlp.fc1.bias"
    members = [with_tensors(dense, {name: torch.full((24,), value, dtype=held)}) for value in values]
    fused = fuse(members, dtype=dtype)
    assert {tensor.dtype for tensor in fused.tensors.values()} == {dtype or held}
    assert torch.equal(fused.tensors[name].load(), torch.full((24,), mean, dtype=dtype or held))
    assert fused.tensors["classifier.weight"].load().equal(dense.tensors["classifier.weight"].load().to(dtype or held))


def test_members_of_several_dtypes_fuse_to_one_that_is_given(tmp_path: Path) -> None:
    half = read_checkpoint(build_reference("vit", dtype=torch.float16).save(tmp_path / "half"))
    single = read_checkpoint(build_reference("vit", dtype=torch.float32, seed=1).save(tmp_path / "single"))
    widened = through_a_file(with_dtype(half, torch.float32), tmp_path / "widened")
    fused, expected = (fuse([one, single], dtype=torch.float32) for one in (half, widened))
    assert fused.shared == expected.shared
    for name, tensor in expected.tensors.items():
        assert fused.tensors[name].dtype == torch.float32 and torch.equal(fused.tensors[name].load(), tensor.load())
    norm = next(name for name in half.tensors if "norm" in name)
    mixed = replace(single, tensors={**single.tensors, norm: half.tensors[norm]})
    assert fuse([single, mixed], dtype=torch.float32).dtype == torch.float32


def test_text_towers_of_a_zero_shot_model_stay_with_their_members(tmp_path: Path) -> None:
    checkpoints, references = different_models("clip", tmp_path, count=2)
    vision = {name: tensor for name, tensor in checkpoints[0].tensors.items() if name.startswith("vision.")}
    tuned = [replace(checkpoint, tensors={**checkpoint.tensors, **vision}) for checkpoint in checkpoints]
    fused = through_a_file(fuse(tuned), tmp_path / "hydra")
    assert_same_answers(fused, tuned, references[0])
    assert fused.shared == fuse(tuned, ["text"]).shared
    merged = fuse(tuned, ["none"])
    assert merged.tensors["text.layers.0.mlp.fc1.weight"].shape == (24, 16)
    assert fused.tensors["text.layers.0.mlp.fc1.weight"].shape == (2, 24, 16)
    with pytest.raises(OptionError, match="`separate` none: unknown"):
        fuse(tuned, ["none", "mlp"])


def test_fusing_a_fused_file_joins_its_members(tmp_path: Path) -> None:
    checkpoints, _ = different_models("bert", tmp_path)
    pair = through_a_file(fuse(checkpoints[:2], ["all"]), tmp_path / "pair")
    joined = fuse([pair, checkpoints[2]], ["all"])
    at_once = fuse(checkpoints, ["all"])
    assert joined.heads == at_once.heads
    for name, tensor in at_once.tensors.items():
        assert torch.equal(joined.tensors[name].load(), tensor.load())


def test_trunk_is_found_by_comparing_bits(dense: Checkpoint) -> None:
    heads = member_heads(dense.heads, 0)
    common = [head for head in heads if head.layer < 2 and head.head == 1]
    own = [[head for head in heads if head.layer == 2 and head.head in which] for which in ((0, 1), (2, 3))]
    fused = fuse([drop_heads(dense, common + extra) for extra in own])
    assert trunk_depth(fused.spec, fused.layout, "vision") == 2
    assert fused.tensors["vision.layers.0.attention.q.weight"].shape == (12, 16)
    assert fused.tensors["vision.layers.2.attention.q.weight"].shape == (16, 16)
    assert fused.tensors["vision.layers.2.attention.o.bias"].shape == (2, 16)


def test_minus_zero_is_not_zero(dense: Checkpoint) -> None:
    zeros = [torch.full((5,), value, dtype=torch.float64) for value in (0.0, -0.0)]
    fused = fuse([with_tensors(dense, {"classifier.bias": zero}) for zero in zeros])
    assert "classifier.bias" not in fused.shared


def test_members_must_agree(tmp_path: Path) -> None:
    vit = read_checkpoint(build_reference("vit").save(tmp_path / "vit"))
    bert = read_checkpoint(build_reference("bert").save(tmp_path / "bert"))
    gelu = read_checkpoint(build_reference("vit-quick-gelu").save(tmp_path / "gelu"))
    single = read_checkpoint(build_reference("vit", dtype=torch.float32).save(tmp_path / "single"))
    for other, finding in (
        (bert, "family is bert"),
        (gelu, "towers 0 activation"),
        (replace(vit, labels=tuple("abcde")), "labels"),
        (replace(vit, preprocessing={"preprocessor_config.json": {}}), "preprocessing"),
        (single, "dtype"),
    ):
        with pytest.raises(CheckpointError, match=f": {finding}.*, but "):
            fuse([vit, other])
    with pytest.raises(OptionError, match="two members"):
        fuse([vit])
    with pytest.raises(OptionError, match="`separate` mlps"):
        fuse([vit, vit], ["mlps"])
