"""The errors a user can cause. Each carries one line: the file, what was found there, and what to do about it."""

from __future__ import annotations

from hydractl.text import abridged, first_sentence, one_line, without_secrets

LONGEST = 600  # characters of a message, names of files included


class HydractlError(Exception):
    """A problem the user can mend. Its text is one line; `exit_code` is what the command line exits with."""

    exit_code = 1

    def __str__(self) -> str:
        """Returns the message as it can be shown anywhere, whatever names, files and other libraries put into it.

        Of a library's own message, which stands in it where that was the cause, the first sentence is repeated.
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


class NotFiniteError(DataError):
    """A model's logits are NaN or infinite on some samples; `sample` is the place of the first, where that is known."""

    sample: int | None = None


class OptionError(HydractlError):
    """Options that are each well-formed but make no sense together, or not for this model."""

    exit_code = 2


class OutputError(HydractlError):
    """A result cannot be written: it exists already, the disk is full, the folder is missing."""


class TrainingError(HydractlError):
    """Training cannot go on: the loss or the weights are no longer finite."""
