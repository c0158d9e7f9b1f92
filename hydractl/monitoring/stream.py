"""A stream of answers in memory: evidence that its inputs have changed, a test valid at any time, and counts."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hydractl.checkpoint.calibration import Baseline
from hydractl.errors import OptionError
from hydractl.monitoring.estimates import ENTRIES, Confidence, Likely, likely
from hydractl.schema import Checked, Items, Schema
from hydractl.tasks.task import OneAnswer, Task

#: Typicalities at most this small are bet on, and the shares of odd inputs that a bet assumes.
EDGES = (0.002, 0.01, 0.02, 0.05, 0.1, 0.25)
SHARES = (0.02, 0.1, 0.4)
EVERY = 50  # inputs from one possible start of a change to the next
#: A bet wins no more than this, so that evidence falls again when inputs are typical again.
MOST = 1e9

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Scale:
    """The steps of typicality.

    Attributes:
        samples: how many samples typicality counts.
        quantiles: how many of their scores are stored; typicality is a multiple of 1 / (quantiles + 1).
    """

    samples: int
    quantiles: int

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """The number of steps up to each edge, `[E]`, at least 1."""
        return np.maximum(np.floor(np.array(EDGES) * (self.quantiles + 1) + 1e-9), 1).astype(np.int64)

    @cached_property
    def cells(self) -> FloatArray:
        """The number of gaps, among samples + 1 between calibration scores, up to each edge, `[E]`."""
        return np.asarray(self.steps * (self.samples + 1) // (self.quantiles + 1), dtype=np.float64)

    def cells_below(self, share: float) -> int:
        """Returns the number of such gaps that a typicality below a share has."""
        steps = int(np.ceil((share - 1e-6) * (self.quantiles + 1))) - 1
        return steps * (self.samples + 1) // (self.quantiles + 1)

    def low(self, typicality: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Returns which edges each typicality `[...]` does not exceed, `[...,E]`."""
        return np.rint(typicality * (self.quantiles + 1))[..., None] <= self.steps


@dataclass
class Evidence:
    """Evidence against "these inputs are like the calibration samples", of one stream or of several side by side.

    Typicalities count calibration samples, so of exchangeable inputs the place of the next one among the calibration
    samples and the inputs so far is uniform. Hence, whatever the calibration samples are, the next typicality is up to
    an edge with the probability (cells + inputs so far up to it) / (samples + 1 + inputs so far). A bet on a share o of
    odd inputs multiplies its capital by 1 - o, plus o / that probability if the input is up to the edge: on average by
    1. A change may start at each fiftieth input, the k-th with a weight h(k) - h(k + 1) for h(k) = 1 / (1 + log k);
    all weights sum to 1. The evidence is the mean over bets of what all starts have won, plus the weight of the starts
    to come. It begins at 1 and is a martingale. So the probability, over calibration sets and streams together, that it
    ever reaches 1 / alpha is at most alpha: over a stream of any length, not for each window or each input.

    The chance of the calibration set is part of that probability: evidence of few samples stays small, and what the
    stream itself shows makes up for them. A restart without weights (Shiryaev-Roberts) would only bound the mean number
    of inputs between false alarms. Ties between scores make the evidence smaller, which keeps the promise.

    Attributes:
        scale: the steps of typicality.
        seen: how many inputs came.
        low: how many of them were up to each edge, `[...,E]`.
        capital: what each bet has won, `[...,E,O]`.

    Source: Vovk et al. 2005, Shin et al. 2024; Ville 1939 for the bound.
    """

    scale: Scale
    seen: int = 0
    low: FloatArray = field(default_factory=lambda: np.zeros(len(EDGES)))
    capital: FloatArray = field(default_factory=lambda: np.zeros((len(EDGES), len(SHARES))))

    def add(self, low: NDArray[np.bool_]) -> None:
        """Adds one input to each stream.

        Args:
            low: from `Scale.low`, `[...,E]`.
        """
        if self.seen % EVERY == 0:
            self.capital = self.capital + _weight(self.seen // EVERY + 1) - _weight(self.seen // EVERY + 2)
        chance = (self.scale.cells + self.low) / (self.scale.samples + 1 + self.seen)
        odd = np.array(SHARES)
        won = 1 - odd + odd * (low / chance)[..., None]
        self.capital = np.minimum(self.capital * won, MOST)
        self.low, self.seen = self.low + low, self.seen + 1

    @property
    def value(self) -> FloatArray:
        """The evidence, `[...]`; 1 before the first input."""
        to_come = _weight(-(-self.seen // EVERY) + 1)
        return np.asarray(self.capital.mean((-2, -1)) + to_come)


def _weight(start: int) -> float:
    """Returns the weight of this and all later starts, from 1."""
    return float(1 / (1 + np.log(start)))


BINS = 20  # of the histogram of typicality
RARE = EDGES.index(0.05)  # the edge by which layers are compared
RECENT = 500  # inputs whose probabilities are kept
SPANS = 64  # of a stream's history at most; each starts as long as this many inputs
FIRST_SPAN = 50

Count = Annotated[int, Checked(ge=0, le=2**53)]
Number = Annotated[float, Checked(ge=0)]
Probability = Annotated[float, Checked(ge=0, le=1)]
#: As `Likely`, from a file.
LikelyRow = Annotated[Items[tuple[Count, Probability]], Checked(min_length=1, max_length=ENTRIES)]


@dataclass(frozen=True)
class Known:
    """The numbers of a calibrated file about ID inputs.

    Attributes:
        calibration: SHA-256 of its fitted numbers; a state goes on only with the same.
        scale: the steps of typicality.
        accept: the share of ID inputs that it does not flag.
        layers: how many a profile has; 0 without profiles.
        classes: the names, or those of labels; none if it answers otherwise; None if they may change.
        baseline: the answers to its labelled samples; None if there are none.
        task: what the model answers.
    """

    calibration: str
    scale: Scale
    accept: float
    layers: int
    classes: tuple[str, ...] | None
    baseline: Baseline | None
    task: Task

    def require_class(self) -> None:
        """Raises OptionError unless the model chooses one class for an input, so that a label tells if it is right."""
        if self.task.label_type is not str:
            raise OptionError("`labels` are classes, which this model does not predict: leave them out")

    def watched(self, answer: OneAnswer) -> OneAnswer:
        """Returns an answer without what is not watched of this model."""
        return self.task.watch(answer, self.classes)


class Span(Schema):
    """Counts over successive inputs, and the evidence after the last."""

    inputs: Count
    evidence: Number
    low: Count  # typicalities up to 5 %
    confidence: Number | None  # the sum; None without classes
    layers: Items[Count] = ()  # typicalities up to 5 % by each layer
    typical: Items[Number] = ()  # the sum of typicalities by each layer


class StreamState(Schema):
    """A stream as a state file holds it."""

    seen: Count
    low: Items[Count]
    capital: Items[Items[Number]]
    highest: Number  # evidence so far
    alarm: Count | None  # the input at which evidence first sufficed
    confidence: tuple[Number, Number]  # the sums of confidence and of its squares
    above: Count  # answers at the threshold of ATC or above
    accepted: tuple[Number, Number, Count]  # the same three of inputs that do not look OOD
    flagged: Count
    histogram: Items[Count]
    predicted: dict[str, Count]
    recent: Items[LikelyRow]
    history: Items[Span]
    right: Count
    labelled: Count


@dataclass
class Stream:
    """Answers in the order in which they came, as evidence and counts; the fields are those of `StreamState`."""

    reference: Known
    alpha: float
    evidence: Evidence
    highest: float = 1.0
    alarm: int | None = None
    confidence: tuple[float, float] = (0.0, 0.0)
    above: int = 0
    accepted: tuple[float, float, int] = (0.0, 0.0, 0)
    flagged: int = 0
    histogram: list[int] = field(default_factory=lambda: [0] * BINS)
    predicted: dict[str, int] = field(default_factory=dict)
    recent: list[Likely] = field(default_factory=list)
    history: list[Span] = field(default_factory=list)
    right: int = 0
    labelled: int = 0

    @classmethod
    def start(cls, reference: Known, alpha: float) -> Stream:
        """Returns a stream before its first input."""
        return cls(reference, alpha, Evidence(reference.scale))

    def add(self, answer: OneAnswer) -> None:
        """Adds one answer."""
        low = self.reference.scale.low(np.array(answer.typicality))
        self.evidence.add(low)
        value = float(self.evidence.value)
        self.highest = max(self.highest, value)
        if self.alarm is None and value >= 1 / self.alpha:
            self.alarm = self.evidence.seen
        sure, (total, squares) = answer.confidence or 0.0, self.confidence
        self.confidence = total + sure, squares + sure**2
        above = int(self.reference.baseline is not None and sure >= self.reference.baseline.threshold)
        self.above += above
        if answer.typicality < 1 - self.reference.accept - 1e-6:
            self.flagged += 1
        else:
            total, squares, count = self.accepted
            self.accepted = total + sure, squares + sure**2, count + above
        self.histogram[min(int(answer.typicality * BINS), BINS - 1)] += 1
        for label in answer.labels:
            self.predicted[label] = self.predicted.get(label, 0) + 1
        if answer.probabilities is not None:
            self.recent = [*self.recent[1 - RECENT :], likely(answer.probabilities)]
        self._remember(answer, value, bool(low[RARE]))

    def _remember(self, answer: OneAnswer, value: float, low: bool) -> None:
        """Adds an answer to the history, whose spans become twice as long when there are too many."""
        profile = np.zeros(0) if answer.profile is None else answer.profile
        latest = Span(
            inputs=1,
            evidence=value,
            low=int(low),
            confidence=answer.confidence,
            layers=tuple(map(int, self.reference.scale.low(profile)[:, RARE])),
            typical=tuple(map(float, profile)),
        )
        width = max([FIRST_SPAN, *(span.inputs for span in self.history)])
        if self.history and self.history[-1].inputs < width:
            self.history[-1] = _joined(self.history[-1], latest)
        elif len(self.history) < SPANS:
            self.history.append(latest)
        else:
            self.history = [_joined(*pair) for pair in zip(self.history[::2], self.history[1::2], strict=True)] + [
                latest
            ]

    @property
    def answered(self) -> Confidence:
        """The confidence of all answers."""
        return Confidence(self.evidence.seen, *self.confidence, self.above)

    @property
    def answered_accepted(self) -> Confidence:
        """The confidence of the answers to inputs that do not look OOD."""
        return Confidence(self.evidence.seen - self.flagged, *self.accepted)

    def label(self, right: bool) -> None:
        """Adds what a label shows of one answer."""
        self.labelled, self.right = self.labelled + 1, self.right + int(right)

    def state(self) -> StreamState:
        """Returns what a state file holds."""
        return StreamState(
            seen=self.evidence.seen,
            low=tuple(map(int, self.evidence.low)),
            capital=tuple(tuple(map(float, row)) for row in self.evidence.capital),
            **{name: copy(getattr(self, name)) for name in COUNTED},
        )

    @classmethod
    def of(cls, state: StreamState, reference: Known, alpha: float) -> Stream:
        """Returns the stream that a file holds.

        Raises:
            ValueError: it contradicts itself, or is not of this calibration.
        """
        _check(state, reference)
        low, capital = (np.array(numbers, dtype=np.float64) for numbers in (state.low, state.capital))
        counted: dict[str, Any] = {name: getattr(state, name) for name in COUNTED}
        lists = {name: list(counted[name]) for name in ("histogram", "recent", "history")}
        return cls(reference, alpha, Evidence(reference.scale, state.seen, low, capital), **counted | lists)


#: The fields that a stream has as its state has them.
COUNTED = tuple(each.name for each in fields(Stream))[3:]


def _joined(first: Span, second: Span) -> Span:
    profiled = len(first.layers) == len(second.layers)  # a pipe has no profiles

    def summed(name: str) -> tuple[Any, ...]:
        return tuple(map(sum, zip(getattr(first, name), getattr(second, name), strict=True))) if profiled else ()

    return replace(
        second,
        inputs=first.inputs + second.inputs,
        low=first.low + second.low,
        confidence=None if first.confidence is None else first.confidence + (second.confidence or 0.0),
        layers=summed("layers"),
        typical=summed("typical"),
    )


def _check(state: StreamState, reference: Known) -> None:
    """Raises ValueError if a stream from outside contradicts itself."""
    seen, classes = state.seen, None if reference.classes is None else len(reference.classes)
    predicted, one_class = state.predicted.values(), reference.task.label_type is str
    shapes = [len(state.low) == len(EDGES) == len(state.capital), len(state.histogram) == BINS]
    shapes += [len(row) == len(SHARES) for row in state.capital]
    shapes += [len(span.layers) == len(span.typical) in (0, reference.layers) for span in state.history]
    shapes += [len(state.history) <= SPANS + 1, len(state.recent) <= RECENT * one_class]
    if not all(shapes):
        raise ValueError("lists have other lengths than a state of this model")
    parts = [
        max(state.low, default=0),
        state.above,
        state.accepted[2] + state.flagged,
        state.flagged,
        state.alarm or 0,
        state.labelled,
    ]
    parts.append(max(predicted, default=0))
    sums = [sum(state.histogram), sum(predicted) if one_class else seen, sum(span.inputs for span in state.history)]
    if any(part > seen for part in parts) or any(total != seen for total in sums) or state.right > state.labelled:
        raise ValueError(f"counts do not fit the {seen} inputs")
    if any(place >= (classes or place + 1) for row in state.recent for place, _ in row):
        raise ValueError("recent names a class that the model does not have")
    if reference.classes is not None and not state.predicted.keys() <= set(reference.classes):
        raise ValueError("predicted names a class that the model does not have")
