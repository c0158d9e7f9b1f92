"""Predictions of many inputs, written as they come: level memory, and an interrupted run goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, astuple, dataclass
from functools import partial
from hashlib import sha256
from io import BytesIO
from operator import add
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from hydractl.checkpoint.output import StateFolder, claim, refuse_existing, write_atomically, write_bytes
from hydractl.errors import DataError, OptionError
from hydractl.inputs.predictions import Counts, Predictions, Promise
from hydractl.inputs.result import Result
from hydractl.inputs.rows import InputRow
from hydractl.watch import Advance, Watcher

if TYPE_CHECKING:
    import pyarrow

#: Predicts the inputs of a part, given the number of the first, and tells how many are done after each batch.
Answering = Callable[[Sequence[InputRow], int, Callable[[int], None]], Predictions]


@dataclass(frozen=True)
class Form:
    """A kind of file that predictions are written to, part by part."""

    encode: Callable[[Predictions], bytes]
    join: Callable[[Path, Sequence[Path], bool], None]  # writes the file from its parts; the last is `force`


def _json_lines(predictions: Predictions) -> bytes:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in predictions).encode(errors="backslashreplace")


def _parquet(predictions: Predictions) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    out = BytesIO()
    parquet.write_table(pa.Table.from_pylist(list(predictions.flat())), out)
    return out.getvalue()


def _join_lines(path: Path, parts: Sequence[Path], force: bool, header: bool = False) -> None:
    with write_atomically(path, force) as out:
        for place, part in enumerate(parts):
            with part.open("rb") as file:
                if header and place:
                    file.readline()
                shutil.copyfileobj(file, out)


def _join_parquet(path: Path, parts: Sequence[Path], force: bool) -> None:
    from pyarrow import parquet

    schema = _common_schema(path, parts)
    with write_atomically(path, force) as out, closing(parquet.ParquetWriter(out, schema)) as writer:
        for part in parts:
            writer.write_table(parquet.read_table(part).cast(schema))


def _common_schema(path: Path, parts: Sequence[Path]) -> pyarrow.Schema:
    """Returns the columns of all parts; one that is empty in a part has no type there."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return pa.unify_schemas([parquet.read_schema(part) for part in parts], promote_options="permissive")
    except pa.ArrowTypeError as error:
        raise DataError(f"{path}: a column holds values of several kinds ({error}): write .csv instead") from error


FORMS = {
    ".csv": Form(lambda predictions: predictions.to_csv().encode(), partial(_join_lines, header=True)),
    ".jsonl": Form(_json_lines, _join_lines),
    ".parquet": Form(_parquet, _join_parquet),
}


@dataclass(frozen=True, eq=False, repr=False)
class BulkPredictions(Result):
    """A file of predictions.

    Attributes:
        output: the file.
        counts: how many inputs it has, and how many of them are flagged.
        promise: what the flags mean.
    """

    output: Path
    counts: Counts
    promise: Promise

    def to_json(self) -> dict[str, Any]:
        return {"output": str(self.output), **asdict(self.counts)}

    def lines(self) -> Iterator[str]:
        yield str(self.output)

    def guidance(self) -> Iterator[str]:
        yield self.counts.line(self.promise)


@dataclass(frozen=True)
class Bulk:
    """The file for predictions of many inputs, and whether an interrupted run goes on or is given up."""

    output: Path
    resume: bool
    force: bool
    part: ClassVar[int] = 2048  # inputs whose predictions are written together

    def check(self) -> Form:
        """Returns the form of the file.

        Raises:
            OptionError: its name has no known ending.
            OutputError: it exists and `force` is not set.
        """
        form = FORMS.get(self.output.suffix.lower())
        if form is None:
            raise OptionError(f"`output` {self.output}: end the name in {', '.join(FORMS)}")
        refuse_existing(self.output, self.force)
        return form

    def write(
        self, entries: Sequence[InputRow], conditions: Mapping[str, Any], answer: Answering, watch: Watcher
    ) -> Counts:
        """Writes the predictions of all inputs, and returns their counts.

        Each part lies in a .state folder beside the file until the last one is there.

        Args:
            conditions: what determines the predictions, besides the inputs' names.

        Raises:
            ArtifactError: the run to go on with had other conditions.
            DataError: no input can be read.
            OutputError: an interrupted run is neither gone on with nor given up, or the disk refuses the file.
        """
        form, names = self.check(), sha256()
        for first in range(0, len(entries), self.part):
            for entry in entries[first : first + self.part]:
                names.update(json.dumps([entry.name, entry.row, str(entry.id)]).encode())
        conditions = {**conditions, "inputs": len(entries), "names": names.hexdigest(), "form": self.output.suffix}
        with claim(self.output):
            state = StateFolder(Path(f"{self.output}.state"), conditions, self.resume, self.force)
            counts, parts = Counts(), list[Path]()
            with watch.progress("predict", len(entries)) as advance:
                on_batch = _Told(advance)
                for first in range(0, len(entries), self.part):
                    parts.append(part := state.folder / f"{first:09}")
                    part_counts = _known_counts(part)
                    if part_counts is None:
                        part_counts = _write_part(
                            part, answer(entries[first : first + self.part], first, on_batch), form
                        )
                    else:
                        advance(part_counts.inputs)
                    counts = Counts(*map(add, astuple(counts), astuple(part_counts)))
            if counts.unreadable == counts.inputs:
                state.remove()
                raise DataError(f"none of {counts.inputs} inputs can be read: see the notes")
            form.join(self.output, parts, self.force)
            state.remove()
        return counts


class _Told:
    """Shows how far work has come, and how fast, whenever a batch is done."""

    def __init__(self, advance: Advance) -> None:
        self._advance, self._started, self._done = advance, monotonic(), 0

    def __call__(self, count: int) -> None:
        self._done += count
        self._advance(count, f"predict {self._done / max(monotonic() - self._started, 1e-9):,.0f}/s")


def _known_counts(part: Path) -> Counts | None:
    """Returns the counts of a part that an earlier run wrote whole; None if there is none."""
    sign = part.with_suffix(".json")
    return Counts(**json.loads(sign.read_bytes())) if sign.exists() else None


def _write_part(part: Path, predictions: Predictions, form: Form) -> Counts:
    """Writes one part, then its counts, which are the sign that it is whole."""
    counts = Counts().plus(predictions)
    write_bytes(part, form.encode(predictions), force=True)
    write_bytes(part.with_suffix(".json"), json.dumps(asdict(counts)).encode(), force=True)
    return counts
