"""A recipe: everything that decides what a fine-tuning run computes, as one value that prints as TOML.

How many devices there are and how many samples fit one forward pass is no part of it: a step takes `batch` samples
whatever the machine.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tomli_w

from hydractl.errors import OptionError

Schedule = Literal["constant", "linear", "cosine"]
NewClassifier = Literal["no", "zeros", "normal"]
Loss = Literal["cross-entropy", "contrastive"]


@dataclass(frozen=True)
class Recipe:
    """How a network is fine-tuned. Zero, or an empty list, turns a setting off."""

    source: str = ""  # where the numbers come from
    # What trains: parts of the network (all if empty), and no layer below `freeze_below` (negative: from the top).
    train_only: tuple[str, ...] = ()
    freeze_below: int = 0
    new_classifier: NewClassifier = "no"
    # The optimiser, by timm's name ("sgd" without Nesterov's step). Several rates are tried and validation chooses.
    optimizer: str = "adamw"
    lr: tuple[float, ...] = (1e-4,)
    momentum: float = 0.9
    weight_decay: float = 0.0  # never on biases and norms
    clip: float = 0.0  # the largest norm of the gradient
    # The schedule: linear warm-up over `warmup` steps (below 1: that share of all), then down to `final_rate` times lr.
    schedule: Schedule = "cosine"
    warmup: float = 0.0
    final_rate: float = 0.0
    steps: int = 0  # or, if 0:
    epochs: float = 0.0
    batch: int = 32  # samples of a step, over all devices and forward passes
    # Validation: every so many steps (0: after each epoch); stop after `patience` in a row without `improvement`.
    validate_every: int = 0
    patience: int = 0
    improvement: float = 0.0
    # Augmentation of images, and regularisation. `dropout` -1 keeps the checkpoint's own.
    crop_scale: tuple[float, ...] = ()  # random resized crop: smallest and largest share of the area
    pad_crop: int = 0  # random crop out of the image padded by so many pixels
    flip: bool = False
    randaugment: tuple[int, ...] = ()  # number of operations, magnitude
    label_smoothing: float = 0.0
    dropout: float = -1.0
    max_length: int = 0  # tokens of a text
    loss: Loss = "cross-entropy"


def changed(recipe: Recipe, changes: Mapping[str, Any], where: str) -> Recipe:
    """The recipe with some of its settings replaced, checked.

    Args:
        changes: setting to value, as TOML has them: lists for several, whole numbers for fractions too.
        where: what messages call their origin.

    Raises:
        OptionError: an unknown setting, a value of the wrong kind or out of range.
    """
    kinds = get_type_hints(Recipe)
    for key in changes:
        if key not in kinds:
            raise OptionError(f"{where}: unknown setting {key!r}: a recipe has {', '.join(kinds)}")
    values = {key: _read(f"{where}: {key}", value, kinds[key]) for key, value in changes.items()}
    # Asked for a number of epochs, a recipe's own number of steps no longer holds, and the other way round.
    for one, other in (("steps", "epochs"), ("epochs", "steps")):
        if values.get(one) and other not in values:
            values[other] = 0
    result = replace(recipe, **values)
    _check(result, where)
    return result


def read_recipe(path: Path) -> Recipe:
    """The recipe in a TOML file; what it leaves out has the defaults of `Recipe`.

    Raises:
        OptionError: the file cannot be read, or see `changed`.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"{path}: is no readable recipe ({error}): write TOML, see hydractl recipes show") from error
    return changed(Recipe(), content, str(path))


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Settings written `key=value` on the command line, the value as in TOML or as a bare word.

    Raises:
        OptionError: no `=` in it.
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise OptionError(f"`settings` {pair}: write name=value, e.g. lr=0.001")
        try:
            settings[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            settings[key.strip()] = text.strip()
    return settings


def to_toml(recipe: Recipe) -> str:
    """The recipe as TOML, all of its settings."""
    return tomli_w.dumps(asdict(recipe))


def to_json(recipe: Recipe) -> dict[str, Any]:
    """The settings as plain JSON, for the provenance of what was trained."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(recipe).items()}


def _read(where: str, value: Any, kind: Any) -> Any:
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        values = (
            value
            if isinstance(value, list | tuple)
            else [part.strip() for part in value.split(",")]
            if isinstance(value, str)
            else [value]
        )
        return tuple(_read(where, one, item) for one in values if one != "")
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise OptionError(f"{where} is {value!r}: choose {', '.join(get_args(kind))}")
        return value
    return _number_or_text(where, value, kind)


def _number_or_text(where: str, value: Any, kind: type) -> Any:
    if kind in (int, float) and isinstance(value, str):
        try:
            value = kind(value)
        except ValueError as error:
            raise OptionError(f"{where} is {value!r}: expected a number") from error
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
        raise OptionError(f"{where} is {value!r}: expected {names[kind]}")
    return value


def _check(recipe: Recipe, where: str) -> None:
    problems = {
        "lr: needs at least one rate above 0": not recipe.lr or min(recipe.lr) <= 0,
        "batch: needs at least 1": recipe.batch < 1,
        "steps, epochs: cannot be negative": recipe.steps < 0 or recipe.epochs < 0,
        "steps, epochs: give one of the two, not both": bool(recipe.steps and recipe.epochs),
        "label_smoothing: must lie in 0 to 1": not 0 <= recipe.label_smoothing < 1,
        "dropout: must lie in 0 to 1, or be -1 to keep the checkpoint's": recipe.dropout != -1
        and not 0 <= recipe.dropout < 1,
        "crop_scale: takes two shares, 0 < smallest <= largest <= 1": bool(recipe.crop_scale)
        and not (len(recipe.crop_scale) == 2 and 0 < recipe.crop_scale[0] <= recipe.crop_scale[1] <= 1),
        "randaugment: takes two numbers, operations and magnitude 0 to 30": bool(recipe.randaugment)
        and not (len(recipe.randaugment) == 2 and 0 <= recipe.randaugment[1] <= 30 and recipe.randaugment[0] > 0),
    }
    negative = [f.name for f in fields(recipe) if f.name not in ("dropout", "freeze_below", "source")]
    for name in negative:
        value = getattr(recipe, name)
        if isinstance(value, int | float) and value < 0:
            problems[f"{name}: cannot be negative"] = True
    for problem, found in problems.items():
        if found:
            raise OptionError(f"{where}: {problem}")


__all__ = ["Recipe", "changed", "parse_settings", "read_recipe", "to_json", "to_toml"]
