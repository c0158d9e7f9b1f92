"""Packages that come with an extra, since `prune`, `fuse` and most of the rest do without them.

They are imported like any other, where they are used. A step turns the error of one that is missing into a line that
names the extra; one that is needed only at the end of long work is required at its beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec

from hydractl.errors import OptionError

#: The extra of this project that a package comes with, by the name under which it is imported.
EXTRAS = {
    "accelerate": "train",
    "furo": "docs",
    "matplotlib": "plots",
    "myst_parser": "docs",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "sklearn": "ood",
    "sphinx": "docs",
}


@contextmanager
def naming_extras() -> Iterator[None]:
    """Names the extra of a missing package in the error.

    Raises:
        OptionError: in place of the import's error.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        # A part that an installed package lacks is another matter: its version is too old or too new.
        if package not in EXTRAS or _is_installed(package):
            raise
        raise OptionError(
            f"this takes {package}, which is not installed: pip install 'hydractl[{EXTRAS[package]}]'"
        ) from error


def require(*packages: str) -> None:
    """Raises OptionError if a package cannot be imported; for use before long work that ends with it.

    Raises:
        OptionError: one cannot.
    """
    with naming_extras():
        for package in packages:
            import_module(package)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # as a finder that refuses it may say
        return False
