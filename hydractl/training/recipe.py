"""A recipe: everything that decides what fine-tuning computes, as one value that prints as TOML; and the paper's.

The number of devices and the samples of one forward pass are not part of it: a step takes `batch` samples on any
machine. The published ones are those of [HE] C, D.2; `source` says where the rest of their numbers comes from.
"""

import json
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tomli_w
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from hydractl import bounds
from hydractl.checkpoint.tower_spec import RANGES
from hydractl.errors import OptionError
from hydractl.schema import Origin, document, parse_toml, read_text

REMEDY = "correct it; hydractl guide fine-tuning lists the settings"
LARGEST = 2**14  # bytes of a recipe
LONGEST = 100  # items of a list
Schedule = Literal["constant", "linear", "cosine"]
NewClassifier = Literal["no", "zeros", "normal"]
Loss = Literal["cross-entropy", "contrastive"]
Text = Annotated[str, Field(max_length=1000)]
Part = Annotated[str, Field(min_length=1, max_length=200)]
LearningRate = Annotated[float, Field(gt=0, le=bounds.RATE)]
Share = Annotated[float, Field(gt=0, le=1)]
Steps = Annotated[int, Field(ge=0, le=bounds.STEPS)]


def _several(value: Any) -> Any:
    """Returns a list, a single value or values separated by commas as a tuple."""
    if isinstance(value, str):
        return tuple(_value(part) for part in map(str.strip, value.split(",", LONGEST)) if part)
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _takes(what: str, fits: Callable[[tuple[Any, ...]], bool]) -> AfterValidator:
    """Returns a check of a list, which passes an empty one."""

    def check(value: tuple[Any, ...]) -> tuple[Any, ...]:
        if value and not fits(value):
            raise ValueError(f"takes {what}")
        return value

    return AfterValidator(check)


Several = BeforeValidator(_several)
TwoNumbers = _takes("two numbers", lambda value: len(value) == 2)
Range = _takes("two shares, the smaller one first", lambda value: len(value) == 2 and value[0] <= value[1])
Operations = _takes(
    "two numbers, at least one operation and a magnitude of 0 to 30",
    lambda value: len(value) == 2 and value[0] > 0 and value[1] <= 30,
)


def _setting(default: Any, about: str, **limits: Any) -> Any:
    """Declares a setting; limits are those of pydantic's `Field`."""
    return Field(default=default, description=about, **limits)


@dataclass(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class Recipe:
    """The settings of fine-tuning. Zero, or an empty list, turns a setting off."""

    source: Text = _setting("", "where the numbers come from")
    # What trains.
    train_only: Annotated[tuple[Part, ...], Several] = _setting(
        (), "parts of the network that train; all of them if empty", max_length=LONGEST
    )
    freeze_below: int = _setting(
        0, "no layer below this one trains; a negative number counts from the top", ge=-bounds.LAYERS, le=bounds.LAYERS
    )
    new_classifier: NewClassifier = _setting("no", "an untrained one takes the old one's place")
    # The optimiser. Several rates are tried, and validation chooses.
    optimizer: Text = _setting("adamw", "by timm's name; sgd is without the step of Nesterov's", min_length=1)
    lr: Annotated[tuple[LearningRate, ...], Several] = _setting(
        (1e-4,), "learning rate, or several to choose from by validation", min_length=1, max_length=LONGEST
    )
    momentum: float = _setting(0.9, "of an optimiser that has one", ge=0, lt=1)
    betas: Annotated[tuple[Annotated[float, Field(ge=0, lt=1)], ...], Several, TwoNumbers] = _setting(
        (), "of an optimiser like Adam; its own if empty"
    )
    eps: float = _setting(0.0, "of an optimiser like Adam; its own if 0", ge=0, le=1)
    weight_decay: float = _setting(0.0, "never of biases and norms", ge=0, le=100)
    clip: float = _setting(0.0, "the largest norm of the gradient", ge=0, le=1e6)
    # The schedule.
    schedule: Schedule = _setting("cosine", "of the learning rate after its warm-up")
    warmup: float = _setting(0.0, "steps of the warm-up; below 1 that share of all steps", ge=0, le=bounds.STEPS)
    final_rate: float = _setting(0.0, "share of `lr` that a cosine ends at", ge=0, le=1)
    steps: Steps = _setting(0, "of the optimiser; or, if 0, `epochs`")
    epochs: float = _setting(0.0, "passes over the training data", ge=0, le=bounds.EPOCHS)
    batch: int = _setting(32, "samples of a step, over all devices and forward passes", ge=1, le=bounds.BATCH)
    length_window: Steps = _setting(0, "texts of similar length share a step, sorted over this many steps")
    # Validation.
    validate_every: Steps = _setting(0, "steps between two validations; 0 is after each epoch")
    patience: Steps = _setting(0, "stop after this many validations without `improvement`")
    improvement: float = _setting(0.0, "what counts as one", ge=0, le=1e6)
    # Augmentation of images, and regularisation.
    crop_scale: Annotated[tuple[Share, ...], Several, Range] = _setting(
        (), "random resized crop: smallest and largest share of the area"
    )
    pad_crop: int = _setting(
        0, "random crop out of the image padded by this many pixels", ge=0, le=RANGES["image_size"][1]
    )
    flip: bool = _setting(False, "mirror half of the images")
    randaugment: Annotated[tuple[Annotated[int, Field(ge=0, le=1000)], ...], Several, Operations] = _setting(
        (), "RandAugment: number of operations, and magnitude of 0 to 30"
    )
    label_smoothing: float = _setting(0.0, "share of a label given to all classes", ge=0, lt=1)
    outlier_weight: float = _setting(0.5, "weight of the loss of outliers", ge=0, le=1000)
    outlier_share: float = _setting(0.5, "outliers of a step, in proportion to its labelled samples", gt=0, le=100)
    teacher_weight: float = _setting(1.0, "weight of teachers' probabilities; labels have the rest", ge=0, le=1)
    dropout: float = _setting(-1.0, "on hidden states; -1 keeps the checkpoint's own", ge=-1, lt=1)
    max_length: int = _setting(0, "tokens of a text", ge=0, le=RANGES["positions"][1])
    loss: Loss = _setting("cross-entropy", "contrastive is for pairs of image and text")

    def __post_init__(self) -> None:
        if self.steps and self.epochs:
            raise ValueError("steps and epochs are both given: choose one")


class Setting(NamedTuple):
    """A row of the guide's table of settings."""

    name: str
    default: str
    values: str
    help: str


def changed(recipe: Recipe, changes: Mapping[str, Any], where: str) -> Recipe:
    """Returns the recipe with some of its settings replaced, checked.

    Args:
        changes: setting to value, as TOML has them; several values may be a text separated by commas.
        where: the origin of the changes, for messages.

    Raises:
        OptionError: an unknown setting, a value of the wrong kind or out of range.
    """
    values = {**asdict(recipe), **changes}
    # A given number of epochs replaces the recipe's own number of steps, and the other way round.
    for name, other in (("steps", "epochs"), ("epochs", "steps")):
        if changes.get(name) and other not in changes:
            values[other] = 0
    return document(values, Origin(where, OptionError, REMEDY)).read(Recipe)


def read_recipe(path: Path) -> Recipe:
    """Reads the recipe in a TOML file; settings that it leaves out have the defaults of `Recipe`."""
    origin = Origin(str(path), OptionError, REMEDY)
    return changed(Recipe(), parse_toml(read_text(path, origin, LARGEST), origin).fields, str(path))


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Returns settings written `key=value` on the command line, the value as in TOML or as a bare word."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise OptionError(f"`settings` {pair}: write name=value, e.g. lr=0.001")
        settings[key.strip()] = _value(text.strip())
    return settings


def _value(text: str) -> Any:
    """Returns the value of a text in TOML, or the number in another spelling, or the text."""
    try:
        content = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        content = {}
    if content.keys() == {"value"}:
        return content["value"]
    number = bounds.real(text, -sys.float_info.max, sys.float_info.max)
    return text if number is None else number


def to_toml(recipe: Recipe) -> str:
    """Returns the recipe as TOML, with all settings."""
    return tomli_w.dumps(asdict(recipe))


def recipe_json(recipe: Recipe) -> dict[str, Any]:
    """Returns the settings as plain JSON, for provenance."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(recipe).items()}


def _settings() -> tuple[Setting, ...]:
    declared = TypeAdapter(Recipe).json_schema()["properties"]
    defaults = recipe_json(Recipe())
    return tuple(
        Setting(name, json.dumps(defaults[name]), _values(field), field["description"])
        for name, field in declared.items()
    )


def _values(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(field["enum"])
    if field["type"] == "array":
        return f"several: {_values(field['items'])}"
    kinds = {"string": "text", "boolean": "true or false", "integer": "whole", "number": ""}
    return " ".join(part for part in (kinds[field["type"]], *_ends(field)) if part)


def _ends(field: Mapping[str, Any]) -> Iterator[str]:
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    yield from (f"{word} {field[key]:.10g}" for key, word in words.items() if key in field)


#: The settings of a recipe and their ranges, from the declarations in `Recipe`.
SETTINGS = _settings()


IMAGENET1K = Recipe(
    source="[HE] arXiv 2510.18358, C and D.2; batch 512 as in arXiv 2106.10270, from where the checkpoint comes",
    train_only=("attention", "mlp", "norm", "classifier"),
    optimizer="sgd",
    lr=(0.003, 0.01, 0.03, 0.06),
    schedule="cosine",
    warmup=5_000,
    final_rate=1e-5,
    steps=120_000,
    batch=512,
    validate_every=5_000,
    crop_scale=(0.08, 1.0),
    flip=True,
    randaugment=(2, 12),
    label_smoothing=0.1,
    dropout=0.1,
)
CIFAR100 = Recipe(
    source="[HE] arXiv 2510.18358, C and D.2; batch 512 as in arXiv 2106.10270; variant: `train_only` classifier",
    freeze_below=-5,
    new_classifier="zeros",
    optimizer="sgd",
    lr=(0.001, 0.003, 0.01, 0.03),
    schedule="cosine",
    warmup=500,
    final_rate=1e-5,
    steps=10_000,
    batch=512,
    validate_every=1_000,
    crop_scale=(0.08, 1.0),
    flip=True,
    label_smoothing=0.1,
)
SST2 = Recipe(
    source="[HE] arXiv 2510.18358, C and D.2 (a dense model: lr 8e-6); batch 32 as in arXiv 1810.04805",
    optimizer="adamw",
    lr=(1e-5,),
    weight_decay=0.01,
    clip=1.0,
    schedule="linear",
    warmup=0.1,
    epochs=7,
    batch=32,
    patience=2,
    improvement=5e-4,
    max_length=128,
    length_window=50,
)
CLIP_LIT = Recipe(
    source="[HE] arXiv 2510.18358, C; locked image tower as in arXiv 2111.07991; the rest by OpenCLIP's defaults",
    train_only=("text", "logit_scale"),
    optimizer="adamw",
    lr=(5e-5,),
    betas=(0.9, 0.98),
    eps=1e-6,
    weight_decay=0.2,
    schedule="cosine",
    warmup=100,
    epochs=1,
    batch=96_000,
    loss="contrastive",
)
DENSE = Recipe(
    source="[HE] arXiv 2510.18358, C (the dense checkpoints it starts from); batch 512 as in arXiv 2106.10270",
    optimizer="sgd",
    schedule="cosine",
    warmup=500,
    batch=512,
    validate_every=1_000,
    crop_scale=(0.08, 1.0),
    flip=True,
)

RECIPES = {
    "imagenet1k": IMAGENET1K,
    "cifar100": CIFAR100,
    "sst2": SST2,
    "clip-lit": CLIP_LIT,
    "imagenet1k-dense": replace(DENSE, lr=IMAGENET1K.lr, steps=20_000),
    "cifar100-dense": replace(DENSE, lr=CIFAR100.lr, steps=10_000),
}


def find_recipe(recipe: str | Path | Recipe) -> Recipe:
    """Returns the published recipe of that name, the one in a TOML file, or the recipe itself."""
    if isinstance(recipe, Recipe):
        return recipe
    if str(recipe) in RECIPES:
        return RECIPES[str(recipe)]
    if not str(recipe).endswith(".toml"):
        raise OptionError(f"`recipe` {recipe}: unknown: choose {', '.join(RECIPES)}, or name a .toml file")
    return read_recipe(Path(recipe))
