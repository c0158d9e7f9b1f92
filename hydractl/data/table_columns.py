"""Finds the columns of a table that hold the images, the texts and the labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hydractl.data.reading import Modality, Reading
from hydractl.errors import DataError
from hydractl.text import composed

if TYPE_CHECKING:
    import datasets

# In order of preference; a name decides only where types leave a choice.
LABEL_NAMES = ("label", "labels", "class", "category", "target", "cls", "y", "score")
IMAGE_NAMES = ("image", "img", "jpg", "jpeg", "png", "webp", "file_name", "image_path", "path", "file")
TEXT_NAMES = ("text", "sentence")
# Of sentences as lists of words, and of the lists of their tags.
WORD_NAMES = ("tokens", "words")
TAG_NAMES = ("tags", "ner_tags", "labels", "label", "pos_tags", "upos")
TEXT_PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text1", "text2"),
)
#: Loaders of `datasets` that give every cell as it is written, and what its text may be beside a word.
TEXT_LOADERS = ("csv", "text")
WRITTEN = {
    "int64": r"^\s*[+-]?\d{1,300}\s*$",
    "float64": r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$",
    "bool": "^(true|True|TRUE|false|False|FALSE)$",
}


@dataclass(frozen=True)
class ChosenColumns:
    """The columns in use: one input column, or two for pairs. `label_problem` explains a missing label."""

    inputs: tuple[str, ...]
    label: str | None
    label_problem: str | None = None


def with_composed_columns(table: datasets.Dataset) -> datasets.Dataset:
    """Returns the table with the names of its columns in the Unicode form of `composed`, unless two become one."""
    names = list(map(composed, table.column_names))
    same = names == table.column_names or len(set(names)) < len(names)
    return table if same else table.rename_columns(dict(zip(table.column_names, names, strict=True)))


def with_composed_names(reading: Reading) -> Reading:
    """Returns the options with the names of columns in that form."""
    columns = {key: name for key, name in vars(reading).items() if key.endswith("_column") and name is not None}
    forms: dict[str, Any] = {key: composed(name) for key, name in columns.items()}
    return replace(reading, **forms)


def types_as_read(table: datasets.Dataset) -> datasets.Features:
    """Returns the types of columns; a column of a text file has that which all of its cells read as."""
    if table.builder_name not in TEXT_LOADERS:
        return table.features
    import datasets

    read = {name: written_type(table, name) for name, kind in table.features.items() if is_text(kind)}
    return datasets.Features({**table.features, **{name: datasets.Value(kind) for name, kind in read.items()}})


def written_type(table: datasets.Dataset, column: str) -> str:
    """Returns the type of a column of texts: that of numbers or booleans, if all cells but empty ones hold these."""
    if table.builder_name not in TEXT_LOADERS:
        return "string"
    from pyarrow import compute

    def holds_only(pattern: str) -> bool:
        chunks = table.data.column(column).chunks
        return all(compute.all(compute.match_substring_regex(chunk, pattern)).as_py() is not False for chunk in chunks)

    return next((kind for kind, pattern in WRITTEN.items() if holds_only(pattern)), "string")


def column_values(table: datasets.Dataset, column: str) -> tuple[str, list[Any]]:
    """Returns the type of a column and its values, those of a text file as they read; None for a missing one."""
    feature = table.features[column]
    values: list[Any] = table.select_columns([column]).with_format("arrow")[:][column].to_pylist()
    if not is_text(feature):
        return type_name(feature), values
    converters: dict[str, Any] = {"int64": int, "float64": float, "bool": lambda word: word.lower() == "true"}
    convert = converters.get(kind := written_type(table, column), str)
    return kind, [None if value is None else convert(value) for value in values]


def nested_columns(features: datasets.Features, reading: Reading) -> dict[str, Any]:
    """Returns the types of those named columns that lie inside another, as `translation.en` does."""
    flat = features.flatten()
    names = (reading.image_column, *(reading.text_column or "").split(","), reading.label_column)
    return {name: flat[name] for name in names if name and name in flat and name not in features}


def choose_columns(
    features: datasets.Features, modality: Modality, reading: Reading, where: str, strict: bool = True
) -> ChosenColumns:
    """Returns the named columns, or the only ones that fit. A missing label is no error here.

    Args:
        strict: whether a named column must be there; otherwise detection takes over.

    Raises:
        DataError: a named column is missing, or not exactly one input column fits; lists the columns.
    """
    label, problem = _label(features, reading.label_column, where, strict)
    option = "`image_column`" if modality == "image" else "`text_column`"
    column = reading.image_column if modality == "image" else reading.text_column
    chosen = () if column is None else _named_inputs(features, column, modality, where)
    missing = [name for name in chosen if name not in features]
    if missing and strict:
        raise DataError(f"{where}: has no column {missing[0]!r}, only {_describe(features)}")
    if chosen and not missing:
        return _with_tags(features, ChosenColumns(chosen, label, problem), reading)
    candidates = _image_candidates(features) if modality == "image" else _text_candidates(features, label)
    if not candidates:
        remedy = f"give {modality}s, which the model takes, or name their column with {option}"
        raise DataError(f"{where}: no {modality} column among {_describe(features)}: {remedy}")
    if len(candidates) > 1:
        many = " or ".join(", ".join(inputs) for inputs in candidates)
        raise DataError(f"{where}: the {modality} column could be {many}; name it with {option}")
    return _with_tags(features, ChosenColumns(candidates[0], label, problem), reading)


def _with_tags(features: datasets.Features, chosen: ChosenColumns, reading: Reading) -> ChosenColumns:
    """Returns the columns, with that of tags where sentences are lists of words and no other column is named."""
    if not holds_words(features[chosen.inputs[0]]) or reading.label_column is not None:
        return chosen
    tags = _preferred([name for name in features if hasattr(features[name], "feature")], TAG_NAMES)
    remedy = f"has no column of tags among {_describe(features)}; name it with `label_column`"
    return ChosenColumns(chosen.inputs, tags[0]) if tags else ChosenColumns(chosen.inputs, None, remedy)


def holds_words(feature: Any) -> bool:
    """Returns whether a column of this type holds lists of strings."""
    return is_text(getattr(feature, "feature", None))


def _describe(features: datasets.Features) -> str:
    """Returns names and types of columns, for one line of an error."""
    return ", ".join(f"{name} ({type_name(feature)})" for name, feature in features.items()) or "no columns at all"


def type_name(feature: Any) -> str:
    """Returns the type of a column, as messages call it."""
    return str(feature.dtype) if _is_a(feature, "Value") else type(feature).__name__


def _is_a(feature: Any, kind: str) -> bool:
    # By name: the library takes two seconds to load, and values of a program have no columns.
    return type(feature).__name__ == kind


def _named_inputs(features: datasets.Features, column: str, modality: Modality, where: str) -> tuple[str, ...]:
    # A column whose own name has a comma in it counts as one column.
    inputs = (column,) if column in features or modality == "image" else tuple(column.split(","))
    if len(inputs) > 2 or len(set(inputs)) < len(inputs):
        raise DataError(f"{where}: `text_column` {column}: name one column, or two for pairs of texts")
    return inputs


def _label(features: datasets.Features, column: str | None, where: str, strict: bool) -> tuple[str | None, str | None]:
    if column in features or (column is not None and set(column.split(",")) <= set(features)):
        return column, None
    if column is not None and strict:
        raise DataError(f"{where}: has no column {column!r}, only {_describe(features)}")
    classes = [name for name, feature in features.items() if _is_a(feature, "ClassLabel")]
    candidates = classes or [name for name in features if name.lower() in LABEL_NAMES]
    candidates = _preferred(candidates, LABEL_NAMES) or candidates
    if len(candidates) == 1:
        return candidates[0], None
    if candidates:
        return None, f"the label column could be {' or '.join(candidates)}; name it with `label_column`"
    remedy = "name it with `label_column`"
    if len(features) == 1:
        is_image = _is_a(next(iter(features.values())), "Image")
        remedy = "sort images into a folder for each class" if is_image else "add it, with commas between CSV's columns"
    return None, f"has no label column among {_describe(features)}; {remedy}"


def _preferred(columns: list[str], names: tuple[str, ...]) -> list[str]:
    """Returns the first of `names` that was found, alone, or an empty list."""
    return next(([column] for name in names for column in columns if column.lower() == name), [])


def _image_candidates(features: datasets.Features) -> list[tuple[str, ...]]:
    columns = [name for name, feature in features.items() if _is_a(feature, "Image")]
    columns = columns or [name for name, feature in features.items() if _holds_encoded_image(feature)]
    columns = columns or _preferred([name for name in features if is_text(features[name])], IMAGE_NAMES)
    return [(name,) for name in _preferred(columns, IMAGE_NAMES) or columns]


def _holds_encoded_image(feature: Any) -> bool:
    if _is_a(feature, "Value"):
        return feature.dtype in ("binary", "large_binary")
    return isinstance(feature, dict) and set(feature) == {"bytes", "path"}


def is_text(feature: Any) -> bool:
    """Returns whether a column of this type holds strings."""
    return _is_a(feature, "Value") and feature.dtype in ("string", "large_string")


def reads_as_text(feature: Any) -> bool:
    """Returns whether a column of this type holds strings, or numbers or dates that read as such."""
    return _is_a(feature, "Value") and feature.dtype not in ("binary", "large_binary", "null")


def _text_candidates(features: datasets.Features, label: str | None) -> list[tuple[str, ...]]:
    # A webdataset's own columns, __key__ and __url__, are no data.
    readable = [name for name in features if reads_as_text(features[name]) and name != label and name[:2] != "__"]
    for pair in TEXT_PAIRS:
        if set(pair) <= set(readable):
            return [pair]
    # Numbers are texts where a name says so: others are identifiers, most often.
    columns = _preferred(readable, TEXT_NAMES) or [name for name in readable if is_text(features[name])]
    words = [] if columns else _preferred([name for name in features if holds_words(features[name])], WORD_NAMES)
    return [(name,) for name in columns or words]
