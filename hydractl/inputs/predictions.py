"""A model's answers to named inputs, in the forms in which people and programs read them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Any

from hydractl import text as escape
from hydractl.inputs.result import Result
from hydractl.text import abridged, printable

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console

    from hydractl.tasks.task import Answers, OneAnswer

SHOWN = 20  # rows of a table in a notebook
SHORTEST, LONGEST = 20, 60  # characters of an input in a table
OTHERS = 56  # characters that its other columns take
FLAGS = {"ood": "OOD", "sure": "sure"}  # what a table shows where a flag is true
UNREADABLE = "unreadable"
UNCALIBRATED = "Nothing is flagged: the model has no threshold; `hydractl calibrate` finds one on ID data."
#: Columns of `Answers` that have a value for each sample, besides those that its task makes.
BY_SAMPLE = ("ood_score", "typicality", "profile", "ood")


@dataclass(frozen=True)
class Promise:
    """The promise of a calibrated model about ID data.

    Attributes:
        meaning: the rule of its flags, a sentence for people.
        flagged: the share of ID samples that are flagged OOD; None if it flags nothing.
        accuracy: the share of answers marked sure that are right; None if it marks none.
        coverage: the share of sets that hold the right class; None if it gives none.
    """

    meaning: str = UNCALIBRATED
    flagged: float | None = None
    accuracy: float | None = None
    coverage: float | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Predictions(Result):
    """A model's answers to N inputs; what cannot be read keeps its place, without an answer.

    The columns of the answers are attributes, `[N,...]`: see `hydractl.tasks.task.Answers` and the columns of its
    task, such as `labels`, `probabilities`, `msp`, `values` or `embeddings`. Where an input cannot be read they hold
    NaN, false or None.

    Attributes:
        answers: those to the inputs that can be read.
        good: the place of each of these among the N.
        inputs: the name of each in messages: a file, a text, or a place in a data set.
        rows: `[N]`, the place of each in its file or data set, counted from 0.
        ids: `[N]`, the values of `id_column`; empty if none is named.
        kept: the values `[N]` of each column in `keep`.
        unreadable: the reason for each place among the N that cannot be read.
        promise: what the flags mean.
        header: whether the first of the lines names the columns.
    """

    answers: Answers
    good: Sequence[int]
    inputs: Sequence[str]
    rows: Sequence[int] = ()
    ids: Sequence[Any] = ()
    kept: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    unreadable: Mapping[int, str] = field(default_factory=dict)
    promise: Promise = Promise()
    header: bool = True

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the C classes, labels or numbers."""
        return self.answers.names

    @property
    def member_logits(self) -> NDArray[Any]:
        """`[M,N,C]`; `[M,n,C]` of words."""
        logits = self.answers.logits
        return logits if self.answers.places is not None else self._placed(logits.swapaxes(0, 1)).swapaxes(0, 1)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        column = getattr(self.answers, name)
        by_sample = name in BY_SAMPLE or name in self.answers.columns
        if column is None or not by_sample or (name == "probabilities" and self.answers.places is not None):
            return column
        return self._placed(column) if hasattr(column, "dtype") else self._listed(column)

    def _placed(self, column: NDArray[Any]) -> NDArray[Any]:
        """Returns values `[N,...]` at all places; NaN or false at those that cannot be read."""
        if not self.unreadable:
            return column
        import numpy as np

        values = np.full((len(self), *column.shape[1:]), np.nan if column.dtype.kind == "f" else False, column.dtype)
        values[list(self.good)] = column[: len(self.good)]
        return values

    def _listed(self, column: Sequence[Any]) -> list[Any]:
        by_place = dict(zip(self.good, column, strict=False))
        return [by_place.get(place) for place in range(len(self))]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields each prediction as plain JSON."""
        answers, number = self.answers, {place: number for number, place in enumerate(self.good)}
        odd = {"ood_score": answers.ood_score, "typicality": answers.typicality, "ood": answers.ood}
        odd |= {} if (sure := answers.columns.get("sure")) is None else {"sure": sure}
        blank = _blank(answers.row(0))
        for place, name in enumerate(self.inputs):
            at = number.get(place)
            profile = None if at is None or answers.profile is None else answers.profile[at].tolist()
            yield {
                "input": name,
                "row": self.rows[place] if self.rows else place,
                **({"id": self.ids[place]} if self.ids else {}),
                **(blank if at is None else answers.row(at)),
                **{key: None if at is None or values is None else values[at].item() for key, values in odd.items()},
                **({} if answers.profile is None else {"profile": profile}),
                "unreadable": self.unreadable.get(place),
                "kept": {column: values[place] for column, values in self.kept.items()},
            }

    def each(self) -> Iterator[OneAnswer]:
        """Returns the answer to each input that can be read, as a monitor watches it."""
        return islice(self.answers.each(), len(self.good))

    @property
    def _shown(self) -> list[str]:
        from hydractl.tasks.task import HIDDEN

        return [name for name in self.answers.row(0) if name not in HIDDEN]

    def to_pandas(self) -> Any:
        """Returns a pandas table: a row per input, its label and how sure the model is, and a column per class."""
        pandas = import_module("pandas")
        rows = list(self)
        kept = pandas.DataFrame([row.pop("kept") for row in rows], index=range(len(rows))).add_prefix("kept ")
        classes = pandas.DataFrame([row.pop("probabilities", {}) for row in rows], index=range(len(rows)))
        return pandas.DataFrame(rows).join([kept, classes.add_prefix("p ")])

    def to_json(self) -> dict[str, Any]:
        return {"predictions": list(self)}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that people see; each is a key of the rows, or `kept(NAME)`."""
        flags = {
            "typicality": self.answers.typicality,
            "ood": self.answers.ood,
            "sure": self.answers.columns.get("sure"),
        }
        names = ["input", *(["id"] if self.ids else []), *self._shown]
        names += [name for name, values in flags.items() if values is not None]
        return (*names, *(f"kept({name})" for name in self.kept))

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yields the cells of each row below these columns, as text without line ends."""
        for row in self:
            texts = {"id": row.get("id"), **{f"kept({name})": value for name, value in row["kept"].items()}}
            row |= {name: None if value is None else str(value) for name, value in texts.items()}
            for name in ("spans", "offered") if "words" in row else ():
                row[name] = ", ".join(map("{text} {label} {confidence:.2f}".format_map, row.get(name) or ()))
            if isinstance(label := row.get("label"), tuple):
                row["label"] = ", ".join(f"{name} {row['probabilities'][name]:.2f}" for name in label)
            if row.get("set") is not None:
                row["set"] = ", ".join(row["set"])
            if row["unreadable"]:
                # An encoder without typicality has no column of answers.
                marked = next((name for name in (*self._shown, "typicality") if name in self.columns), "input")
                row[marked] = f"{row['input']}: {UNREADABLE}" if marked == "input" else UNREADABLE
            yield tuple(map(_cell, (row[name] for name in self.columns)))

    def lines(self) -> Iterator[str]:
        if self.header:
            yield "\t".join(map(_cell, self.columns))
        yield from map("\t".join, self.cells())

    def draw(self, console: Console) -> None:
        """Prints a table on a terminal, and plain lines in a pipe."""
        if not console.is_terminal:
            console.file.writelines(f"{line}\n" for line in self.lines())
            return
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name in self.columns:
            table.add_column(escape.terminal(name), overflow="fold")
        longest = min(LONGEST, max(SHORTEST, console.width - OTHERS))
        odd = [False] * len(self) if self.ood is None else self.ood.tolist()
        for cells, is_odd in zip(self.cells(), odd, strict=True):
            texts = dict(zip(self.columns, map(_flag_text, self.columns, cells), strict=True))
            texts["input"] = abridged(texts["input"], longest)
            if "set" in texts:
                texts["set"] = abridged(texts["set"], longest)
            styles = {"msp": "yellow" if is_odd else "green", "ood": "bold yellow"}
            table.add_row(*(escape.terminal(cell, styles.get(name, "")) for name, cell in texts.items()))
        console.print(table)
        console.print(escape.terminal(self.promise.meaning, "dim"))

    def to_csv(self) -> str:
        """Returns what `--csv` writes: a header and a line per input, with a column per class."""
        out = StringIO()
        writer = csv.writer(out, lineterminator="\n")
        for at, row in enumerate(self.flat()):
            if at == 0:
                writer.writerow(map(escape.spreadsheet, row))
            writer.writerow(map(_csv_cell, row.values()))
        return out.getvalue()

    def flat(self) -> Iterator[dict[str, Any]]:
        """Yields the rows with a column for each probability, each layer's typicality and each column that is kept.

        Of a model that labels words, yields a row for each of them, with the span that it is in.
        """
        layers = 0 if self.answers.profile is None else self.answers.profile.shape[1]
        for row in self:
            profile = row.pop("profile", None) or [None] * layers
            row |= {f"typicality(layer {number})": share for number, share in enumerate(profile)}
            for group, letter in (("kept", "kept"), ("probabilities", "p")):
                row |= {f"{letter}({name})": value for name, value in row.pop(group, {}).items()}
            yield from _of_words(row) if "words" in row else [row]

    def guidance(self) -> Iterator[str]:
        yield Counts().plus(self).line(self.promise)
        if not self._shown:
            yield "the embeddings are in JSON, in CSV and in the files of `output`"

    def __repr__(self) -> str:
        shown = [line for line, _ in zip(self.lines(), range(SHOWN + self.header), strict=False)]
        return "\n".join([*shown, *([f"... {len(self.inputs)} in all"] if len(self.inputs) > SHOWN else [])])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape.html(name)}</th>" for name in self.columns)
        rows = (map(_flag_text, self.columns, cells) for cells in islice(self.cells(), SHOWN))
        body = "".join(f"<tr>{''.join(f'<td>{escape.html(cell)}</td>' for cell in row)}</tr>" for row in rows)
        more = f"<p>... {len(self)} in all</p>" if len(self) > SHOWN else ""
        return f"<table><tr>{head}</tr>{body}</table>{more}<p>{escape.html(self.promise.meaning)}</p>"


def _blank(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the answer to what cannot be read: the same columns without values."""
    return {name: dict.fromkeys(value) if isinstance(value, dict) else None for name, value in row.items()}


def _flag_text(column: str, cell: str) -> str:
    return {"true": FLAGS[column], "false": ""}.get(cell, cell) if column in FLAGS else cell


def _of_words(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    words, spans = row.pop("words") or [{}], row.pop("spans") or []
    promised = "offered" in row
    offered = row.pop("offered", None) or []
    keys = ("label", "start", "end", "confidence", *(["sure"] if "sure" in row else []))
    for word in words:
        columns = {"word": word.get("text"), **{key: word.get(key) for key in keys[:4]}}
        span_of_word: dict[str, Any] = next(
            (span for span in spans if word and span["start"] <= word["start"] < span["end"]), {}
        )
        kinds = [span["label"] for span in offered if word and span["start"] <= word["start"] < span["end"]]
        columns |= {f"span {key}": span_of_word.get(key) for key in keys}
        yield row | columns | ({"offered": ", ".join(kinds)} if promised else {})


def _csv_cell(value: Any) -> Any:
    """Returns text that no spreadsheet runs, true or false in lower case, and numbers as they are."""
    if isinstance(value, tuple):
        value = ", ".join(value)
    if isinstance(value, list):
        return json.dumps(value)
    if isinstance(value, str):
        return escape.spreadsheet(value)
    return str(value).lower() if isinstance(value, bool) else value


def _cell(value: Any) -> str:
    # A tab or a line end inside a text or a label would break the columns.
    if isinstance(value, bool):
        return str(value).lower()
    return (
        f"{value:.4f}" if isinstance(value, float) else "" if value is None else printable(" ".join(str(value).split()))
    )


@dataclass(frozen=True)
class Counts:
    """Counts the answers of some predictions."""

    inputs: int = 0
    unreadable: int = 0
    flagged: int = 0
    sure: int = 0
    named: int = 0  # classes in their sets

    def plus(self, more: Predictions) -> Counts:
        """Returns the counts with those of more predictions."""
        answers, count = more.answers, len(more.good)
        flags = (answers.ood, answers.columns.get("sure"), answers.columns.get("sets"))
        flagged, sure, in_sets = (0 if values is None else int(values[:count].sum()) for values in flags)
        return Counts(
            self.inputs + len(more),
            self.unreadable + len(more.unreadable),
            flagged=self.flagged + flagged,
            sure=self.sure + sure,
            named=self.named + in_sets,
        )

    def line(self, promise: Promise) -> str:
        """Returns the counts as a line, flags beside what was promised of them."""
        answered = self.inputs - self.unreadable
        parts = [f"{self.unreadable} unreadable"] if self.unreadable else []
        if promise.flagged is not None and answered:
            share = f"{100 * self.flagged / answered:.1f} %"
            parts.append(f"{self.flagged} look OOD ({share}; {100 * promise.flagged:g} % of ID data do)")
        if promise.accuracy is not None and answered:
            parts.append(f"{self.sure} sure (right {100 * promise.accuracy:g} % of the time on ID data)")
        if promise.coverage is not None and answered:
            share = f"{100 * promise.coverage:g} %"
            parts.append(f"{self.named / answered:.2f} classes a set (holds the right one in {share} of ID data)")
        return ": ".join(filter(None, [f"{self.inputs} input{'s' * (self.inputs != 1)}", "; ".join(parts)]))


@dataclass(frozen=True, eq=False, repr=False)
class PredictionStream(Result):
    """Predictions that are made as their inputs come.

    Attributes:
        chunks: the lines that came together, each time.
        answer: predicts lines, of which the first has the number given.
    """

    chunks: Iterator[list[str]]
    answer: Callable[[list[str], int], Predictions]
    _counted: list[tuple[Counts, Promise]] = field(default_factory=list)

    @cached_property
    def _whole(self) -> Predictions:
        return self.answer([line for chunk in self.chunks for line in chunk], 0)

    def to_json(self) -> dict[str, Any]:
        return self._whole.to_json()

    def to_csv(self) -> str:
        return self._whole.to_csv()

    def lines(self) -> Iterator[str]:
        counts = Counts()
        for chunk in self.chunks:
            predictions = self.answer(chunk, counts.inputs)
            yield from replace(predictions, header=predictions.header and not counts.inputs).lines()
            counts = counts.plus(predictions)
            self._counted[:] = [(counts, predictions.promise)]

    def draw(self, console: Console) -> None:
        """Prints each answer as soon as it is there."""
        if "_whole" in vars(self):
            self._whole.draw(console)
        for line in self.lines():
            console.file.write(f"{line}\n")
            console.file.flush()

    def guidance(self) -> Iterator[str]:
        yield from self._whole.guidance() if "_whole" in vars(self) else (each.line(of) for each, of in self._counted)
