"""The classes of a zero-shot model: named by the user, or by the data it is asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hydractl.data.files import decode_text, read_bytes
from hydractl.data.labels import folded
from hydractl.errors import DataError, OptionError

if TYPE_CHECKING:
    from hydractl.data.samples import Samples
    from hydractl.data.streams import SampleStream
    from hydractl.model.hydra import Hydra


def read_classes(classes: str | Path | Sequence[str]) -> tuple[str, ...]:
    """Class names: those given, or those in a text file, one a line; blank lines do not count.

    Args:
        classes: a file, or the names themselves.

    Raises:
        DataError: the file cannot be read, or there is no name.
        OptionError: something that is no text among the names.
    """
    if isinstance(classes, str | Path):
        lines = decode_text(read_bytes(Path(classes)), str(classes), "one class name a line").splitlines()
    else:
        lines = list(classes)
        if odd := [name for name in lines if not isinstance(name, str)]:
            raise OptionError(f"`classes` {odd[0]!r}: is {type(odd[0]).__name__}, no class name")
    names = tuple(line.strip() for line in lines if line.strip())
    if not names:
        where = classes if isinstance(classes, str | Path) else "`classes`"
        raise DataError(f"{where}: names no class: give one or more, in a file one a line")
    return names


def set_classes(
    model: Hydra, classes: str | Path | Sequence[str] | None, template: str, samples: Samples | SampleStream
) -> None:
    """Tells a zero-shot model its classes: those named, or those of the ID data.

    Raises:
        OptionError: neither names them, or the model is not zero-shot and has classes of its own.
    """
    if model.spec.task != "zero-shot" and classes is None:
        return
    names = read_classes(classes) if classes is not None else samples.label_names
    if names is None:
        raise OptionError(f"{samples.name}: its labels have no names to make prompts of: name them with `classes`")
    model.set_classes(names, template)


def only_classes(samples: Samples, file: str | Path) -> Samples:
    """The samples of the classes that a file names, which count in its order: a class subset, as ImageNet-200 is.

    Raises:
        DataError: the file cannot be read, or names what is no class of the data.
    """
    names = read_classes(Path(file))
    if samples.labels is None or samples.label_names is None:
        raise DataError(f"{samples.name}: its labels have no names to be found in {file}")
    places = {folded(name): at for at, name in enumerate(samples.label_names)}
    if unknown := [name for name in names if folded(name) not in places]:
        raise DataError(f"{file}: {unknown[0]} is no class of {samples.name}: write its classes, each in a line")
    number = np.full(len(samples.label_names) + 1, -1)  # the last is that of a missing label, -1
    number[[places[folded(name)] for name in names]] = np.arange(len(names))
    labels = number[samples.labels]
    kept = np.flatnonzero(labels >= 0)
    if not len(kept):
        raise DataError(f"{samples.name}: has no sample of the classes in {file}: name others")
    return replace(samples.subset(kept), labels=labels[kept], label_names=names)
