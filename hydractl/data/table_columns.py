"""Finds the columns of a table that hold the images, the texts and the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import datasets

from hydractl.data.reading import Modality
from hydractl.errors import DataError

# In order of preference; a name decides only where types leave a choice.
LABEL_NAMES = ("label", "labels", "class", "category", "target", "cls", "y")
IMAGE_NAMES = ("image", "img", "jpg", "jpeg", "png", "webp", "file_name", "image_path", "path", "file")
TEXT_NAMES = ("text", "sentence")
TEXT_PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text1", "text2"),
)


@dataclass(frozen=True)
class Columns:
    """The columns a user named; those left out are detected.

    `text` may name two columns with a comma between, for pairs of texts. With `strict` a named column that the table
    lacks is an error; without, detection takes over (one option serves data sets that differ).
    """

    image: str | None = None
    text: str | None = None
    label: str | None = None
    strict: bool = True


@dataclass(frozen=True)
class ChosenColumns:
    """The columns in use: one input column, or two for pairs. `label_problem` says why there is no label."""

    inputs: tuple[str, ...]
    label: str | None
    label_problem: str | None = None

    def __str__(self) -> str:
        label = f"label {self.label}" if self.label else "no label"
        return f"input {', '.join(self.inputs)}; {label}"


def nested_columns(features: datasets.Features, columns: Columns) -> dict[str, Any]:
    """Returns the types of those named columns that lie inside another, as `translation.en` does."""
    named = (columns.image, *(columns.text or "").split(","), columns.label)
    inside = (name for name in named if name and "." in name and name not in features)
    return {name: found for name in inside if (found := _type_at(features, name.split("."))) is not None}


def value_at(row: Any, name: str) -> Any:
    """Returns the value of a row in a column that lies inside another; None where the other holds nothing."""
    for part in name.split("."):
        row = None if row is None else row[part]
    return row


def _type_at(feature: Any, path: Sequence[str]) -> Any:
    for part in path:
        inside = feature.flatten() if isinstance(feature, datasets.Translation) else feature
        if not isinstance(inside, dict) or part not in inside:
            return None
        feature = inside[part]
    return feature


def choose_columns(table: datasets.Dataset, modality: Modality, columns: Columns, where: str) -> ChosenColumns:
    """Returns the columns named, or the only ones that fit; a missing label is left to whoever needs labels.

    Raises:
        DataError: a named column is not there, or no input column, or several, fit; lists the columns.
    """
    features = table.features
    label, problem = _label(features, columns, where)
    option = "`image_column`" if modality == "image" else "`text_column`"
    named = _named_inputs(features, columns, modality, where)
    if named:
        return ChosenColumns(named, label, problem)
    found = _image_candidates(features) if modality == "image" else _text_candidates(features, label)
    if not found:
        raise DataError(f"{where}: no {modality} column among {describe(features)}; name it with {option}")
    if len(found) > 1:
        many = " or ".join(", ".join(inputs) for inputs in found)
        raise DataError(f"{where}: the {modality} column could be {many}; name it with {option}")
    return ChosenColumns(found[0], label, problem)


def describe(features: datasets.Features) -> str:
    """Returns names and types of columns, for one line of an error."""
    return ", ".join(f"{name} ({type_name(feature)})" for name, feature in features.items()) or "no columns at all"


def type_name(feature: Any) -> str:
    """Returns the type of a column, as messages call it."""
    return str(feature.dtype) if isinstance(feature, datasets.Value) else type(feature).__name__


def _named_inputs(
    features: datasets.Features, columns: Columns, modality: Modality, where: str
) -> tuple[str, ...] | None:
    named = columns.image if modality == "image" else columns.text
    if named is None:
        return None
    # A column whose own name has a comma in it is meant as it stands.
    inputs = (named,) if named in features or modality == "image" else tuple(named.split(","))
    missing = [name for name in inputs if name not in features]
    if missing and columns.strict:
        raise DataError(f"{where}: has no column {missing[0]!r}, only {describe(features)}")
    if len(inputs) > 2:
        raise DataError(f"{where}: `text_column` {named} names {len(inputs)} columns: one, or two for pairs of texts")
    return None if missing else inputs


def _label(features: datasets.Features, columns: Columns, where: str) -> tuple[str | None, str | None]:
    if columns.label is not None:
        if columns.label in features:
            return columns.label, None
        problem = f"has no column {columns.label!r}, only {describe(features)}"
        if columns.strict:
            raise DataError(f"{where}: {problem}")
    classes = [name for name, feature in features.items() if isinstance(feature, datasets.ClassLabel)]
    found = classes or [name for name in features if name.lower() in LABEL_NAMES]
    found = _preferred(found, LABEL_NAMES) or found
    if len(found) == 1:
        return found[0], None
    if found:
        return None, f"the label column could be {' or '.join(found)}; name it with `label_column`"
    return None, f"has no label column among {describe(features)}; name it with `label_column`"


def _preferred(found: list[str], names: tuple[str, ...]) -> list[str]:
    """Returns the first of `names` that was found, alone, or an empty list."""
    return next(([column] for name in names for column in found if column.lower() == name), [])


def _image_candidates(features: datasets.Features) -> list[tuple[str, ...]]:
    found = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    found = found or [name for name, feature in features.items() if _holds_encoded_image(feature)]
    found = found or _preferred([name for name in features if is_text(features[name])], IMAGE_NAMES)
    return [(name,) for name in _preferred(found, IMAGE_NAMES) or found]


def _holds_encoded_image(feature: Any) -> bool:
    if isinstance(feature, datasets.Value):
        return feature.dtype in ("binary", "large_binary")
    return isinstance(feature, dict) and set(feature) == {"bytes", "path"}


def is_text(feature: Any) -> bool:
    """Returns whether a column of this type holds strings."""
    return isinstance(feature, datasets.Value) and feature.dtype in ("string", "large_string")


def _text_candidates(features: datasets.Features, label: str | None) -> list[tuple[str, ...]]:
    # A webdataset's own columns, __key__ and __url__, are no data.
    texts = [name for name, feature in features.items() if is_text(feature) and name != label and name[:2] != "__"]
    for pair in TEXT_PAIRS:
        if set(pair) <= set(texts):
            return [pair]
    return [(name,) for name in _preferred(texts, TEXT_NAMES) or texts]
