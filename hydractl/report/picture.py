"""Files for pictures: which kinds there are, and writing one so that the same picture is the same bytes."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.checkpoint.atomic import refuse_existing, write_bytes
from hydractl.errors import OptionError
from hydractl.optional import require
from hydractl.style import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The date and the program's version would change the bytes.
METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def check_picture(path: Path, force: bool) -> None:
    """Nothing, if a picture can be written there: called before long work starts.

    Raises:
        OptionError: not .png, .svg or .pdf, or matplotlib is not installed.
        OutputError: the file exists and `force` is not set.
    """
    if path.suffix not in METADATA:
        raise OptionError(f"`plot` {path}: draws {', '.join(METADATA)}: end the name in one of them")
    require("matplotlib")
    refuse_existing(path, force)


@styled
def write_picture(figure: Figure, path: Path, force: bool) -> None:
    """Writes a picture in the format its name ends in."""
    out = BytesIO()
    figure.savefig(out, format=path.suffix[1:], dpi=150, metadata=METADATA[path.suffix])
    write_bytes(path, out.getvalue(), force)
