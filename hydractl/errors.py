"""The errors a user can cause, a missing package of an extra among them.

Each carries one line: the file, what was found there, and what to do about it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec

from hydractl.text import abridged, first_sentence, one_line, without_secrets

LONGEST = 600  # characters of a message, names of files included
#: The extra that installs a package, by the name under which it is imported; the core works without all of them.
EXTRAS = {"accelerate": "train", "matplotlib": "plots", "onnx": "onnx", "onnxruntime": "onnx", "onnxscript": "onnx"}


class HydractlError(Exception):
    """A problem the user can mend. Its text is one line; the command line exits with `exit_code`."""

    exit_code = 1

    def __str__(self) -> str:
        """Returns the message on one line, without control characters and secrets.

        Keeps only the first sentence of a message of another library that caused the error.
        """
        message = super().__str__()
        cause = self.__cause__
        if cause is not None and not isinstance(cause, HydractlError) and (foreign := str(cause)):
            message = message.replace(foreign, first_sentence(foreign))
        return abridged(one_line(without_secrets(message)), LONGEST)


class CheckpointError(HydractlError):
    """Weights, config or manifest of a checkpoint are missing, damaged, unknown or do not fit each other."""


class ArtifactError(HydractlError):
    """A scores, circuit or report JSON file is damaged, of another format, or about another model."""


class DataError(HydractlError):
    """A data source, its columns, its labels or one of its samples cannot be used."""


class UnreadableError(DataError):
    """One sample among many cannot be read; where `skip_bad` is an option, it leaves such samples out."""


class NotFiniteError(DataError):
    """A model's logits are NaN or infinite on some samples; `sample` is the place of the first, if known."""

    sample: int | None = None


class OptionError(HydractlError):
    """Options that are each well-formed but make no sense together, or not for this model."""

    exit_code = 2


class OutputError(HydractlError):
    """A result cannot be written: it exists already, the disk is full, the folder is missing."""


class TrainingError(HydractlError):
    """Training cannot go on: the loss or the weights are no longer finite."""


@contextmanager
def naming_extras() -> Iterator[None]:
    """Turns the error of a missing package into one that names its extra.

    Raises:
        OptionError: in place of the import's error.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        # An installed package may lack a part because its version is too old or too new: that is another matter.
        if package not in EXTRAS or find_spec(package) is not None:
            raise
        remedy = f"pip install 'hydractl[{EXTRAS[package]}]'"
        raise OptionError(f"this needs {package}, which is not installed: {remedy}") from error


def require(*packages: str) -> None:
    """Imports packages that are needed only at the end of long work, so that a missing one is reported first.

    Raises:
        OptionError: one cannot be imported; the message names its extra.
    """
    with naming_extras():
        for package in packages:
            import_module(package)
