"""Tensors of a file from a stranger: of another type, shape or meaning they are refused by file and tensor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close

import hydractl
from hydractl.checkpoint.attached import Attached, BayesVlm, Vilu
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.manifest import KEY
from hydractl.checkpoint.tensors import open_weights
from hydractl.errors import CheckpointError
from hydractl.families.open import read_checkpoint, write_checkpoint
from hydractl.training.classifier import held
from tests.conftest import build_reference
from tests.damage import refuse_all, refused

FORMS = {
    "bayesvlm": BayesVlm("bayesvlm", 10.0, {"vision": 1.0, "text": 2.0}, 20),
    "vilu": Vilu("vilu", 4),
}
WHOLE = (torch.int64, torch.int8, torch.bool, torch.uint8)


@pytest.fixture(scope="module", params=FORMS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zero-shot model with something attached to it, as a file."""
    folder = tmp_path_factory.mktemp("whole")
    network = read_checkpoint(build_reference("clip", dtype=torch.float32).save(folder / "clip"))
    form = FORMS[request.param]
    tensors = {}
    for name, shape in form.shapes(network.spec, 1).items():
        numbers = torch.eye(shape[-1])[None] if "covariance" in name else torch.linspace(0.1, 1, prod(shape))
        tensors[name] = held(numbers.reshape(shape).clone())
    write_checkpoint(replace(network, attached=Attached(form, tensors)), folder / "whole")
    return folder / "whole"


def damages(name: str, tensor: Tensor) -> Iterator[Tensor | None]:
    """What a tensor cannot be; None stands for none at all."""
    yield None
    yield from (tensor.to(kind) for kind in (*WHOLE, torch.float16, torch.bfloat16))
    yield from (tensor[None].clone(), tensor.reshape(-1)[0].clone(), torch.cat([tensor, tensor]), tensor[:0].clone())
    for number in (float("nan"), float("inf"), -float("inf")):
        yield tensor.clone().index_put_((torch.tensor([0]),), torch.tensor(number))
    if "variance" in name:
        yield -tensor
        yield tensor - 0.2
    if "covariance" in name:
        yield tensor + torch.ones_like(tensor).triu(1)


def load(path: Path) -> None:
    """Reads a file and every number in it."""
    attached = read_checkpoint(path).attached
    assert attached is not None
    for tensor in attached.tensors.values():
        tensor.load()


def test_every_damage_to_what_is_attached(whole: Path, tmp_path: Path) -> None:
    metadata, tensors = open_weights(whole)[1], load_file(whole)
    kind = "bayesvlm" if any(name.startswith("bayesvlm") for name in tensors) else "vilu"
    place = tmp_path / "damaged"
    for name in [name for name in tensors if name.startswith(kind)]:
        for damaged in damages(name, tensors[name]):
            left = {key: tensor for key, tensor in tensors.items() if key != name}
            save_file(left if damaged is None else {**left, name: damaged}, place, metadata)
            assert refused(lambda _: load(place), f"{place}: {kind}.", CheckpointError, name)


def test_every_damage_to_what_is_said_of_it(whole: Path, tmp_path: Path) -> None:
    metadata, tensors, place = open_weights(whole)[1], load_file(whole), tmp_path / "damaged"
    manifest = json.loads(metadata[KEY])

    def read(text: str) -> None:
        said = metadata[KEY].replace(json.dumps(manifest["attached"], sort_keys=True, separators=(",", ":")), text)
        assert said != metadata[KEY] or json.loads(text) == manifest["attached"]
        save_file(tensors, place, {**metadata, KEY: said})
        load(place)

    assert refuse_all(read, str(place), CheckpointError, manifest["attached"], every=3) > 0.8


@pytest.fixture
def network(tmp_path: Path) -> Checkpoint:
    made = read_checkpoint(build_reference("vit", dtype=torch.float32).save(tmp_path / "vit"))
    write_checkpoint(made, tmp_path / "ours")
    return read_checkpoint(tmp_path / "ours")


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("folder", ["ours", "vit"])
def test_weights_are_no_whole_numbers(kind: torch.dtype, folder: str, network: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / folder if folder == "ours" else tmp_path / folder / "model.safetensors"
    metadata, tensors = open_weights(path)[1], load_file(path)
    for name in [
        name for name in tensors if name.endswith(("q_proj.weight", "q.weight", "norm.bias", "classifier.bias"))
    ]:
        save_file({**tensors, name: tensors[name].to(kind)}, path, metadata)
        assert refused(lambda _: read_checkpoint(tmp_path / folder), f"{tmp_path / folder}: ", CheckpointError, name)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_several_widths_are_computed_with_in_the_widest(
    kind: torch.dtype, network: Checkpoint, tmp_path: Path
) -> None:
    metadata, tensors = open_weights(tmp_path / "ours")[1], load_file(tmp_path / "ours")
    images = build_reference("vit").inputs
    for name in list(tensors)[::7]:
        mixed = {**tensors, name: tensors[name].to(kind)}
        save_file(mixed, tmp_path / "mixed", metadata)
        wide = torch.promote_types(kind, torch.float32)
        save_file({key: tensor.to(wide) for key, tensor in mixed.items()}, tmp_path / "wide", metadata)
        found, expected = (
            hydractl.load(tmp_path / one)(**{key: image.to(wide) for key, image in images.items()}).member_logits
            for one in ("mixed", "wide")
        )
        assert_close(found, expected, rtol=0, atol=0)
