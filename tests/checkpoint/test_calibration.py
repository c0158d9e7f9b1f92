import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import hydractl
from hydractl.checkpoint.calibration import Calibration, FittedOod, Intervals, OodFit, PromisedRecall, PromisedSets
from hydractl.checkpoint.contents import Checkpoint, identity, trunk_depth
from hydractl.checkpoint.disk import open_weights
from hydractl.checkpoint.heads import member_heads
from hydractl.checkpoint.layout import member_units
from hydractl.checkpoint.manifest import KEY, fingerprint, read, to_metadata, write
from hydractl.checkpoint.tensors import TensorMap, in_memory
from hydractl.errors import CheckpointError
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import from_checkpoint, to_checkpoint
from hydractl.ood.ood_scores import OOD_SCORES, find_ood_score
from hydractl.surgery.fusion import fuse, soup
from hydractl.surgery.provenance import with_provenance
from hydractl.surgery.slicing import as_embedding, drop_heads, drop_units, pick_members, split_members
from hydractl.training.network import network_checkpoint, with_new_classifier
from tests.conftest import build_reference

QUANTILES = 20


def with_ood(checkpoint: Checkpoint, score: str) -> Checkpoint:
    """The checkpoint with random statistics."""
    generator = torch.Generator().manual_seed(0)
    row, members, width = find_ood_score(score), checkpoint.members, checkpoint.spec.features
    tower = checkpoint.spec.towers[0]
    trunk = min(trunk_depth(checkpoint.spec, checkpoint.layout, tower.name), tower.layers - 1)
    sizes = {"M": members, "C": checkpoint.spec.classes or 0, "D": width, "Q": 20, "K": 2, "d": tower.width}
    sizes |= {"L": tower.layers, "P": tower.layers + 1, "S": trunk + (tower.layers - 1 - trunk) * members}
    shapes = {name: [sizes[axis] for axis in axes] for name, axes in row.stored.items()}
    tensors = {name: torch.rand(shape, generator=generator) for name, shape in shapes.items()}
    tensors["quantiles"] = torch.linspace(-3, 9, QUANTILES)
    if "profile" in tensors:
        tensors["profile"] = tensors["profile"].sort(-1).values
    tensors |= {name: tensors[name].half() for name in row.half}
    fitted = FittedOod(OodFit(score, 1000, 0.95), {name: in_memory(tensor) for name, tensor in tensors.items()})
    return replace(checkpoint, calibration=Calibration(ood=fitted))


def numbers(checkpoint: Checkpoint) -> TensorMap:
    assert checkpoint.calibration.ood is not None
    return checkpoint.calibration.ood.tensors


def with_tensors(checkpoint: Checkpoint, tensors: TensorMap) -> Checkpoint:
    assert checkpoint.calibration.fit is not None
    return replace(checkpoint, calibration=Calibration(ood=FittedOod(checkpoint.calibration.fit, tensors)))


@pytest.fixture
def plain(tmp_path: Path) -> Checkpoint:
    return read_checkpoint(build_reference("vit", dtype=torch.float32).save(tmp_path / "plain"))


@pytest.mark.parametrize("score", [score.name for score in OOD_SCORES])
def test_every_score_is_stored_and_read(plain: Checkpoint, tmp_path: Path, score: str) -> None:
    fitted = with_ood(plain, score)
    write(fitted, tmp_path / "ours")
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(tmp_path / "ours", tmp_path / "elsewhere" / "copy")
    again = read(tmp_path / "elsewhere" / "copy")
    assert identity(again) == identity(plain)
    assert again.calibration.to_json() == fitted.calibration.to_json()
    pixels = torch.randn(3, 3, 12, 12)
    one, other = (hydractl.load(tmp_path / name) for name in ("ours", "elsewhere/copy"))
    found = one(pixel_values=pixels)
    assert torch.equal(found.ood_score, other(pixel_values=pixels).ood_score)
    assert one.state_dict().keys() == plain.tensors.keys()
    write(to_checkpoint(other), tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == (tmp_path / "ours").read_bytes()
    with torch.no_grad():
        other.classifier.weight.mul_(2)
    assert to_checkpoint(other).calibration == Calibration()


def test_a_calibration_is_one_entry_of_the_manifest(plain: Checkpoint, tmp_path: Path) -> None:
    warm = replace(plain, calibration=Calibration(1.5, sets=PromisedSets(0.9, 30, (0.2,))))
    write(warm, tmp_path / "warm")
    manifest = json.loads(open_weights(tmp_path / "warm")[1][KEY])
    assert manifest["format_version"] == 1 and manifest["calibration"].keys() == {"temperature", "sets"}
    assert "calibration" not in json.loads(to_metadata(plain)[KEY])
    assert fingerprint(warm).keys() == {"weights", "settings"} and identity(warm) == identity(plain)
    model = hydractl.load(tmp_path / "warm")
    assert (read(tmp_path / "warm").calibration, model.temperature) == (warm.calibration, 1.5)
    assert model(pixel_values=torch.randn(1, 3, 12, 12)).typicality is None


def test_statistics_are_part_of_what_determines_an_answer(plain: Checkpoint) -> None:
    one = with_ood(plain, "mahalanobis")
    other = with_tensors(one, {**numbers(one), "center": in_memory(torch.ones(1, 16))})
    assert fingerprint(one)["weights"] == fingerprint(other)["weights"]
    assert fingerprint(one) != fingerprint(other)


def calibrated(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with everything that calibration fits."""
    sizes = (0.5,) * (checkpoint.spec.classes or 0)
    ood = with_ood(checkpoint, "mahalanobis").calibration.ood
    promised = {"sets": PromisedSets(0.9, 100, (0.1,)), "recall": PromisedRecall(0.9, (100,), (0.1,))}
    fitted = Calibration(2.0, sizes, Intervals(0.9, sizes, sizes, sizes), ood=ood, **promised)
    return replace(checkpoint, calibration=fitted)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: drop_heads(calibrated(one), member_heads(one.heads, 0)[:1]),
        lambda one: drop_units(calibrated(one), member_units(one.layout, one.spec, 0)[:1]),
        lambda one: fuse([calibrated(one), one]),
        lambda one: fuse([calibrated(fuse([one, one]))]),
        lambda one: soup([calibrated(one), one]),
        lambda one: pick_members(calibrated(fuse([one, one])), [0]),
        lambda one: pick_members(calibrated(fuse([one, one])), [1, 0]),
        lambda one: pick_members(calibrated(fuse([one, one, one])), [0, 1]),
        lambda one: split_members(calibrated(fuse([one, one])))[0],
        lambda one: with_new_classifier(calibrated(one), ("cat", "dog"), "zeros"),
        lambda one: network_checkpoint(from_checkpoint(one), calibrated(one)),
        lambda one: as_embedding(calibrated(one), "image"),
        lambda one: with_provenance(calibrated(one), "select", [one], {}),
    ],
)
def test_other_weights_or_members_have_nothing_that_was_fitted(
    plain: Checkpoint, change: Callable[[Checkpoint], Checkpoint]
) -> None:
    assert change(plain).calibration == Calibration()


def test_all_members_in_their_order_are_the_network_as_it_was_calibrated(plain: Checkpoint) -> None:
    whole = calibrated(fuse([plain, plain]))
    assert pick_members(whole, [0, 1]) is whole


@pytest.mark.parametrize(
    ("score", "name", "tensor"),
    [
        ("mahalanobis", "whiten", torch.zeros(1, 15, 16)),
        ("mahalanobis", "whiten", torch.zeros(1, 16, 16, dtype=torch.float64)),
        ("mahalanobis", "means", torch.zeros(2, 5, 16)),
        ("mahalanobis", "bank", torch.zeros(1, 60, 16)),
        ("mahalanobis", "center", None),
        ("msp", "quantiles", torch.tensor([2.0, 1.0])),
        ("msp", "quantiles", torch.zeros(1001)),
        ("layers", "hidden_whiten", torch.zeros(1, 16, 16)),
        ("layers", "last_mean", torch.zeros(1, 16, dtype=torch.float16)),
        ("layers", "means", torch.zeros(1, 6, 16)),
        ("layers", "profile", torch.ones(3, 2).cumsum(-1).flip(-1)),
    ],
)
def test_damaged_statistics_are_refused_by_name(
    plain: Checkpoint, tmp_path: Path, score: str, name: str, tensor: torch.Tensor | None
) -> None:
    fitted = with_ood(plain, score)
    tensors = {key: value for key, value in numbers(fitted).items() if key != name}
    if tensor is not None:
        tensors[name] = in_memory(tensor)
    with pytest.raises(CheckpointError, match=rf"ood\.{name} "):
        write(with_tensors(fitted, tensors), tmp_path / "damaged")


def test_numbers_that_are_not_finite_are_refused_by_name(plain: Checkpoint, tmp_path: Path) -> None:
    fitted = with_ood(plain, "mahalanobis")
    tensors = {**numbers(fitted), "means": in_memory(torch.full((1, 5, 16), torch.nan))}
    write(with_tensors(fitted, tensors), tmp_path / "damaged")
    with pytest.raises(CheckpointError, match=r"ood\.means"):
        hydractl.load(tmp_path / "damaged")


def test_a_score_of_a_later_version_is_named(plain: Checkpoint, tmp_path: Path) -> None:
    fitted = with_ood(plain, "msp")
    with pytest.raises(CheckpointError, match="'later'"):
        later = FittedOod(OodFit("later", 9, 0.9), numbers(fitted))
        write(replace(fitted, calibration=Calibration(ood=later)), tmp_path / "later")
