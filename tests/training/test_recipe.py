"""Recipes: the published numbers, TOML and back, settings that make no sense."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hydractl.checkpoint.slots import Slot
from hydractl.errors import OptionError
from hydractl.training.optimizer import build_optimizer, build_schedule, step_count, warmup_steps
from hydractl.training.published import RECIPES, find_recipe
from hydractl.training.recipe import Recipe, changed, parse_settings, read_recipe, to_toml


@pytest.mark.parametrize("name", RECIPES)
def test_toml_gives_back_the_recipe(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(to_toml(RECIPES[name]))
    assert read_recipe(path) == RECIPES[name]
    assert find_recipe(str(path)) == RECIPES[name]


def parameters() -> list[tuple[str, Slot, torch.nn.Parameter]]:
    return [("classifier.weight", Slot((2,), "classifier"), torch.nn.Parameter(torch.zeros(2)))]


def rates(name: str, samples: int, *steps: int) -> list[float]:
    """The recipe's learning rate at some steps, its first rate if there are several."""
    recipe = RECIPES[name]
    optimizer = build_optimizer(recipe, recipe.lr[0], parameters())
    schedule = build_schedule(recipe, optimizer, step_count(recipe, samples))
    found = {}
    for step in range(max(steps) + 1):
        if step in steps:
            found[step] = schedule.get_last_lr()[0]
        optimizer.step()
        schedule.step()
    return [found[step] for step in steps]


def test_imagenet_schedule() -> None:
    # Linear to .003 over 5,000 steps; half way through the other 115,000 the mean of .003 and 1e-5 times that.
    found = rates("imagenet1k", 1_281_167, 0, 2_500, 5_000, 62_500, 120_000)
    assert found == pytest.approx([0, 0.0015, 0.003, 0.003 * (1 + 1e-5) / 2, 3e-8], rel=1e-9, abs=1e-15)


def test_sst2_schedule() -> None:
    # 67,349 phrases, 32 a step, 7 epochs: 14,733 steps, of which 1,474 warm up.
    recipe = RECIPES["sst2"]
    steps = step_count(recipe, 67_349)
    assert (steps, warmup_steps(recipe, steps)) == (14_733, 1_474)
    found = rates("sst2", 67_349, 0, 737, 1_474, 14_733)
    assert found == pytest.approx([0, 5e-6, 1e-5, 0], rel=1e-9, abs=1e-15)
    middle = 1_474 + (14_733 - 1_474) // 2
    assert rates("sst2", 67_349, middle) == pytest.approx([1e-5 * (14_733 - middle) / (14_733 - 1_474)])


def test_clip_lit_takes_one_epoch_of_60_million_pairs() -> None:
    assert step_count(RECIPES["clip-lit"], 60_000_000) == 625
    assert rates("clip-lit", 60_000_000, 0, 50, 100, 625) == pytest.approx([0, 2.5e-5, 5e-5, 0], abs=1e-15)


def test_betas_and_eps_reach_the_optimiser_or_are_refused() -> None:
    built = build_optimizer(RECIPES["clip-lit"], 0.1, parameters())
    assert isinstance(built, torch.optim.AdamW)
    assert (built.defaults["betas"], built.defaults["eps"]) == ((0.9, 0.98), 1e-6)
    plain = build_optimizer(Recipe(optimizer="adamw"), 0.1, parameters())
    assert (plain.defaults["betas"], plain.defaults["eps"]) == ((0.9, 0.999), 1e-8)
    for setting in ({"betas": (0.9, 0.98)}, {"eps": 1e-6}):
        with pytest.raises(OptionError, match="optimizer 'sgd' has none"):
            build_optimizer(Recipe(optimizer="sgd", **setting), 0.1, parameters())
    with pytest.raises(OptionError, match="betas: takes two numbers"):
        changed(Recipe(), {"betas": 0.9}, "mine")


def test_sgd_is_plain_momentum() -> None:
    optimizer = build_optimizer(Recipe(optimizer="sgd"), 0.1, parameters())
    assert isinstance(optimizer, torch.optim.SGD)
    assert {key: optimizer.defaults[key] for key in ("momentum", "nesterov", "dampening")} == {
        "momentum": 0.9,
        "nesterov": False,
        "dampening": 0,
    }


def test_settings_of_the_command_line() -> None:
    settings = parse_settings(["lr=0.01", "flip=true", "crop_scale=[0.5, 1]", "optimizer=lamb", "train_only=mlp,norm"])
    recipe = changed(RECIPES["imagenet1k"], settings, "here")
    assert (recipe.lr, recipe.flip, recipe.crop_scale, recipe.optimizer) == ((0.01,), True, (0.5, 1.0), "lamb")
    assert recipe.train_only == ("mlp", "norm")


def test_epochs_replace_the_recipe_s_steps() -> None:
    assert step_count(changed(RECIPES["cifar100"], {"epochs": 2}, "here"), 5_120) == 20
    assert step_count(changed(RECIPES["sst2"], {"steps": 3}, "here"), 67_349) == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": 1}, "learning_rate is unknown, the nearest that is known is final_rate"),
        ({"steps": 2.5}, "steps is 2.5, should be a valid integer"),
        ({"schedule": "step"}, "schedule is \"step\", should be 'constant', 'linear' or 'cosine'"),
        ({"lr": "0.1,x"}, 'lr.1 is "x", should be a valid number'),
        ({"clip": float("inf")}, "clip is Infinity, should be a finite number"),
        ({"steps": 5, "epochs": 1}, "steps and epochs are both given"),
        ({"dropout": -0.5}, "dropout: is -0.5, should be from 0 to 1, or -1"),
        ({"crop_scale": [0.8, 0.5]}, "crop_scale: takes two shares, the smaller one first"),
        ({"randaugment": [2, 31]}, "randaugment: takes two numbers, at least one operation and a magnitude of 0 to 30"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError) as error:
        changed(Recipe(), settings, "here")
    assert str(error.value).startswith(f"here: {message}")


def test_unknown_recipe_and_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="`recipe` cifar: unknown: choose imagenet1k, cifar100"):
        find_recipe("cifar")
    path = tmp_path / "broken.toml"
    with pytest.raises(OptionError, match=r"broken\.toml: there is no such file: choose imagenet1k.* or name a \.toml"):
        find_recipe(path)
    path.write_text("lr = ")
    with pytest.raises(OptionError, match=r"broken\.toml: is not readable TOML"):
        find_recipe(str(path))
    with pytest.raises(OptionError, match="timm cannot build it"):
        build_optimizer(replace(Recipe(), optimizer="nonsense"), 0.1, parameters())
