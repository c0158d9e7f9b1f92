"""The classes of a zero-shot model: named by the user, or by the data it is asked about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hydractl.data.files import read_text
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
        lines = read_text(Path(classes), "one class name a line").splitlines()
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
