"""The file behind `--classes`."""

from __future__ import annotations

from pathlib import Path

from hydractl.errors import DataError


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
