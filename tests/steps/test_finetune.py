"""`hydractl.finetune`: the bytes of the command, nothing written unless asked, the process left as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState
from PIL import Image

import hydractl
from hydractl.checkpoint.contents import identity
from hydractl.errors import CheckpointError, OptionError
from hydractl.training.recipe import Recipe, to_toml
from hydractl.watch import Advance, Log
from tests.cli.conftest import LABELS, Command

RECIPE = Recipe(optimizer="sgd", lr=(0.05,), batch=4, steps=3, flip=True, dropout=0.1)
OPTIONS: dict[str, Any] = {"val_split": 3, "device": "cpu", "seed": 7}
FLAGS = ("--val-split", 3, "--device", "cpu", "--seed", 7)


@pytest.fixture
def command(request: pytest.FixtureRequest) -> Command:
    run: Command = request.getfixturevalue("hydractl")
    return run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with the recipe in a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(to_toml(RECIPE))
    return tmp_path


def test_the_call_and_the_command_write_the_same_bytes(command: Command, vit: Path, images: Path, here: Path) -> None:
    done = command("finetune", vit, "--train-data", images, "--recipe", "mine.toml", *FLAGS, "-o", "command")
    assert done.code == 0, done.err
    result = hydractl.finetune(vit, train_data=images, recipe=RECIPE, output="call", **OPTIONS)
    assert Path("call").read_bytes() == Path("command").read_bytes()
    assert sorted(path.name for path in Path("call.training").iterdir()) == [".hydractl.json", "curve.png", "log.jsonl"]
    [network] = result.networks
    assert network.output == Path("call") and network.validation is not None
    assert [entry["step"] for entry in network.log] == [1, 2, 2, 3, 3]
    assert f"accuracy {network.validation.accuracy:.4f}" in done.err and str(network) in repr(result)
    assert result.to_json()["networks"][0]["validation"] == network.validation.to_json()


def test_nothing_is_written_unless_asked_and_data_may_be_values(vit: Path, images: Path, here: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    pairs = [(Image.fromarray(one), LABELS[number % 3]) for number, one in enumerate(pixels)]
    before = set(here.iterdir())
    dense = hydractl.load(vit)
    alone = hydractl.finetune(dense, train_data=pairs, recipe="mine.toml", device="cpu")
    both = hydractl.finetune([vit, dense], train_data=pairs, recipe=RECIPE, settings={"lr": 0.01}, device="cpu")
    assert set(here.iterdir()) == before
    assert identity(alone.checkpoint) != identity(both.checkpoints[0]) != identity(both.checkpoints[1])
    assert hydractl.load(hydractl.fuse(both.checkpoints)).members == 2
    assert list(alone.lines()) == [f"vit: {alone.networks[0]}"]
    with pytest.raises(OptionError, match="2 networks .*`checkpoints`"):
        _ = both.checkpoint


def test_an_ensemble_of_one_network(vit: Path, images: Path) -> None:
    made = hydractl.finetune(
        vit, train_data=images, recipe=RECIPE, method="lora-ensemble", members=3, rank=2, device="cpu"
    )
    assert made.checkpoint.members == 3
    with pytest.raises(OptionError, match="`rank` has no effect with `method` batch-ensemble"):
        hydractl.finetune(vit, train_data=images, recipe=RECIPE, method="batch-ensemble", members=3, rank=2)


def test_the_process_is_as_it_was(vit: Path, images: Path) -> None:
    states = torch.get_rng_state(), random.getstate()
    hydractl.finetune(vit, train_data=images, recipe=RECIPE, device="cpu")
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert not AcceleratorState._shared_state
    # So the next call may take another precision.
    hydractl.finetune(vit, train_data=images, recipe=RECIPE, device="cpu", precision="bf16")


def test_a_finished_run_is_not_done_again(vit: Path, images: Path, here: Path) -> None:
    options: dict[str, Any] = {"train_data": images, "recipe": RECIPE, "device": "cpu", "output": "m1"}
    first = hydractl.finetune(vit, **options)
    again = hydractl.finetune(vit, resume=True, **options)
    assert identity(again.checkpoint) == identity(first.checkpoint)
    assert (again.networks[0].lr, again.networks[0].steps, again.networks[0].validation) == (0.05, 3, None)
    hydractl.fuse([vit, vit], output=Path("fused"))
    with pytest.raises(CheckpointError, match="fused: was not made by fine-tuning, so there is nothing to resume"):
        hydractl.finetune(vit, resume=True, **{**options, "output": "fused"})
    with pytest.raises(OptionError, match="`output`"):
        hydractl.finetune(vit, resume=True, **{**options, "output": None})


def test_a_watcher_is_told_of_every_step(vit: Path, images: Path) -> None:
    told = Told()
    hydractl.finetune(
        vit, train_data=images, recipe=RECIPE, device="cpu", lr_grid=[0.01, 0.05], val_split=3, watch=told
    )
    assert (told.total, sum(told.done), len(told.notes)) == (6, 6, 1)


class Told(Log):
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.done: list[float] = []
        self.total: float | None = None

    def note(self, message: str) -> None:
        self.notes.append(message)

    @contextmanager
    def progress(self, what: str, total: float | None) -> Iterator[Advance]:
        self.total = total
        yield lambda done, said=None: self.done.append(done)
