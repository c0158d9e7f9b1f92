"""Files of torch.save are read as the same tensors; what is more than tensors is refused, and none of it runs."""

import os
import pickle
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertForSequenceClassification

import hydractl
from hydractl.checkpoint.contents import identity
from hydractl.checkpoint.disk import open_weights
from hydractl.errors import CheckpointError
from hydractl.families.load import read_checkpoint
from tests.conftest import build_reference
from tests.damage import edit_json
from tests.hostile import within_limits
from tests.references import Reference


def pickled(reference: Reference, folder: Path, **how: Any) -> Path:
    """The folder of a model with its weights as torch.save writes them."""
    state = open_weights(reference.save(folder))[0]
    (folder / "model.safetensors").unlink(missing_ok=True)
    torch.save({name: tensor.load() for name, tensor in state.items()}, folder / "pytorch_model.bin", **how)
    return folder


@pytest.mark.parametrize("name", ["bert", "vit", "clip", "timm-registers"])
@pytest.mark.parametrize("how", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "before 1.6"])
def test_the_tensors_of_a_pickle_are_the_same_model(name: str, how: dict[str, Any], tmp_path: Path) -> None:
    reference = build_reference(name)
    folder = pickled(reference, tmp_path / "pickle", **how)
    expected = identity(read_checkpoint(reference.save(tmp_path / "safe")))
    assert identity(read_checkpoint(folder)) == expected
    assert identity(read_checkpoint(folder / "pytorch_model.bin")) == expected


def test_open_clip(tmp_path: Path) -> None:
    reference = build_reference("open-clip")
    expected = identity(read_checkpoint(reference.save(tmp_path)))
    (tmp_path / "open_clip_model.safetensors").unlink()
    torch.save(reference.model.state_dict(), tmp_path / "open_clip_pytorch_model.bin")
    assert identity(read_checkpoint(tmp_path)) == expected


def test_shards(tmp_path: Path) -> None:
    folder = build_reference("bert").save(tmp_path)
    expected, tensors = identity(read_checkpoint(folder)), open_weights(folder)[0]
    (folder / "model.safetensors").unlink()
    places = {name: f"pytorch_model-0000{number % 2}-of-00002.bin" for number, name in enumerate(tensors)}
    for file in set(places.values()):
        torch.save({name: tensors[name].load() for name in tensors if places[name] == file}, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text("{}")
    edit_json(folder / "pytorch_model.bin.index.json", weight_map=places)
    assert identity(read_checkpoint(folder)) == expected
    edit_json(folder / "pytorch_model.bin.index.json", weight_map={"a": "../outside.bin"})
    with pytest.raises(CheckpointError, match="outside the folder"):
        read_checkpoint(folder)


def test_training_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    folder = pickled(build_reference("vit"), tmp_path)
    before = (folder / "pytorch_model.bin").read_bytes()
    model = hydractl.load(folder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert (folder / "pytorch_model.bin").read_bytes() == before


class Running:
    """An object whose unpickling makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def compressed(path: Path) -> None:
    torch.save({"a": torch.zeros(2**20)}, path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def saving(value: Any, **how: Any) -> Callable[[Path], None]:
    return lambda path: torch.save(value, path, **how)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "code": lambda path: torch.save({"a": Running(path.with_name("ran"))}, path),
    "code beside tensors": lambda path: torch.save(
        {"a": torch.ones(2), "b": Running(path.with_name("ran"))}, path, _use_new_zipfile_serialization=False
    ),
    "code alone": lambda path: path.write_bytes(pickle.dumps(Running(path.with_name("ran")))),
    "code before tensors": lambda path: path.write_bytes(
        pickle.dumps(Running(path.with_name("ran"))) + pickle.dumps({"a": 1})
    ),
    "a module": saving(nn.Linear(2, 2)),
    "parts": saving({"state_dict": {"a": torch.ones(2)}}),
    "no tensors": saving({}),
    "a list": saving([torch.ones(2)]),
    "numbers for names": saving({0: torch.ones(2)}),
    "a repeated number": saving({"a": torch.ones(1).expand(2**40)}),
    "sparse": saving({"a": torch.eye(3).to_sparse()}),
    "complex": saving({"a": torch.ones(2, dtype=torch.complex64)}),
    "elsewhere": saving({"a": torch.ones(2, device="meta")}),
    "compressed": compressed,
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n"),
    "half": lambda path: (torch.save({"a": torch.ones(999)}, path), os.truncate(path, 900)),
    "half of an old one": lambda path: (
        torch.save({"a": torch.ones(999)}, path, _use_new_zipfile_serialization=False),
        os.truncate(path, 900),
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_more_than_tensors_is_refused_and_does_not_run(case: str, tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    HOSTILE[case](path)
    with within_limits(), pytest.raises(CheckpointError, match=r"pytorch_model\.bin: ") as refused:
        open_weights(tmp_path)
    assert str(refused.value).isprintable() and "weights_only" not in str(refused.value)
    assert not (tmp_path / "ran").exists()


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_every_cut_and_every_changed_byte(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.arange(4.0), "b": torch.ones(2, 3)}, path)
    whole = path.read_bytes()
    damaged = [whole[:size] for size in range(0, len(whole), 97)]
    damaged += [whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :] for at in range(0, len(whole), 13)]
    for content in damaged:
        path.write_bytes(content)
        with within_limits(), suppress(CheckpointError):
            for tensor in open_weights(tmp_path)[0].values():
                tensor.load()


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    torch.save({"a": torch.tensor([1.0, float("nan")])}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="a holds NaN"):
        open_weights(tmp_path)[0]["a"].load()


def test_pickles_by_other_names_are_refused(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "model.pth")
    for path in (tmp_path, tmp_path / "model.pth"):
        with pytest.raises(CheckpointError, match=r"model.pth: is a pickle"):
            open_weights(path)


def test_transformers_reads_the_same(tmp_path: Path) -> None:
    reference = build_reference("bert")
    folder = pickled(reference, tmp_path)
    theirs = BertForSequenceClassification.from_pretrained(folder, use_safetensors=False).double().eval()
    with torch.no_grad():
        expected = theirs(**reference.inputs).logits
    torch.testing.assert_close(hydractl.load(folder)(**reference.inputs).member_logits[0], expected, rtol=0, atol=1e-10)
