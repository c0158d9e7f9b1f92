"""Classifying images and texts with a model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from hydractl.data.files import FILE_FORMATS, decode_text, read_bytes
from hydractl.data.reading import Reading, SkipBad
from hydractl.errors import DataError, NotFiniteError, OptionError
from hydractl.options import Without, function, option
from hydractl.steps.compute import Compute
from hydractl.steps.inputs import Model
from hydractl.steps.result import Result
from hydractl.text import printable, shortened
from hydractl.watch import Watcher

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image
    from rich.console import Console

    from hydractl.data.reading import DataLike, Modality
    from hydractl.model.hydra import Hydra

Inputs = Any  #: files, data or images
Data = Any  #: one data set, or sources of several
STDIN = "-"
SHOWN = 20  # rows of a table in a notebook
ARRAYS = (
    *("probabilities", "msp", "entropy", "mutual_information", "member_logits"),
    *("ood_score", "typicality", "profile", "ood", "sure"),
)
UNCALIBRATED = "Nothing is flagged: the model has no threshold; `hydractl calibrate` finds one on ID data."


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(Result):
    """Predictions of a model for N inputs.

    Attributes:
        inputs: the name of each in messages: a file, a text, or a place in a data set.
        classes: the C class names, in order of the probabilities.
        labels: the most probable class of each.
        probabilities: `[N,C]`, the members' mean.
        msp: `[N]`, the maximum softmax probability: low means likely wrong, or unlike the training data.
        entropy: `[N]`, nats, of the probabilities: high means the same.
        mutual_information: `[N]`, nats: high means that the members disagree.
        member_logits: `[M,N,C]`.
        ood_score: `[N]`, higher = more OOD by the score that `calibrate` stored; None if not calibrated.
        typicality: `[N]`, the share of calibration samples that look at least as odd, 0 to 1; None likewise.
        profile: `[N,L]`, typicality by each layer alone, the first layer first; None unless the score reads all layers.
        ood: `[N]`, true where a sample is less typical than most ID samples; None likewise.
        sure: `[N]`, true where answers are right as often as `calibrate` was asked for; None if it was not.
        meaning: the rule of these flags.
        header: whether the first of the lines names the columns.
    """

    inputs: Sequence[str]
    classes: Sequence[str]
    labels: Sequence[str]
    probabilities: NDArray[np.floating[Any]]
    msp: NDArray[np.floating[Any]]
    entropy: NDArray[np.floating[Any]]
    mutual_information: NDArray[np.floating[Any]]
    member_logits: NDArray[np.floating[Any]]
    ood_score: NDArray[np.floating[Any]] | None = None
    typicality: NDArray[np.floating[Any]] | None = None
    profile: NDArray[np.floating[Any]] | None = None
    ood: NDArray[np.bool_] | None = None
    sure: NDArray[np.bool_] | None = None
    meaning: str = UNCALIBRATED
    header: bool = True

    def __len__(self) -> int:
        return len(self.inputs)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.rows()

    def to_pandas(self) -> Any:
        """Returns a pandas table: a row per input, its label and how sure the model is, and a column per class."""
        pandas = import_module("pandas")
        rows = list(self.rows())
        classes = pandas.DataFrame([row.pop("probabilities") for row in rows]).add_prefix("p ")
        return pandas.DataFrame(rows).join(classes)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields each prediction as plain JSON."""
        odd = [("ood_score", self.ood_score, float), ("typicality", self.typicality, float), ("ood", self.ood, bool)]
        odd += [] if self.sure is None else [("sure", self.sure, bool)]
        for row, name in enumerate(self.inputs):
            yield {
                "input": name,
                "label": self.labels[row],
                "msp": float(self.msp[row]),
                "entropy": float(self.entropy[row]),
                "mutual_information": float(self.mutual_information[row]),
                **{key: None if values is None else kind(values[row]) for key, values, kind in odd},
                **({} if self.profile is None else {"profile": self.profile[row].tolist()}),
                "probabilities": dict(zip(self.classes, self.probabilities[row].tolist(), strict=True)),
            }

    def to_json(self) -> dict[str, Any]:
        return {"predictions": list(self.rows())}

    def lines(self) -> Iterator[str]:
        columns = ["msp", "mutual_information", *(["typicality"] if self.typicality is not None else [])]
        flags = [name for name in ("ood", "sure") if getattr(self, name) is not None]
        if self.header:
            yield "\t".join(["input", "label", *columns, *flags])
        for row in self.rows():
            # A tab or a line end inside a text or a label would break the columns.
            names = (printable(" ".join(row[name].split())) for name in ("input", "label"))
            marks = (str(row[name]).lower() for name in flags)
            yield "\t".join([*names, *(f"{row[name]:.4f}" for name in columns), *marks])

    def draw(self, console: Console) -> None:
        """Prints a table on a terminal, and plain lines in a pipe."""
        if console.is_terminal:
            from hydractl.reports.prediction_rows import print_predictions

            print_predictions(self.rows(), self.meaning, console)
        else:
            console.file.writelines(f"{line}\n" for line in self.lines())

    def to_csv(self) -> str:
        """Returns what `--csv` writes: a header and a line per input, with a column per class."""
        from hydractl.reports.prediction_rows import predictions_csv

        return predictions_csv(self.rows())

    def __repr__(self) -> str:
        shown = [line for line, _ in zip(self.lines(), range(SHOWN + self.header), strict=False)]
        return "\n".join([*shown, *([f"... {len(self.inputs)} in all"] if len(self.inputs) > SHOWN else [])])


@dataclass(frozen=True)
class Predict:
    """Classify images or texts and say how sure the model is.

    Folders, tables (.parquet, .csv, .jsonl ...) and names with a split are data sets; any other file is an image, or
    texts line by line.

    Example: hydractl predict hydra.safetensors photo.jpg more/

    Prints each input's label, the maximum softmax probability (low: likely wrong or unlike the training data) and the
    mutual information of the members in nats (high: they disagree). A calibrated model gives the typicality too, the
    share of ID samples that look at least as odd, and flags what looks OOD. After `calibrate` with `accuracy`, `sure`
    says which answers to trust; abstain from the others, which a terminal marks with a question mark. On a terminal
    that is a table; in a pipe it is a line per input with tabs between, after a line that names the columns.

    In Python, inputs may be samples as well: an image, a list of images, `{name: texts}`, a `datasets.Dataset`, a
    torch `Dataset`.

    >>> found = hydractl.predict("hydra", ["data/pets/cat/0.png", "data/pets/owl/3.png"])
    >>> found.probabilities.shape
    (2, 3)

    Raises:
        CheckpointError: the model cannot be read.
        DataError: an input cannot be read, or does not suit the model.
        NotFiniteError: the model's logits are not finite.
        OptionError: no inputs, a zero-shot model without `classes`, or `classes` for another model.
    """

    model: Model
    inputs: Inputs = option(
        (),
        "Images, folders of images, text files with a text a line, or tables; - is standard input.",
        "Data",
        "FILE...",
        positional=True,
        repeated=True,
    )
    data: Data = option(
        (),
        "A data set under any name, such as one of the hub; repeat it for several.",
        "Data",
        "SOURCE[:SPLIT]",
        repeated=True,
    )
    text: Sequence[str] = option((), "A text to classify; repeat it for several.", "Data", "TEXT")
    reading: Annotated[Reading, Without("limit", "label_column", "match_labels")] = Reading()
    skip_bad: SkipBad = False
    no_header: bool = option(False, "Leave out the line in a pipe that names the columns.", "Output")
    compute: Compute = Compute()

    def run(self, watch: Watcher) -> Predictions:
        hydra = self._model()
        modality: Modality = "text" if hydra.spec.task == "text-classification" else "image"
        if self.text and modality == "image":
            raise OptionError("`text` is for models of texts, this one takes images: name files")
        texts = [self.text] if isinstance(self.text, str) else self.text
        if not all(text.strip() for text in texts):
            raise DataError("`text` is empty: give a text")
        named = [_Input(text, partial(str, text)) for text in texts]
        entries = [*named, *self._entries(modality, watch)]
        if not entries:
            if self.skip_bad and (self.inputs or self.data):
                raise DataError("no input can be read: the notes name what is wrong with each")
            raise OptionError("there are no inputs that can be read: name files, or a data set with `data`")
        with watch.progress("predict", len(entries)) as advance:
            try:
                found = hydra.predict((one.read() for one in entries), self.compute.batch_size, advance)
            except NotFiniteError as error:
                raise NotFiniteError(f"{shortened(entries[error.sample or 0].name, 80)}: {error}") from error
        if found.truncated:
            watch.note(f"note: {found.truncated} of {len(entries)} texts are too long for the model and lost their end")
        return Predictions(
            inputs=[one.name for one in entries],
            classes=found.classes,
            labels=found.labels,
            meaning=_meaning(hydra),
            header=not self.no_header,
            **{name: values.numpy() for name in ARRAYS if (values := getattr(found, name)) is not None},
        )

    def _model(self) -> Hydra:
        from hydractl.data.labels import name_classes
        from hydractl.steps.models import running

        hydra = running(self.model, self.compute)
        if hydra is self.model and self.reading.classes is not None:
            raise OptionError("`classes` would change the loaded model: call its set_classes instead")
        name_classes(hydra, self.reading.classes, self.reading.template)
        return hydra

    def _entries(self, modality: Modality, watch: Watcher) -> Iterator[_Input]:
        from hydractl.data.images import is_one_image

        reading = self.reading
        for one in _several(self.inputs):
            if not isinstance(one, str | Path) or _is_data(str(one)):
                yield from self._in_data([one] if is_one_image(one) else one, modality, watch)
            elif named := reading.image_column or reading.text_column:
                option = "image_column" if reading.image_column else "text_column"
                raise OptionError(f"`{option}` {named}: {one} is not a data set and has no columns: leave it out")
            elif modality == "image":
                if not self.skip_bad or _is_image(str(one), watch):
                    yield _Input(str(one), partial(_read_image, str(one)))
            else:
                yield from (_Input(text, partial(str, text)) for text in _lines(str(one)))
        for one in _several(self.data):
            yield from self._in_data(one, modality, watch)

    def _in_data(self, data: DataLike, modality: Modality, watch: Watcher) -> Iterator[_Input]:
        from hydractl.data.open import open_samples
        from hydractl.steps.material import tell_oddities

        samples = open_samples(data, modality, self.reading, skip_bad=self.skip_bad)
        tell_oddities([samples], watch)
        for place in range(len(samples)):
            yield _Input(samples.called(place), partial(samples.inputs.__getitem__, place))


predict = function(Predict)


def _several(given: Any) -> Sequence[Any]:
    """Returns the paths or names in a list, or else what was given, which is one data set."""
    listed = isinstance(given, list | tuple) and all(isinstance(one, str | Path) for one in given)
    return given if listed else [given]


def _meaning(hydra: Hydra) -> str:
    """Returns the rule of the flag."""
    if hydra.ood_head is not None:
        fit = hydra.ood_head.fit
        share = f"{100 - 100 * fit.accept:g} %"
        sure = (
            ""
            if fit.accuracy is None
            else f" ?: less sure than answers that are right {100 * fit.accuracy:g} % of the time."
        )
        return f"OOD: fewer than {share} of calibration samples look as odd (typicality), by {fit.score}.{sure}"
    if hydra.acceptance is not None:
        accepted = f"{100 * hydra.acceptance.rate:g} %"
        return f"OOD: less sure than {hydra.acceptance.msp:.4f}, which {accepted} of ID samples reach."
    return UNCALIBRATED


class _Input(NamedTuple):
    """One input: its name in messages, and how to read it."""

    name: str
    read: Callable[[], Any]


def _is_data(text: str) -> bool:
    """Returns True if a path or name stands for a data set, not for one image or a file of texts."""
    path = Path(text)
    if path.exists():
        return path.is_dir() or path.suffix.lower() in FILE_FORMATS
    return any(mark in text for mark in ":=%")  # a split, a name or a part


def _lines(file: str) -> list[str]:
    text = decode_text(_content(file), file, "one text a line")
    # Lines as `datasets` and Python's files have them: `splitlines` would cut a text at U+2028 or a form feed too.
    found = [line.rstrip("\n") for line in StringIO(text, newline=None) if line.strip()]
    if not found:
        raise DataError(f"{file}: no text in it: write one text a line")
    return found


def _is_image(file: str, watch: Watcher) -> bool:
    """Returns whether a file can be read as an image, and notes why not; standard input is read only once, later."""
    try:
        return file == STDIN or bool(_read_image(file))
    except DataError as error:
        watch.note(f"note: left out: {error}")
        return False


def _read_image(file: str) -> Image:
    from hydractl.data.images import read_image

    return read_image(_content(file), file)


def _content(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == STDIN else read_bytes(Path(file))
