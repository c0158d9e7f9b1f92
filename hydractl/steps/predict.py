"""Classifying images and texts with a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydractl.data.files import FILE_FORMATS, hashes_of_tables
from hydractl.data.reading import Reading, SkipBad, parse_data_spec
from hydractl.errors import DataError, OptionError
from hydractl.inputs.bulk import Bulk, BulkPredictions
from hydractl.inputs.models import Model, as_checkpoint
from hydractl.inputs.predictions import Predictions, PredictionStream, Promise
from hydractl.inputs.rows import (
    STDIN,
    DataRows,
    InputRow,
    JoinedRows,
    lines_as_they_come,
    read_image_file,
    read_lines,
    text_rows,
)
from hydractl.inputs.search_data import tell_oddities
from hydractl.options import Without, function, option, remembered
from hydractl.run_options import Compute, Force, Resume, output_option
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.checkpoint.calibration import Calibration
    from hydractl.data.reading import DataLike, Modality
    from hydractl.inputs.reader import Reader
    from hydractl.model.hydra import Hydra
    from hydractl.systems.onnx import OnnxModel

NO_INPUTS = "no inputs that can be read: name files, or a data set with `data`"
READERS = 2  # processes that read images ahead where a file is written
Inputs = Any  #: files, data or images
Data = Any  #: one data set, or sources of several
Names = Any  #: names of columns: a list, or text with commas between


@dataclass(frozen=True)
class Predict:
    """Classify images or texts and say how sure the model is.

    Folders, tables (.parquet, .csv, .jsonl ...) and names with a split are data sets; any other file is an image, or
    texts line by line.

    Example: hydractl predict hydra.safetensors photo.jpg more/

    Prints each input's label, the maximum softmax probability (low: likely wrong or unlike the training data) and the
    mutual information of the members in nats (high: they disagree). A calibrated model gives the typicality too, the
    share of ID samples that look at least as odd, and flags what looks OOD. After `calibrate` with `accuracy`, `sure`
    says which answers to trust; abstain from the others. After `calibrate` with `sets`, `set` names the classes among
    which the right one is as often as promised, the most probable first. On a terminal that is a table; in a pipe it is
    a line per input with tabs between, after a line that names the columns. `predict MODEL -` answers each text as it
    comes.

    `output` writes a file of many inputs part by part; `resume` continues an interrupted run from the parts that it
    finished.

    A model that labels words answers with the spans of each text: label, confidence (of the least sure word) and place
    in the text. JSON has the words too, CSV a line per word.

    What cannot be read keeps its place: a blank line or an empty text, and with `skip_bad` an image. JSON, CSV and
    Python carry the number of each row in its file or data set, from 0. A line on standard error counts the answers.

    In Python, inputs may be samples as well: an image, a list of images, `{name: texts}`, a `datasets.Dataset`, a
    torch `Dataset`.

    >>> found = hydractl.predict("hydra", ["data/pets/cat/0.png", "data/pets/owl/3.png"])
    >>> found.probabilities.shape
    (2, 3)

    Raises:
        ArtifactError: the run to resume had another model, other inputs or options.
        CheckpointError: the model cannot be read.
        DataError: an input cannot be read, or does not suit the model.
        NotFiniteError: the model's logits are not finite.
        OptionError: no inputs, a zero-shot model without `classes`, or `classes` for another model.
        OutputError: the output exists and `force` is not set, an interrupted run is neither gone on with nor given up,
            or the disk refuses it.
    """

    model: Model
    inputs: Inputs = option(
        (),
        "Images, folders of images, text files with one text per line, or tables; - is standard input.",
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
    id_column: str | None = option(None, "Column of data sets whose values name the rows.", "Data", "NAME", rare=True)
    keep: Names = option(None, "Columns of data sets to copy to the answers.", "Data", "NAME,...")
    skip_bad: SkipBad = False
    embed: Literal["image", "text"] | None = option(
        None,
        "Give embeddings instead of classes: those that a zero-shot model compares, or features a classifier reads.",
    )
    no_header: bool = option(False, "Leave out the line of column names in a pipe.", "Output", rare=True)
    output: str | Path | None = output_option(
        "Write .csv, .jsonl or .parquet part by part, in constant memory, instead of printing.", "FILE"
    )
    workers: int | None = option(
        None,
        f"Processes that read and prepare images ahead; they do not change the result. Default: {READERS} with "
        "`output`, else 0.",
        "Compute",
        within=(0, 1024),
        remembered=False,
        rare=True,
    )
    resume: Resume = False
    force: Force = False
    compute: Compute = Compute()

    def run(self, watch: Watcher) -> Predictions | BulkPredictions:
        if self.output is not None:
            Bulk(Path(self.output), self.resume, self.force).check()
        elif self.resume:
            raise OptionError("`resume` needs an `output`: the state of a run lies beside its file")
        self._check_inputs()
        hydra = self._model()
        modality = hydra.spec.modality
        if self.text and modality == "image":
            raise OptionError("`text` is for models of texts, this one takes images: name files")
        texts = [self.text] if isinstance(self.text, str) else self.text
        if not all(text.strip() for text in texts):
            raise DataError("`text` is empty: give a text")
        if watch.command is not None and modality == "text" and self._given() == [STDIN] and self.output is None:
            return self._stream(hydra, watch)
        entries = JoinedRows([list(text_rows(texts)), *self._entries(modality, watch)])
        if not entries:
            raise OptionError(NO_INPUTS)
        if self.output is not None:
            return self._written(Path(self.output), hydra, entries, watch)
        with watch.progress("predict", len(entries)) as advance:
            return self._answered(self._reader(hydra, entries, watch), entries[:], 0, advance)

    def _check_inputs(self) -> None:
        """Raises an error for inputs that are not there, before the model is loaded."""
        if not self._given():
            raise OptionError(NO_INPUTS)
        for place in several(self.inputs) if not self.skip_bad else ():
            is_path = isinstance(place, str | Path) and str(place) != STDIN
            if is_path and not os.path.exists(place) and not _is_data(str(place)):
                raise DataError(
                    f"{place}: cannot read: no such file: check the path, or give `text` or - for standard input"
                )

    def _given(self) -> list[Any]:
        return [*several(self.inputs), *several(self.data), *several(self.text)]

    def _stream(self, hydra: Hydra | OnnxModel, watch: Watcher) -> Any:
        """Returns a result that a command line prints as it comes; Python gets all predictions at once."""

        def answer(lines: Sequence[str], first: int) -> Predictions:
            rows = list(text_rows(lines, first))
            with watch.progress("predict", len(rows)) as advance:
                return self._answered(self._reader(hydra, rows, watch, stand_in="."), rows, 0, advance)

        return PredictionStream(lines_as_they_come(), answer)

    def _written(
        self, output: Path, hydra: Hydra | OnnxModel, entries: Sequence[InputRow], watch: Watcher
    ) -> BulkPredictions:
        """Writes the predictions part by part."""
        from PIL import Image

        from hydractl.checkpoint.manifest import fingerprint
        from hydractl.model.hydra import Hydra

        stand_in = "." if hydra.spec.modality == "text" else Image.new("RGB", (8, 8))
        reader = self._reader(hydra, entries, watch, part=Bulk.part, workers=READERS, stand_in=stand_in)
        options = remembered(self, inputs=None, data=None, text=None, device=None)
        identity = (
            fingerprint(as_checkpoint(self.model)) if isinstance(hydra, Hydra) else {"onnx": hydra.graph.file.sha256}
        )
        conditions = {
            "model": identity,
            "options": options,
            "data": [*_versions([*several(self.inputs), *several(self.data)])],
        }
        answer = partial(self._answered, reader)
        counts = Bulk(output, self.resume, self.force).write(entries, conditions, answer, watch)
        return BulkPredictions(output, counts, promise_of(hydra.calibration))

    def _answered(
        self, reader: Reader, entries: Sequence[InputRow], first: int, on_batch: Callable[[int], None]
    ) -> Predictions:
        """Returns the predictions for the inputs of a part.

        Args:
            first: the number of its first.
            on_batch: receives the size of each finished batch.
        """
        answers = reader.answer(entries, first, on_batch)
        return Predictions(
            answers=answers,
            good=reader.good,
            inputs=[entry.name for entry in entries],
            rows=[entry.row for entry in entries],
            ids=[entry.id for entry in entries] if self.id_column else (),
            kept={name: [entry.kept.get(name) for entry in entries] for name in _names(self.keep)},
            unreadable=reader.bad,
            promise=promise_of(answers.calibration),
            header=not self.no_header,
        )

    def _reader(
        self,
        hydra: Hydra | OnnxModel,
        entries: Sequence[InputRow],
        watch: Watcher,
        *,
        part: int | None = None,
        workers: int = 0,
        stand_in: Any = None,
    ) -> Reader:
        from hydractl.inputs.reader import Reader

        return Reader(
            hydra,
            entries,
            part=part or len(entries),
            batch_size=self.compute.batch_size,
            workers=workers if self.workers is None else self.workers,
            watch=watch,
            skip_bad=self.skip_bad,
            stand_in=stand_in,
        )

    def _model(self) -> Hydra | OnnxModel:
        from hydractl.inputs.models import predictor, running
        from hydractl.systems.onnx_file import is_onnx

        if self.embed is None:
            return predictor(self.model, self.compute, self.reading)
        if is_onnx(self.model):
            raise OptionError("`embed`: an ONNX file gives only its exported answers: leave it out")
        from hydractl.surgery.slicing import as_embedding

        return running(as_embedding(as_checkpoint(self.model), self.embed), self.compute)

    def _entries(self, modality: Modality, watch: Watcher) -> Iterator[Sequence[InputRow]]:
        from hydractl.data.images import is_one_image

        reading = self.reading
        for source in several(self.inputs):
            if not isinstance(source, str | Path) or _is_data(str(source)):
                yield self._in_data([source] if is_one_image(source) else source, modality, watch)
                continue
            columns = {"image_column": reading.image_column, "text_column": reading.text_column}
            for flag, name in {**columns, "id_column": self.id_column, "keep": ",".join(_names(self.keep))}.items():
                if name:
                    raise OptionError(f"`{flag}` {name}: {source} is not a data set and has no columns: leave it out")
            if modality == "image":
                yield [InputRow(str(source), partial(read_image_file, str(source)))]
            else:
                yield list(text_rows(read_lines(str(source))))
        for source in several(self.data):
            yield self._in_data(source, modality, watch)

    def _in_data(self, data: DataLike, modality: Modality, watch: Watcher) -> Sequence[InputRow]:
        from hydractl.data.open import open_samples

        samples = open_samples(data, modality, self.reading, keep_bad=True)
        tell_oddities([samples], watch)
        ids = samples.column(self.id_column, "id_column") if self.id_column else None
        return DataRows(samples, ids, {name: samples.column(name, "keep") for name in _names(self.keep)})


predict = function(Predict)


def several(sources: Any) -> Sequence[Any]:
    """Returns the paths or names in a list, or else what was given, which is one data set."""
    listed = isinstance(sources, list | tuple) and all(isinstance(source, str | Path) for source in sources)
    return sources if listed else [sources]


def _versions(sources: Iterable[Any]) -> Iterator[str]:
    """Yields what tells each table from one made again under its name, whose rows have the same names."""
    for source in sources:
        if not isinstance(source, str | Path):
            yield from [source._fingerprint] if hasattr(source, "_fingerprint") else []  # of a table in memory
        elif _is_data(str(source)):
            yield from hashes_of_tables(Path(parse_data_spec(source).source))


def _names(names: Names) -> list[str]:
    return [] if names is None else names.split(",") if isinstance(names, str) else list(names)


def promise_of(calibration: Calibration) -> Promise:
    """Returns what the flags of a calibrated model mean."""
    if (fit := calibration.fit) is not None:
        share = f"{100 - 100 * fit.accept:g} %"
        meaning = f"OOD: fewer than {share} of calibration samples look as odd (typicality), by {fit.score}."
        sure = fit.accuracy if fit.least else None
        if sure is not None:
            meaning += f" Sure: answers that are right {100 * sure:g} % of the time."
        elif fit.accuracy is not None:
            meaning += f" Labels: each is right {100 * fit.accuracy:g} % of the time."
        if (recall := calibration.recall) is not None:
            meaning += f" Recall: {100 * recall.share:g} % of the labels that are there are answered, or spans offered."
        if (sets := calibration.sets) is not None:
            meaning += f" Set: classes, the right one among them {100 * sets.coverage:g} % of the time."
        return Promise(meaning, 1 - fit.accept, sure, coverage=None if sets is None else sets.coverage)
    return Promise()


def _is_data(text: str) -> bool:
    """Returns True if a path or name stands for a data set, not for one image or a file of texts."""
    path = Path(text)
    if path.exists():
        return path.is_dir() or path.suffix.lower() in FILE_FORMATS
    return any(mark in text for mark in ":=%")  # a split, a name or a part
