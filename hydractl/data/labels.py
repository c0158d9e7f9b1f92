"""The labels of data, which class of a model each of them is, and the classes of a zero-shot model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hydractl.bounds import SEED, whole
from hydractl.data.files import decode_text, read_bytes
from hydractl.data.reading import DEFAULT_TEMPLATE
from hydractl.data.samples import Labels, Samples
from hydractl.data.table_columns import column_values
from hydractl.data.words import UNTAGGED, Words, require_tags
from hydractl.errors import DataError, OptionError
from hydractl.text import composed, composed_all, distinct, nearest, told_apart

if TYPE_CHECKING:
    import datasets

    from hydractl.model.hydra import Hydra

LARGEST = 2**53  # of numbers that may be classes: up to here floating point holds all whole ones
MISSING = -1  # as GLUE and SNLI mark a sample that has no label
TRUTH = ("False", "True")  # the names of booleans
NUMBER = re.compile(r"(-?\d+)(\.0+)?")  # a class called 1, 01 or 1.0
NO_NAME = re.compile(r"LABEL_\d+")  # what transformers calls a class without a name


def read_labels(table: datasets.Dataset, column: str) -> tuple[Labels, tuple[str, ...] | None] | str:
    """Returns labels `[N]` and their class names (None for bare numbers), or a text that explains why there are none.

    A missing label is -1. Words are numbered in sorted order. A column of lists, or several columns of 0 and 1 with
    commas between their names, holds labels `[N,K]`.
    """
    import datasets

    if column not in table.features:
        return _read_columns(table, column.split(","))
    feature = table.features[column]
    kind, values = column_values(table, column)
    if isinstance(feature, datasets.ClassLabel):
        return _numbers(values), composed_all(feature.names)
    if isinstance(inner := getattr(feature, "feature", None), datasets.ClassLabel | datasets.Value):
        return label_lists(values, getattr(inner, "names", None))
    if kind == "string":
        return label_words(values)
    if kind == "bool":
        return _numbers(values), TRUTH
    # A column of whole numbers with gaps is read as floating point.
    values = [None if value != value else value for value in values]
    numeric = re.fullmatch(r"u?int\d+|float\d+", kind) is not None
    if numeric and all(value is None or (value == value // 1 and abs(value) <= LARGEST) for value in values):
        return _numbers(values), None
    return f"column {column} holds {kind}, not classes"


def label_words(values: Sequence[str | None]) -> tuple[Labels, tuple[str, ...]]:
    """Returns labels `[N]` and the sorted class names that they index; an empty name is a missing label."""
    words = [composed(value) if value else None for value in values]
    names = tuple(sorted({word for word in words if word}))
    place = {name: at for at, name in enumerate(names)}
    return np.array([place[word] if word else MISSING for word in words], dtype=np.int64), names


def label_lists(
    values: Sequence[Sequence[Any] | None], names: Sequence[str] | None = None
) -> tuple[Labels, tuple[str, ...] | None] | str:
    """Returns labels `[N,K]`, 1 where a sample's list holds the name, or a text that explains why there are none.

    Args:
        values: a list of names, or of numbers that count from 0, for each sample.
        names: of these numbers.
    """
    if (missing := next((at for at, value in enumerate(values) if value is None), None)) is not None:
        return f"sample {missing} has no list of labels: fill it in, or write an empty list"
    listed = [(at, label) for at, value in enumerate(values) for label in value or ()]
    kind = str if listed and isinstance(listed[0][1], str) else int
    if odd := [(at, label) for at, label in listed if type(label) is not kind]:
        return f"the list of sample {odd[0][0]} holds {odd[0][1]!r}: give only names, or only whole numbers"
    if twice := [at for at, value in enumerate(values) if value is not None and len(set(value)) < len(value)]:
        remedy = "list the labels that apply, not 0 or 1 for each label"
        return f"the list of sample {twice[0]} holds a label twice: {remedy}"
    if kind is str:
        listed = [(at, composed(label)) for at, label in listed]
        names = tuple(sorted({label for _, label in listed}))
        place = {name: at for at, name in enumerate(names)}
        listed = [(at, place[label]) for at, label in listed]
    size = len(names) if names is not None else 1 + max((label for _, label in listed), default=0)
    if strange := [at for at, label in listed if not 0 <= label < size]:
        return f"a label of sample {strange[0]} is not from 0 to {size - 1}"
    labels = np.zeros((len(values), size), dtype=np.int64)
    for row in listed:
        labels[row] = 1
    return labels, composed_all(names)


def _read_columns(table: datasets.Dataset, columns: Sequence[str]) -> tuple[Labels, tuple[str, ...]] | str:
    """Returns labels `[N,K]` of K columns of 0 and 1, which name them, or a text that explains why there are none."""
    labels = []
    for column in columns:
        labels.append(values := column_values(table, column)[1])
        for at, value in enumerate(values):
            if value not in (0, 1):
                return f"column {column} of sample {at} is {value!r}, not 0 or 1"
    return np.array(labels, dtype=np.int64).T, tuple(columns)


def _numbers(values: Sequence[Any]) -> Labels:
    return np.array([MISSING if value is None else value for value in values], dtype=np.int64)


def match_labels(
    samples: Samples,
    model_labels: Sequence[str],
    how: Literal["name", "index"] = "name",
    several: bool = False,
    tagged: bool = False,
) -> Samples:
    """Returns the samples with the labels and label names of the model.

    Args:
        model_labels: the model's class names in order of its logits; LABEL_0 ... are no names.
        how: by name (ignoring case, `_` and `-` where that is unambiguous; numbers of which none is a class's name,
            and booleans where no class is called so, by index, with a note) or by index.
        several: whether a sample has several labels of the model, `[N,C]`, rather than one class.
        tagged: whether each word has a label, `[N,W]`.

    Raises:
        DataError: missing labels, a side without names, a name that the model lacks, a number out of range, or numbers
            of which some are names of classes that stand in other places.
    """
    if samples.label_names == TRUTH and not {folded(label) for label in model_labels} & {"false", "true"}:
        samples = replace(samples, label_names=None)  # 0 and 1, as to every library, of classes with other names
    if samples.labels is None or samples.labels.dtype.kind == "f":
        numbers = "holds numbers, but the model takes classes or labels"
        problem = samples.label_problem or ("holds no labels" if samples.labels is None else numbers)
        raise DataError(f"{samples.name}: {problem}")
    if tagged:
        return _match_tags(samples, model_labels, how)
    if samples.tagged:
        raise DataError(
            f"{samples.name}: holds a tag for each word, but the model classifies whole texts: name other data"
        )
    if several != (samples.labels.ndim == 2):
        lists = "the model is multi-label: name a column of lists, or columns of 0 and 1 separated by commas"
        single = "the model chooses one class: name a column of classes"
        held = f"one class per sample, but {lists}" if several else f"several labels per sample, but {single}"
        raise DataError(f"{samples.name}: holds {held}, by `label_column`")
    if several:
        columns = replace(samples, labels=np.arange(samples.labels.shape[1]))
        matched = match_labels(columns, model_labels, how)
        assert matched.labels is not None
        labels = np.zeros((len(samples), len(model_labels)), dtype=np.int64)
        labels[:, matched.labels] = samples.labels
        return replace(matched, labels=labels)
    _require_classes(samples, samples.labels)
    numbered = how == "name" and _numbered(samples, samples.labels, model_labels)
    notes: tuple[str, ...] = ()
    if numbered:
        shown = ", ".join(f"{place} is {label}" for place, label in enumerate(model_labels[:3]))
        notes = (f"{samples.name}: labels have no names, so they count as places of the model's classes: {shown}",)
    if how == "index" or numbered:
        labels = _by_index(samples, samples.labels, len(model_labels))
    else:
        labels = _by_name(samples, samples.labels, model_labels)
    return replace(samples, labels=labels, label_names=tuple(model_labels), notes=(*samples.notes, *notes))


def _require_classes(samples: Samples, labels: Labels) -> None:
    if len(missing := np.flatnonzero(labels < 0)):
        column = f" in column {samples.label_column}" if samples.label_column else ""
        raise DataError(
            f"{samples.name}: sample {missing[0]} has no label{column} (-1 or empty), {len(missing)} of {len(samples)} "
            "samples lack one: fill in or remove them, or name a split with labels"
        )
    if samples.label_names is not None and (most := int(labels.max(initial=0))) >= len(samples.label_names):
        raise DataError(
            f"{samples.name}: label {most} is not among its classes {_listed(samples.label_names)}: correct it"
        )


def _match_tags(samples: Samples, model_labels: Sequence[str], how: Literal["name", "index"]) -> Samples:
    if not samples.tagged or samples.labels is None:
        raise DataError(
            f"{samples.name}: has no tags, but the model labels words: give lists of words and lists of their tags"
        )
    there, names = samples.labels >= 0, samples.label_names
    used, flat = np.unique(samples.labels[there], return_inverse=True)
    if names is not None and used.max(initial=0) < len(names):
        names, numbers = tuple(names[number] for number in used), samples.labels.copy()
        numbers[there] = flat
        samples = replace(samples, labels=numbers, label_names=names)
    nameless = how == "index" or all(map(NO_NAME.fullmatch, model_labels))
    require_tags(samples, allowed=names or () if nameless else [composed(label) for label in model_labels])
    labels = samples.labels
    assert labels is not None
    matched = match_labels(replace(samples, labels=labels[there], tagged=False), model_labels, how)
    assert matched.labels is not None
    labels = labels.copy()
    labels[there] = matched.labels
    return replace(matched, labels=labels, tagged=True)


def with_some_tags(samples: Samples, model_labels: Sequence[str]) -> Samples:
    """Returns sentences with the first label for each word, where a teacher tells what words are.

    Raises:
        DataError: plain texts, whose words are not known.
    """
    if not all(isinstance(sentence, Words) for sentence in samples.inputs):
        raise DataError(f"{samples.name}: its texts are not divided into words: give a column of lists of words")
    labels = np.full((len(samples), max(len(sentence.words) for sentence in samples.inputs)), UNTAGGED, dtype=np.int64)
    for row, sentence in enumerate(samples.inputs):
        labels[row, : len(sentence.words)] = 0
    return replace(samples, labels=labels, label_names=tuple(model_labels), tagged=True)


def _numbered(samples: Samples, labels: Labels, model_labels: Sequence[str]) -> bool:
    """Returns whether the labels of the data are numbers that can only be places of the model's classes.

    Names beside LABEL_0 ... of the model are another matter: their order is unknown.
    """
    names = samples.label_names
    if names is None:
        targets, numbers = list(map(_plain_number, model_labels)), list(map(str, np.unique(labels)))
        called = [number for number in numbers if number in targets]
        if len(called) == len(numbers) or all(map(NUMBER.fullmatch, model_labels)):
            return False
        if any(targets.index(number) != int(number) for number in called):
            places = [number for number in numbers if number not in targets]
            raise DataError(
                f"{samples.name}: the labels {_listed(called)} are names of classes, {_listed(places)} are not: pass "
                f"`match_labels` index if all are places of the model's classes {_listed(model_labels)}"
            )
        return True
    nameless = all(map(NO_NAME.fullmatch, model_labels))
    return all(NO_NAME.fullmatch(name) or (nameless and name.isdecimal()) for name in names)


def _plain_number(name: str) -> str:
    """Returns a class name that is a whole number as Python writes it, and any other as it is."""
    number = NUMBER.fullmatch(name)
    return composed(name) if number is None else str(int(number[1]))


def unnamed(classes: int | None) -> tuple[str, ...]:
    """Returns what transformers calls classes without names."""
    return tuple(f"LABEL_{place}" for place in range(classes or 0))


def _by_name(samples: Samples, labels: Labels, model_labels: Sequence[str]) -> Labels:
    names, targets = composed_all(samples.label_names), list(map(composed, model_labels))
    if names is None:
        # Bare numbers are names too where the model's classes are called 0, 1, 2 ...
        labels, names = label_words([str(label) for label in labels])
        targets = list(map(_plain_number, model_labels))
    by_index = "pass `match_labels` index if both have the same order"
    if all(map(NO_NAME.fullmatch, model_labels)):
        remedy = by_index if len(names) == len(targets) else "give data of the model's classes"
        raise DataError(f"{samples.name}: labels are {_listed(names)}, the model's classes have no names: {remedy}")
    if distinct(names) == distinct(targets):
        return labels
    keys = list(names)
    if not set(keys) <= set(targets):
        keys, targets = [folded(name) for name in keys], [folded(label) for label in targets]
    if several := [name for name, key in zip(names, keys, strict=True) if f"{key} #2" in {*targets} - {*keys}]:
        raise DataError(
            f"{samples.name}: the model has several classes called {several[0]}: call them {several[0]} and "
            f"{several[0]} #2 in the data too, or {by_index}"
        )
    one_to_one = [len({name for name, other in zip(names, keys, strict=True) if other == key}) == 1 for key in keys]
    matched = [targets.count(key) == 1 and single for key, single in zip(keys, one_to_one, strict=True)]
    if not all(matched):
        unmatched = [name for name, is_matched in zip(names, matched, strict=True) if not is_matched]
        near = [(name, near) for name in unmatched if (near := nearest(name, model_labels)) is not None]
        meant = f"; did you mean {', '.join(told_apart(*pair) for pair in near[:3])}?" if near else ""
        # Where some names match, they show the order, which is rarely that of the other side.
        strange = not set(keys) & set(targets) and len(names) == len(targets)
        remedy = f"rename them, or {by_index}" if strange else "rename them, or give data of the model's classes"
        raise DataError(
            f"{samples.name}: no single match for {_listed(unmatched)}{meant}: {remedy}; labels are {_listed(names)}, "
            f"the model's are {_listed(model_labels)}"
        )
    return np.array([targets.index(key) for key in keys], dtype=np.int64)[labels]


def _by_index(samples: Samples, labels: Labels, classes: int) -> Labels:
    names = samples.label_names or ()
    numbers = [number for name in names if (number := whole(name.removeprefix("LABEL_"), 0, SEED)) is not None]
    if names and len(numbers) == len(names):
        # Words such as "10" and "9" are not sorted by number.
        labels = np.array(numbers, dtype=np.int64)[labels]
    if beyond := int((labels >= classes).sum()):
        raise DataError(
            f"{samples.name}: {beyond} of {len(labels)} labels lie outside the model's classes "
            f"0 to {classes - 1}, the largest is {labels.max()}: is this the model's own data?"
        )
    return labels


def folded(name: str) -> str:
    """Returns a class name for comparison: without upper case, `_` and `-`."""
    return composed(re.sub(r"[\s_-]+", " ", composed(name)).strip().casefold())


def _listed(names: Sequence[str], most: int = 12) -> str:
    rest = f", ... ({len(names)} in all)" if len(names) > most else ""
    return f"[{', '.join(names[:most])}{rest}]"


def read_classes(classes: str | Path | Sequence[str]) -> tuple[str, ...]:
    """Returns the given class names, or those in a text file, one a line; blank lines are ignored.

    Raises:
        DataError: the file cannot be read, or there is no name.
        OptionError: a name is no text.
    """
    if isinstance(classes, str | Path):
        content = read_bytes(Path(classes), "write one class name per line into a file")
        text = decode_text(content, str(classes), "one class name per line")
        lines = list(StringIO(text, newline=None))
    else:
        lines = list(classes)
        if odd := [name for name in lines if not isinstance(name, str)]:
            raise OptionError(f"`classes` {odd[0]!r}: expected a class name, got {type(odd[0]).__name__}")
    names = tuple(composed(line.strip()) for line in lines if line.strip())
    if not names:
        where = classes if isinstance(classes, str | Path) else "`classes`"
        raise DataError(f"{where}: names no class: give one or more (in a file, one per line)")
    if len({*names}) < len(names):
        where, (twice, _) = classes if isinstance(classes, str | Path) else "`classes`", Counter(names).most_common()[0]
        raise DataError(f"{where}: names {twice} several times: name each class once")
    return names


def with_some_class(samples: Samples, shape: tuple[int, ...] = (), names: tuple[str, ...] = ()) -> Samples:
    """Returns the samples with labels of zeros, where nothing reads labels.

    Args:
        shape: of the labels of one sample.
    """
    return replace(samples, labels=np.zeros((len(samples), *shape), dtype=np.int64), label_names=names)


def name_classes(model: Hydra, classes: str | Path | Sequence[str] | None, template: str) -> None:
    """Gives a zero-shot model the classes that are named, if any.

    Raises:
        OptionError: a template without classes, or the model has classes of its own.
    """
    if classes is not None:
        model.set_classes(read_classes(classes), template)
    elif template != DEFAULT_TEMPLATE:
        raise OptionError(f"`template` {template} has no effect without `classes`: give both or neither")


def set_classes(model: Hydra, classes: str | Path | Sequence[str] | None, template: str, samples: Samples) -> None:
    """Gives a zero-shot model its classes: those named, or those of the ID data.

    Raises:
        OptionError: no classes are named, or the model has classes of its own.
    """
    if classes is None and model.task.template(template) is None:
        return
    names = read_classes(classes) if classes is not None else samples.label_names
    if names is None:
        raise OptionError(f"{samples.name}: its labels have no names to make prompts of: name them with `classes`")
    model.set_classes(names, template)
