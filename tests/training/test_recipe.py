import math
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest
import tomli_w
import torch

from hydractl.checkpoint.slots import Slot
from hydractl.errors import OptionError
from hydractl.steps.guide import page
from hydractl.training.network import build_optimizer, build_schedule, step_count
from hydractl.training.recipe import RECIPES, SETTINGS, Recipe, changed, find_recipe, read_recipe, to_toml
from hydractl.training.request import Hyperparameters
from tests.damage import refused


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


@pytest.mark.parametrize(
    ("name", "samples", "expected"),
    [
        # Linear to .003 over 5,000 steps; half way through the other 115,000 the mean of .003 and 1e-5 times that.
        ("imagenet1k", 1_281_167, {0: 0, 2_500: 0.0015, 5_000: 0.003, 62_500: 0.0015 * (1 + 1e-5), 120_000: 3e-8}),
        # 67,349 phrases, 32 a step, 7 epochs: 14,733 steps, of which 1,474 warm up.
        ("sst2", 67_349, {0: 0, 737: 5e-6, 1_474: 1e-5, 8_103: 1e-5 * 6_630 / 13_259, 14_733: 0}),
        # One epoch of 60 million pairs.
        ("clip-lit", 60_000_000, {0: 0, 50: 2.5e-5, 100: 5e-5, 625: 0}),
    ],
)
def test_published_schedules(name: str, samples: int, expected: dict[int, float]) -> None:
    assert rates(name, samples, *expected) == pytest.approx(list(expected.values()), rel=1e-9, abs=1e-15)
    assert step_count(RECIPES[name], samples) == max(expected)


def test_betas_and_eps_reach_the_optimiser_or_are_refused() -> None:
    built = build_optimizer(RECIPES["clip-lit"], 0.1, parameters())
    assert isinstance(built, torch.optim.AdamW)
    assert (built.defaults["betas"], built.defaults["eps"]) == ((0.9, 0.98), 1e-6)
    plain = build_optimizer(Recipe(optimizer="adamw"), 0.1, parameters())
    assert (plain.defaults["betas"], plain.defaults["eps"]) == ((0.9, 0.999), 1e-8)
    for setting in ({"betas": (0.9, 0.98)}, {"eps": 1e-6}):
        with pytest.raises(OptionError, match="optimizer 'sgd'"):
            build_optimizer(Recipe(optimizer="sgd", **setting), 0.1, parameters())


def test_bad_settings_are_named() -> None:
    for settings, named in (
        ({"learning_rate": 1}, "learning_rate is unknown"),
        ({"schedule": "step"}, "schedule is \"step\", should be 'constant', 'linear' or 'cosine'"),
        ({"lr": "0.1,x"}, "lr.1"),
        ({"clip": float("inf")}, "clip"),
        ({"steps": 5, "epochs": 1}, "steps and epochs"),
        ({"crop_scale": [0.8, 0.5]}, "crop_scale"),
        ({"randaugment": [2, 31]}, "randaugment"),
        ({"betas": 0.9}, "betas"),
    ):
        with pytest.raises(OptionError, match=f"^here: {named}"):
            changed(Recipe(), settings, "here")


def test_what_is_no_file_and_no_optimiser(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    with pytest.raises(OptionError, match=r"broken\.toml: is missing"):
        find_recipe(path)
    with pytest.raises(OptionError, match="timm cannot build it"):
        build_optimizer(replace(Recipe(), optimizer="nonsense"), 0.1, parameters())


KEYS = [field.name for field in fields(Recipe)]
#: What may stand behind a key in TOML.
VALUES = [
    '""', '"x"', "'''\n\x1b[2J'''", f'"{"y" * 10_000}"', '"1e-4"', "true", "0", "-1", "7", "0.5", "1e38", "1e999",
    "inf", "-inf", "nan", "9" * 300, "9" * 5000, "0x7fffffffffffffff", f"0x{'f' * 5000}", f"-{'9' * 40}", "0o7", "0b1",
    "[]", "[[[]]]", '["x", 1]', "[1, 2, 3]", "[nan]", f"[{'0.1,' * 10_000}]", "{}", "{a = {b = 1}}", "1979-05-27",
    "1979-05-27T07:32:00Z", "07:32:00", "[" * 50_000, "{a=" * 300 + "1" + "}" * 300, "\x00", "", "= 1", "1\nx = 2",
]  # fmt: skip


def read_file(path: Path) -> Callable[[str], None]:
    """Writes a text into the file, and reads a recipe of it in which no number is beyond reason."""

    def read(text: str) -> None:
        path.write_text(text, encoding="utf-8")
        settings = asdict(read_recipe(path)).values()
        values = [item for value in settings for item in (value if isinstance(value, tuple) else (value,))]
        assert all(abs(value) < 1e8 and math.isfinite(value) for value in values if isinstance(value, int | float))

    return read


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
def test_every_damage_to_a_setting_of_a_file(key: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    content = {name: value for name, value in asdict(RECIPES["imagenet1k"]).items() if name != key}
    rest = tomli_w.dumps(content)
    outcomes = [refused(read_file(path), str(path), OptionError, f"{key} = {value}\n{rest}") for value in VALUES]
    assert sum(outcomes) > len(outcomes) / 2
    assert refused(read_file(path), str(path), OptionError, f"{key} = 1\n{key} = 1\n{rest}")
    assert refused(read_file(path), f"{key}x is unknown", OptionError, f"{key}x = 1")
    assert refused(read_file(path), key, OptionError, f"[{key}]\na = 1")
    read_file(path)(rest)


def test_an_option_is_named_by_its_own_name() -> None:
    for rates in ("0.1,x", [math.nan], -1):
        with pytest.raises(OptionError, match="^`lr_grid`: lr"):
            Hyperparameters(lr_grid=rates).changed_recipe()
    with pytest.raises(OptionError, match="`train_only`"):
        Hyperparameters(train_only=[1]).changed_recipe()  # type: ignore[list-item]


def test_the_guide_lists_every_setting_with_its_range() -> None:
    text = page("fine-tuning")
    assert [row.name for row in SETTINGS] == KEYS
    assert "| `label_smoothing` | 0.0 | from 0 below 1 |" in text
    assert all(f"| `{row.name}` | {row.default} | {row.values} | {row.help} |" in text for row in SETTINGS)
