"""Predictions of a model, in the forms in which people and programs read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hydractl.inputs.result import Result
from hydractl.text import printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

SHOWN = 20  # rows of a table in a notebook
HIDDEN = ("entropy", "probabilities", "embedding", "words")  # columns that people do not see
UNREADABLE = "unreadable"
UNCALIBRATED = "Nothing is flagged: the model has no threshold; `hydractl calibrate` finds one on ID data."


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
class AnyPredictions(Result):
    """Predictions of a model for N inputs; what cannot be read keeps its place, without an answer and with NaN.

    Attributes:
        inputs: the name of each in messages: a file, a text, or a place in a data set.
        classes: the names of the C classes, labels or numbers.
        member_logits: `[M,N,C]`.
        ood_score: `[N]`, higher = more OOD by the score that `calibrate` stored; None if not calibrated.
        typicality: `[N]`, the share of calibration samples that look at least as odd, 0 to 1; None likewise.
        profile: `[N,L]`, typicality by each layer alone, the first layer first; None unless the score reads all layers.
        ood: `[N]`, true where a sample is less typical than most ID samples; None likewise.
        sure: `[N]`, true where answers are right as often as `calibrate` was asked for; None if it was not.
        sets: `[N,C]`, true for the classes of each input's set; None without a promise of sets.
        rows: `[N]`, the place of each in its file or data set, counted from 0.
        ids: `[N]`, the values of `id_column`; empty if none is named.
        kept: the values `[N]` of each column in `keep`.
        unreadable: the reason for each place among the N that cannot be read.
        promise: what the flags mean.
        header: whether the first of the lines names the columns.
    """

    inputs: Sequence[str]
    classes: Sequence[str]
    member_logits: NDArray[np.floating[Any]]
    ood_score: NDArray[np.floating[Any]] | None = None
    typicality: NDArray[np.floating[Any]] | None = None
    profile: NDArray[np.floating[Any]] | None = None
    ood: NDArray[np.bool_] | None = None
    sure: NDArray[np.bool_] | None = None
    sets: NDArray[np.bool_] | None = None
    rows: Sequence[int] = ()
    ids: Sequence[Any] = ()
    kept: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    unreadable: Mapping[int, str] = field(default_factory=dict)
    promise: Promise = Promise()
    header: bool = True

    def __len__(self) -> int:
        return len(self.inputs)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields each prediction as plain JSON."""
        odd = {"ood_score": self.ood_score, "typicality": self.typicality, "ood": self.ood}
        odd |= {} if self.sure is None else {"sure": self.sure}
        for at, name in enumerate(self.inputs):
            bad = self.unreadable.get(at)
            yield {
                "input": name,
                "row": self.rows[at] if self.rows else at,
                **({"id": self.ids[at]} if self.ids else {}),
                **self.answer(at),
                **{key: None if bad or values is None else values[at].item() for key, values in odd.items()},
                **({} if self.profile is None else {"profile": None if bad else self.profile[at].tolist()}),
                "unreadable": bad,
                "kept": {column: values[at] for column, values in self.kept.items()},
            }

    def answer(self, at: int) -> dict[str, Any]:
        """Returns the answer to an input by columns, as plain JSON; None where it cannot be read."""
        raise NotImplementedError

    @property
    def _shown(self) -> list[str]:
        return [name for name in self.answer(0) if name not in HIDDEN]

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
    def meaning(self) -> str:
        """The rule of the flags, a sentence for people."""
        return self.promise.meaning

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that people see; each is a key of the rows, or `kept(NAME)`."""
        found = ["input", *(["id"] if self.ids else []), *self._shown]
        found += [name for name in ("typicality", "ood", "sure") if getattr(self, name) is not None]
        return (*found, *(f"kept({name})" for name in self.kept))

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yields the cells of each row below these columns, as text without line ends."""
        for row in self:
            own = {"id": row.get("id"), **{f"kept({name})": value for name, value in row["kept"].items()}}
            row |= {name: None if value is None else str(value) for name, value in own.items()}
            if "words" in row:
                spans = ("{text} {label} {confidence:.2f}".format_map(one) for one in row["spans"] or ())
                row["spans"] = ", ".join(spans)
            if isinstance(label := row.get("label"), tuple):
                row["label"] = ", ".join(f"{name} {row['probabilities'][name]:.2f}" for name in label)
            if row.get("set") is not None:
                row["set"] = ", ".join(row["set"])
            if row["unreadable"]:
                # An encoder without typicality has no column of answers.
                told = next((name for name in (*self._shown, "typicality") if name in self.columns), "input")
                row[told] = f"{row['input']}: {UNREADABLE}" if told == "input" else UNREADABLE
            yield tuple(map(_cell, (row[name] for name in self.columns)))

    def lines(self) -> Iterator[str]:
        if self.header:
            yield "\t".join(map(_cell, self.columns))
        yield from map("\t".join, self.cells())

    def draw(self, console: Console) -> None:
        """Prints a table on a terminal, and plain lines in a pipe."""
        if console.is_terminal:
            from hydractl.reports.prediction_rows import print_predictions

            print_predictions(self, console)
        else:
            console.file.writelines(f"{line}\n" for line in self.lines())

    def to_csv(self) -> str:
        """Returns what `--csv` writes: a header and a line per input, with a column per class."""
        from hydractl.reports.prediction_rows import predictions_csv

        return predictions_csv(self)

    def guidance(self) -> Iterator[str]:
        yield Counts().plus(self).line(self.promise)

    def __repr__(self) -> str:
        shown = [line for line, _ in zip(self.lines(), range(SHOWN + self.header), strict=False)]
        return "\n".join([*shown, *([f"... {len(self.inputs)} in all"] if len(self.inputs) > SHOWN else [])])

    def _repr_html_(self) -> str:
        from hydractl.reports.prediction_rows import predictions_html

        return predictions_html(self, SHOWN)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Predictions(AnyPredictions):
    """Classes or labels for N inputs.

    Attributes:
        labels: the most probable class of each, for a multi-label model the labels of its answer as a tuple; None where
            it cannot be read.
        probabilities: `[N,C]`, the members' mean.
        msp: `[N]`, the maximum softmax probability: low means likely wrong, or unlike the training data.
        entropy: `[N]`, nats, of the probabilities: high means the same.
        mutual_information: `[N]`, nats: high means that the members disagree.
    """

    labels: Sequence[Any]
    probabilities: NDArray[np.floating[Any]]
    msp: NDArray[np.floating[Any]]
    entropy: NDArray[np.floating[Any]]
    mutual_information: NDArray[np.floating[Any]]

    def answer(self, at: int) -> dict[str, Any]:
        numbers = {name: _number(getattr(self, name)[at]) for name in ("msp", "entropy", "mutual_information")}
        probabilities = dict(zip(self.classes, map(_number, self.probabilities[at]), strict=True))
        named = {} if self.sets is None else {"set": None if at in self.unreadable else self._set(at, self.sets[at])}
        return {"label": self.labels[at], **numbers, **named, "probabilities": probabilities}

    def _set(self, at: int, chosen: NDArray[np.bool_]) -> tuple[str, ...]:
        """Returns the classes in the set of an input, the most probable first."""
        order = (-self.probabilities[at]).argsort(kind="stable")
        return tuple(self.classes[one] for one in order if chosen[one])


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SentencePredictions(Predictions):
    """Labelled words for N texts; labels are spans, and arrays those of `hydractl.tasks.tagged_words`.

    Attributes:
        words: the words of each text; None where it cannot be read.
    """

    words: Sequence[Any]

    def answer(self, at: int) -> dict[str, Any]:
        numbers = {name: _number(getattr(self, name)[at]) for name in ("msp", "entropy", "mutual_information")}
        return {"spans": _plain(self.labels[at]), **numbers, "words": _plain(self.words[at])}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NumberPredictions(AnyPredictions):
    """Numbers for N inputs; columns of several carry the number's name in brackets.

    Attributes:
        values: `[N,C]`, the members' mean.
        spread: `[N,C]`, the standard deviation between members.
        low: `[N,C]`, where the interval that calibration fitted begins; None if the model was not calibrated.
        high: `[N,C]`, where it ends; None likewise.
    """

    values: NDArray[np.floating[Any]]
    spread: NDArray[np.floating[Any]]
    low: NDArray[np.floating[Any]] | None = None
    high: NDArray[np.floating[Any]] | None = None

    def answer(self, at: int) -> dict[str, Any]:
        found = {"value": self.values, "spread": self.spread, "low": self.low, "high": self.high}
        known = {column: map(_number, numbers[at]) for column, numbers in found.items() if numbers is not None}
        names = [""] if len(self.classes) == 1 else [f"({name})" for name in self.classes]
        return {f"{column}{name}": next(numbers) for name in names for column, numbers in known.items()}


def _number(value: Any) -> float | None:
    return None if value != value else float(value)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EmbeddingPredictions(AnyPredictions):
    """Embeddings for N inputs, which files hold in a column `embedding`.

    Attributes:
        embeddings: `[N,P]`, the members' mean direction at their mean length.
    """

    embeddings: NDArray[np.floating[Any]]

    def guidance(self) -> Iterator[str]:
        yield from super().guidance()
        yield "the embeddings are in JSON, in CSV and in the files of `output`"

    def answer(self, at: int) -> dict[str, Any]:
        return {"embedding": None if at in self.unreadable else self.embeddings[at].tolist()}


def _plain(words: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    """Returns the words or spans of a text as plain JSON; None of one that cannot be read."""
    found = None if words is None else [one._asdict() for one in words]
    return found and [{key: value for key, value in one.items() if value is not None} for one in found]


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

    def plus(self, found: AnyPredictions) -> Counts:
        """Returns the counts with those of more predictions."""
        flagged, sure = (0 if flags is None else int(flags.sum()) for flags in (found.ood, found.sure))
        return Counts(
            self.inputs + len(found),
            self.unreadable + len(found.unreadable),
            flagged=self.flagged + flagged,
            sure=self.sure + sure,
            named=self.named + (0 if found.sets is None else int(found.sets.sum())),
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
    answer: Callable[[list[str], int], AnyPredictions]
    _counted: list[tuple[Counts, Promise]] = field(default_factory=list)

    @cached_property
    def _whole(self) -> AnyPredictions:
        return self.answer([line for chunk in self.chunks for line in chunk], 0)

    def to_json(self) -> dict[str, Any]:
        return self._whole.to_json()

    def to_csv(self) -> str:
        return self._whole.to_csv()

    def lines(self) -> Iterator[str]:
        counts = Counts()
        for chunk in self.chunks:
            found = self.answer(chunk, counts.inputs)
            yield from replace(found, header=found.header and not counts.inputs).lines()
            counts = counts.plus(found)
            self._counted[:] = [(counts, found.promise)]

    def draw(self, console: Console) -> None:
        """Prints each answer as soon as it is there."""
        if "_whole" in vars(self):
            self._whole.draw(console)
        for line in self.lines():
            console.file.write(f"{line}\n")
            console.file.flush()

    def guidance(self) -> Iterator[str]:
        yield from self._whole.guidance() if "_whole" in vars(self) else (each.line(of) for each, of in self._counted)
