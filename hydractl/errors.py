"""The errors a user can cause. Each carries one line: the file, what was found there, and what to do about it."""


class HydractlError(Exception):
    """A problem the user can mend. Its text is one line; `exit_code` is what the command line exits with."""

    exit_code = 1


class CheckpointError(HydractlError):
    """Weights, config or manifest of a checkpoint are missing, damaged, unknown or do not fit each other."""


class ArtifactError(HydractlError):
    """A scores, circuit or report JSON file is damaged, of another format, or about another model."""


class DataError(HydractlError):
    """A data source, its columns, its labels or one of its samples cannot be used."""


class NotFiniteError(DataError):
    """A model's logits are NaN or infinite on some samples."""


class OptionError(HydractlError):
    """Options that are each well-formed but make no sense together, or not for this model."""

    exit_code = 2


class OutputError(HydractlError):
    """A result cannot be written: it exists already, the disk is full, the folder is missing."""


class TrainingError(HydractlError):
    """Training cannot go on: the loss or the weights are no longer finite."""
