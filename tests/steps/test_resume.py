"""What is resumed was determined by the same things: each of them in turn is changed, named and refused."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import hydractl
from hydractl.checkpoint.contents import identity
from hydractl.errors import CheckpointError, HydractlError, OutputError
from hydractl.training.recipe import Recipe
from hydractl.watch import Log
from tests.cli.conftest import save_images, save_vit

RECIPE = Recipe(optimizer="sgd", lr=(0.05,), batch=4, steps=2, dropout=0.1)
#: Another value for some settings of a recipe, whose settings are compared one and all.
OTHERS: dict[str, Any] = {
    "train_only": ["mlp"],
    "optimizer": "adamw",
    "lr": [0.05, 0.1],
    "betas": [0.8, 0.9],
    "epochs": 1,
    "flip": True,
    "teacher_weight": 0.5,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    save_vit(folder / "vit")
    save_vit(folder / "other", seed=1)
    save_vit(folder / "dropping", hidden_dropout_prob=0.3)
    for name, seed in (("pets", 0), ("cats", 1), ("dogs", 2)):
        save_images(folder / name, seed=seed)
    return folder


def options(place: Path, output: Path, **changes: Any) -> dict[str, Any]:
    asked = {"models": place / "vit", "train_data": f"{place}/pets", "val_data": f"{place}/cats", "recipe": RECIPE,
             "seed": 7, "device": "cpu", "output": output, "resume": True}  # fmt: skip
    return {**asked, **changes}


def determinants(place: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """What differs, by the name that the error gives it, and the options that make it so."""
    for name, value in OTHERS.items():
        yield "steps" if name == "epochs" else name, {"settings": {name: value}}
    yield "seed", {"seed": 8}
    yield "order_seed", {"order_seed": 8}
    yield "noise_seed", {"noise_seed": 8}
    yield "model weights", {"models": place / "other"}
    yield "model settings", {"models": place / "dropping"}
    yield "training data", {"train_data": f"{place}/dogs"}
    yield "training data", {"val_data": None, "val_split": 4}
    yield "training data", {"limit": 9}
    yield "validation data", {"val_data": f"{place}/dogs"}
    yield "validation data", {"val_data": None}
    yield "outliers", {"outlier_data": f"{place}/dogs"}
    yield "teacher", {"teacher": place / "other"}
    yield "precision", {"precision": "bf16"}
    yield "match_labels", {"match_labels": "index"}


def test_each_determinant_of_a_finished_run_is_held_to(place: Path, tmp_path: Path) -> None:
    made = hydractl.finetune(**options(place, tmp_path / "m"))
    before = (tmp_path / "m").read_bytes()
    assert identity(hydractl.finetune(**options(place, tmp_path / "m")).checkpoint) == identity(made.checkpoint)
    # How it is carried out may change, and where the recipe's numbers are said to come from.
    again = {"batch_size": 2, "save_every": 1, "recipe": replace(RECIPE, source="mine")}
    hydractl.finetune(**options(place, tmp_path / "m", **again))
    for name, changes in determinants(place):
        with pytest.raises(HydractlError) as raised:
            hydractl.finetune(**options(place, tmp_path / "m", **changes))
        assert str(raised.value).startswith(f"{tmp_path / 'm'}: was made with another {name} ("), str(raised.value)
    assert (tmp_path / "m").read_bytes() == before


class Killed(Exception):
    """Stands for a kill between two steps."""


class KilledAfter(Log):
    """A watcher that ends a run after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left, self.total = steps, None

    @contextmanager
    def progress(self, what: str, total: float | None) -> Iterator[Callable[..., None]]:
        self.total = total

        def advance(done: float, said: str | None = None) -> None:
            self.left -= 1
            if self.left < 0:
                raise Killed

        yield advance


def test_each_determinant_of_an_unfinished_run_is_held_to(place: Path, tmp_path: Path) -> None:
    whole = hydractl.finetune(**options(place, tmp_path / "whole", recipe=replace(RECIPE, steps=4)))
    asked = options(place, tmp_path / "m", recipe=replace(RECIPE, steps=4), save_every=1)
    with pytest.raises(Killed):
        hydractl.finetune(**asked, watch=KilledAfter(2))
    for name, changes in islice(determinants(place), 3, None, 6):
        with pytest.raises(HydractlError, match=f"state.pt: was made with another {name} "):
            hydractl.finetune(**{**asked, **changes})
    # Several rates have folders of their own, and do not begin beside the state of one.
    with pytest.raises(HydractlError, match=r"another lr \(\[0.05\]"):
        hydractl.finetune(**{**asked, "settings": {"lr": OTHERS["lr"]}})
    resumed = hydractl.finetune(**asked)
    assert identity(resumed.checkpoint) == identity(whole.checkpoint)


def test_what_is_no_model_is_not_resumed(place: Path, tmp_path: Path) -> None:
    for content in (b"", b"no model", b"\x08" + b"\0" * 30):
        (tmp_path / "m").write_bytes(content)
        with pytest.raises(CheckpointError, match="m: "):
            hydractl.finetune(**options(place, tmp_path / "m"))
        assert (tmp_path / "m").read_bytes() == content


def evaluation(place: Path, logits: Path, **changes: Any) -> dict[str, Any]:
    asked = {"systems": {"m": str(place / "vit")}, "id_data": f"{place}/pets", "save_logits": logits, "resume": True,
             "ood_data": [f"{place}/dogs"], "device": "cpu", "seed": 3}  # fmt: skip
    return {**asked, **changes}


def test_each_determinant_of_saved_answers_is_held_to(place: Path, tmp_path: Path) -> None:
    dropout = {"m": f"{place / 'vit'},mc-dropout=2,p=0.5"}
    hydractl.evaluate(**evaluation(place, tmp_path / "plain"))
    hydractl.evaluate(**evaluation(place, tmp_path / "dropout", systems=dropout))
    settings = place / "vit" / "preprocessor_config.json"
    before = settings.read_text()
    for logits, name, changes in (
        ("plain", "networks 0 reference", {"systems": {"m": str(place / "other")}}),
        ("plain", "networks 0 settings", {}),
        ("plain", "cost members", {"systems": dropout}),
        ("plain", "data", {"id_data": {"pets": f"{place}/cats"}}),
        ("plain", "id_name", {"id_data": {"cats": f"{place}/pets"}}),
        ("plain", "data", {"limit": 5}),
        ("plain", "data", {"ood_data": {"dogs": f"{place}/cats"}}),
        ("plain", "batch_size", {"batch_size": 5}),
        ("plain", "dtype", {"dtype": "float64"}),
        ("plain", "match_labels", {"match_labels": "index"}),
        ("dropout", "seed", {"systems": dropout, "seed": 4}),
        ("dropout", "dropout rate", {"systems": {"m": dropout["m"].replace("0.5", "0.4")}}),
        ("dropout", "cost members", {"systems": {"m": dropout["m"].replace("=2", "=3")}}),
    ):
        if name.endswith("settings"):  # of a network of the same name and weights
            settings.write_text(before.replace("0.5", "0.4"))
        with pytest.raises(OutputError, match=f"was made with another {name} ") as raised:
            hydractl.evaluate(**evaluation(place, tmp_path / logits, **changes))
        assert str(tmp_path / logits / "m") in str(raised.value)
        settings.write_text(before)
    # What nothing depends on may change, and a set may join.
    more = [f"{place}/dogs", f"{place}/cats"]
    again = hydractl.evaluate(**evaluation(place, tmp_path / "plain", seed=4, ood_data=more))
    assert (tmp_path / "plain" / "m" / "ood" / "cats.safetensors").exists()
    assert again.models["m"]["id"]["samples"] == 12


def test_answers_that_do_not_say_what_they_are_of_are_not_gone_on_with(place: Path, tmp_path: Path) -> None:
    hydractl.evaluate(**evaluation(place, tmp_path))
    save_file({"logits": torch.zeros(1, 12, 3), "labels": torch.zeros(12).long()}, tmp_path / "m" / "id.safetensors")
    with pytest.raises(OutputError, match=r"another networks \(null"):
        hydractl.evaluate(**evaluation(place, tmp_path))
    (tmp_path / "m" / "predictions.json").write_text("[1")
    with pytest.raises(HydractlError, match="predictions.json: "):
        hydractl.evaluate(**evaluation(place, tmp_path))
