"""Whatever stands in a recipe or after `--set`, it is read, or refused in one line that says where and what."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path

import pytest
import tomli_w

from hydractl.errors import OptionError
from hydractl.steps.guide import page
from hydractl.training.published import RECIPES, choose_recipe
from hydractl.training.recipe import LARGEST, SETTINGS, Recipe, read_recipe
from tests.damage import refused

KEYS = [field.name for field in fields(Recipe)]
#: What may stand behind a key in TOML.
VALUES = [
    '""', '"x"', "'''\n\x1b[2J'''", f'"{"y" * 10_000}"', '"1e-4"', "true", "0", "-1", "7", "0.5", "1e38", "1e999",
    "inf", "-inf", "nan", "9" * 300, "9" * 5000, "0x7fffffffffffffff", f"0x{'f' * 5000}", f"-{'9' * 40}", "0o7", "0b1",
    "[]", "[[[]]]", '["x", 1]', "[1, 2, 3]", "[nan]", f"[{'0.1,' * 10_000}]", "{}", "{a = {b = 1}}", "1979-05-27",
    "1979-05-27T07:32:00Z", "07:32:00", "[" * 50_000, "{a=" * 300 + "1" + "}" * 300, "\x00", "", "= 1", "1\nx = 2",
]  # fmt: skip


def read_file(path: Path) -> Callable[[str], Recipe]:
    def read(text: str) -> Recipe:
        path.write_text(text, encoding="utf-8")
        return sound(read_recipe(path))

    return read


def sound(recipe: Recipe) -> Recipe:
    """The recipe, if no number in it is beyond reason."""
    values = [item for value in asdict(recipe).values() for item in (value if isinstance(value, tuple) else (value,))]
    assert all(abs(value) < 1e8 and math.isfinite(value) for value in values if isinstance(value, int | float))
    return recipe


@pytest.mark.parametrize("key", KEYS)
def test_every_damage_to_a_setting_of_a_file(key: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    content = {name: value for name, value in asdict(RECIPES["imagenet1k"]).items() if name != key}
    rest = tomli_w.dumps(content)
    outcomes = [refused(read_file(path), str(path), OptionError, f"{key} = {value}\n{rest}") for value in VALUES]
    assert sum(outcomes) > len(outcomes) / 2
    assert refused(read_file(path), str(path), OptionError, f"{key} = 1\n{key} = 1\n{rest}")
    assert refused(
        read_file(path), f"{key}x is unknown, the nearest that is known is {key}", OptionError, f"{key}x = 1"
    )
    assert refused(read_file(path), key, OptionError, f"[{key}]\na = 1")
    read_file(path)(rest)


@pytest.mark.parametrize("key", KEYS)
def test_every_damage_to_a_setting_of_the_command(key: str) -> None:
    def read(text: str) -> Recipe:
        return sound(choose_recipe(None, [text], {}))

    outcomes = [refused(read, key, OptionError, f"{key}={value}") for value in VALUES]
    outcomes += [refused(read, key, OptionError, f"{key}={value}") for value in ("x,1", "1,x", ",", "1e-4,1e99", ".5")]
    assert sum(outcomes) > len(outcomes) / 2


def test_an_option_is_named_by_its_own_name() -> None:
    for options in ({"lr": "0.1,x"}, {"lr": [math.nan]}, {"lr": -1}):
        with pytest.raises(OptionError, match="^`lr_grid`: lr"):
            choose_recipe(None, (), options)
    with pytest.raises(OptionError, match="^`train_only`: train_only"):
        choose_recipe(None, (), {"train_only": [1]})


def test_files_that_are_no_recipe(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    for text in ("", "[", "x", "[[a]]", "a" + ".a" * 30_000 + "=1", "#" * (LARGEST + 1), "\ufeffbatch = 1"):
        refused(read_file(path), str(path), OptionError, text)
    path.write_bytes(b"\xff\xfe")
    assert refused(lambda _: read_recipe(path), str(path), OptionError, "")
    assert refused(lambda _: read_recipe(tmp_path), str(tmp_path), OptionError, "")
    assert refused(lambda _: read_recipe(tmp_path / "none.toml"), "none.toml: is missing", OptionError, "")


def test_the_guide_lists_every_setting_with_its_range() -> None:
    text = page("fine-tuning")
    assert [row.name for row in SETTINGS] == KEYS
    assert "| `label_smoothing` | 0.0 | from 0 below 1 |" in text
    assert all(f"| `{row.name}` | {row.default} | {row.values} | {row.help} |" in text for row in SETTINGS)
