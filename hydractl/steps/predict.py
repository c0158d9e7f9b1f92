"""Asking a model about images or texts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from hydractl.data.files import FILE_FORMATS, decode_text, read_bytes
from hydractl.errors import DataError, NotFiniteError, OptionError
from hydractl.report.escape import html
from hydractl.steps.inputs import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_TEMPLATE,
    BatchSize,
    Classes,
    Device,
    Dtype,
    ImageColumn,
    Model,
    Template,
    TextColumn,
)
from hydractl.steps.options import Option, step
from hydractl.steps.result import Result
from hydractl.text import printable, shortened
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image
    from rich.console import Console

    from hydractl.checkpoint.contents import Acceptance
    from hydractl.data.columns import Columns
    from hydractl.data.like import DataLike, Modality

    Inputs = DataLike | Image | Sequence[str | Path]
    Data = DataLike | Sequence[str]
else:  # what the command line derives arguments from
    Inputs = Data = Sequence[Any]

STDIN = "-"
SHOWN = 20  # rows of a table in a notebook


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(Result):
    """What a model says of N inputs.

    Attributes:
        inputs: what messages call each: a file, a text, or a place in a data set.
        classes: the C class names, in order of the probabilities.
        labels: the most probable class of each.
        probabilities: `[N,C]`, the members' mean.
        msp: `[N]`, the maximum softmax probability: low means likely wrong, or unlike the training data.
        entropy: `[N]`, nats, of the probabilities: high means the same.
        mutual_information: `[N]`, nats: high means that the members disagree.
        member_logits: `[M,N,C]`.
        acceptance: how sure the model is of ID samples, as `calibrate` found; None where it was not calibrated.
    """

    inputs: Sequence[str]
    classes: Sequence[str]
    labels: Sequence[str]
    probabilities: NDArray[np.floating[Any]]
    msp: NDArray[np.floating[Any]]
    entropy: NDArray[np.floating[Any]]
    mutual_information: NDArray[np.floating[Any]]
    member_logits: NDArray[np.floating[Any]]
    acceptance: Acceptance | None = None

    @property
    def ood(self) -> NDArray[np.bool_] | None:
        """`[N]`, whether each looks OOD: less sure than most ID samples. None where the model was not calibrated."""
        return None if self.acceptance is None else self.msp < self.acceptance.msp

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each prediction as plain JSON."""
        ood = self.ood
        for row, name in enumerate(self.inputs):
            yield {
                "input": name,
                "label": self.labels[row],
                "msp": float(self.msp[row]),
                "entropy": float(self.entropy[row]),
                "mutual_information": float(self.mutual_information[row]),
                "ood": None if ood is None else bool(ood[row]),
                "probabilities": dict(zip(self.classes, self.probabilities[row].tolist(), strict=True)),
            }

    def to_json(self) -> dict[str, Any]:
        return {"predictions": list(self.rows())}

    def lines(self) -> Iterator[str]:
        for row in self.rows():
            # A tab or a line end inside a text or a label would break the columns.
            names = (printable(" ".join(row[name].split())) for name in ("input", "label"))
            numbers = [row[name] for name in ("msp", "mutual_information")]
            yield "\t".join([*names, *(f"{number:.4f}" for number in numbers)])

    def draw(self, console: Console) -> None:
        """A table on a terminal, and in a pipe the lines, whose columns stay what they are."""
        if console.is_terminal:
            from hydractl.report.predictions import print_predictions

            print_predictions(self.rows(), self.acceptance, console)
        else:
            console.file.writelines(f"{line}\n" for line in self.lines())

    def to_csv(self) -> str:
        """A header and a line per input, the probability of each class in a column: what `--csv` writes."""
        from hydractl.report.predictions import predictions_csv

        return predictions_csv(self.rows())

    def facts(self) -> Mapping[str, object]:
        return {"inputs": len(self.inputs), "mean confidence": f"{self.msp.mean():.4f}"}

    def __repr__(self) -> str:
        shown = [line for line, _ in zip(self.lines(), range(SHOWN), strict=False)]
        return "\n".join([*shown, *([f"... {len(self.inputs)} in all"] if len(self.inputs) > SHOWN else [])])

    def _repr_html_(self) -> str:
        columns = ["input", "label", "msp", "mutual information"]
        rows = [columns, *(line.split("\t") for line in repr(self).splitlines())]
        cells = ("".join(f"<td>{html(cell)}</td>" for cell in row) for row in rows)
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


@step
def predict(
    model: Model,
    inputs: Annotated[
        Inputs,
        Option(
            "Images, folders of images, text files with a text a line, or tables; - is standard input.",
            heading="Data",
            metavar="FILE...",
            positional=True,
        ),
    ] = (),
    *,
    data: Annotated[
        Data,
        Option(
            "A data set, whatever its name looks like, such as one of the hub; repeat it.",
            heading="Data",
            metavar="SOURCE[:SPLIT]",
            repeated=True,
        ),
    ] = (),
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    image_column: ImageColumn = None,
    text_column: TextColumn = None,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    device: Device = "auto",
    dtype: Dtype = None,
    watch: Watcher = LOG,
) -> Predictions:
    """Classify images or texts and say how sure the model is.

    Folders, tables (.parquet, .csv, .jsonl ...) and names with a split are data sets; any other file is an image, or
    texts line by line.

    Example: hydractl predict hydra.safetensors photo.jpg more/

    Says of each input its label, the maximum softmax probability (low: likely wrong or unlike the training data) and
    the mutual information of the members in nats (high: they disagree). On a terminal that is a table, which flags
    what looks OOD if the model was calibrated; in a pipe a line per input with tabs between. A predictor of errors
    (ViLU) that lies beside the model adds the log-odds that the label is right.

    In Python, inputs may be samples as well: an image, a list of images, `{name: texts}`, a `datasets.Dataset`, a
    torch `Dataset`.

    >>> found = hydractl.predict("hydra", ["data/pets/cat/0.png", "data/pets/owl/3.png"])
    >>> found.probabilities.shape
    (2, 3)

    Raises:
        CheckpointError: the model cannot be read.
        DataError: an input cannot be read, or is nothing that the model takes.
        NotFiniteError: the model's logits are not finite.
        OptionError: no inputs, a zero-shot model without `classes`, or classes of another.
    """
    from hydractl.data.classes import read_classes
    from hydractl.data.columns import Columns
    from hydractl.steps.models import running

    hydra = running(model, device, dtype)
    if classes is not None:
        if hydra is model:
            raise OptionError("`classes` would change the loaded model: call its set_classes instead")
        hydra.set_classes(read_classes(classes), template)
    modality: Modality = "text" if hydra.spec.task == "text-classification" else "image"
    columns = Columns(image_column, text_column)
    asked = [*_asked(inputs, modality, columns), *_asked_of_sets(data, modality, columns)]
    if not asked:
        raise OptionError("there are no inputs: name files, or a data set with `data`")
    with watch.progress("predict", len(asked)) as advance:
        try:
            found = hydra.predict((one.read() for one in asked), batch_size, advance)
        except NotFiniteError as error:
            raise NotFiniteError(f"{shortened(asked[error.sample or 0].name, 80)}: {error}") from error
    return Predictions(
        [one.name for one in asked],
        found.classes,
        found.labels,
        found.probabilities.numpy(),
        found.msp.numpy(),
        found.entropy.numpy(),
        found.mutual_information.numpy(),
        found.member_logits.numpy(),
        hydra.acceptance,
    )


class _Asked(NamedTuple):
    """One input: what to call it, and how to get it."""

    name: str
    read: Callable[[], Any]


def _asked(inputs: Inputs, modality: Modality, columns: Columns) -> Iterator[_Asked]:
    from PIL.Image import Image

    several = inputs if isinstance(inputs, list | tuple) else [inputs]
    if not all(isinstance(one, str | Path) for one in several):
        yield from _in_data([inputs] if isinstance(inputs, Image) else inputs, modality, columns)
        return
    for one in map(str, several):
        if _is_data(one):
            yield from _in_data(one, modality, columns)
            continue
        if named := columns.image or columns.text:
            option = "image_column" if columns.image else "text_column"
            raise OptionError(f"`{option}` {named}: {one} is no data set and has no columns: leave it out")
        if modality == "image":
            yield _Asked(one, partial(_read_image, one))
        else:
            yield from (_Asked(text, partial(str, text)) for text in _lines(one))


def _asked_of_sets(data: Data, modality: Modality, columns: Columns) -> Iterator[_Asked]:
    several = data if isinstance(data, list | tuple) and all(isinstance(one, str | Path) for one in data) else [data]
    for one in several:
        yield from _in_data(one, modality, columns)


def _is_data(text: str) -> bool:
    """Whether a path or name stands for a data set, not for one image or a file of texts."""
    path = Path(text)
    if path.exists():
        return path.is_dir() or path.suffix.lower() in FILE_FORMATS
    return any(mark in text for mark in ":=%")  # a split, a name or a part


def _in_data(data: DataLike, modality: Modality, columns: Columns) -> Iterator[_Asked]:
    from hydractl.data.open import open_samples

    samples = open_samples(data, modality, columns=columns)
    for place in range(len(samples)):
        yield _Asked(samples.called(place), partial(samples.inputs.__getitem__, place))


def _lines(file: str) -> list[str]:
    text = decode_text(_content(file), file, "one text a line")
    found = [line for line in text.splitlines() if line.strip()]
    if not found:
        raise DataError(f"{file}: no text in it: write one text a line")
    return found


def _read_image(file: str) -> Image:
    from hydractl.data.images import decode_image

    return decode_image({"bytes": _content(file), "path": None}, file)


def _content(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == STDIN else read_bytes(Path(file))
