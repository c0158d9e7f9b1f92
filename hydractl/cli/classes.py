"""The file behind `--classes`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hydractl.errors import DataError, OptionError

if TYPE_CHECKING:
    from hydractl.data.samples import Samples
    from hydractl.data.streams import SampleStream
    from hydractl.model.hydra import Hydra


def read_classes(path: Path) -> tuple[str, ...]:
    """The class names in a text file, one a line; blank lines do not count.

    Raises:
        DataError: the file cannot be read or names no class.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot read class names ({error}): one name a line, in UTF-8") from error
    names = tuple(line.strip() for line in lines if line.strip())
    if not names:
        raise DataError(f"{path}: names no class: write one name a line")
    return names


def set_classes(model: Hydra, classes: Path | None, template: str, samples: Samples | SampleStream) -> None:
    """Tells a zero-shot model its classes: those of the file, or those of the ID data.

    Raises:
        OptionError: neither names them, or the model is not zero-shot and has classes of its own.
    """
    if model.spec.task != "zero-shot" and classes is None:
        return
    names = read_classes(classes) if classes is not None else samples.label_names
    if names is None:
        raise OptionError(f"{samples.name}: its labels have no names to make prompts of: pass --classes FILE")
    model.set_classes(names, template)
