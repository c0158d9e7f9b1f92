"""A task, which is one kind of answer, and answers: the one value that everyone gives and takes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hydractl.checkpoint.calibration import INTERVAL, NOT_CALIBRATED, Calibration
from hydractl.checkpoint.spec import ModelSpec, TaskName
from hydractl.errors import DataError, OptionError
from hydractl.metrics.arrays import BoolArray, FloatArray, IntArray, Logits, mean_probabilities
from hydractl.metrics.classification import ByClass
from hydractl.metrics.scaling import FittedTemperature
from hydractl.ood.score import FitSamples, flagged

if TYPE_CHECKING:
    from torch import Tensor

#: In how many equal parts a quality is counted that is more than right or wrong.
FINE = 10**6
SHOWN = 10  # samples that a readable answer shows
#: Columns of a row that people do not see: they are in JSON, in files and in Python.
HIDDEN = ("entropy", "probabilities", "embedding", "words")


class AnswerArray(np.ndarray[Any, Any]):
    """An array of answers, and slices of it; what is computed of them is a plain array.

    It has the method by which programs take arrays from tensors, so that they need not know which of both they hold.
    """

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else np.asarray(array)

    def numpy(self) -> NDArray[Any]:
        """Returns the same numbers as a plain array, without a copy."""
        return self.view(np.ndarray)


def as_answer(value: Any) -> Any:
    """Returns an array as one of answers, and anything else as it is."""
    return value.view(AnswerArray) if isinstance(value, np.ndarray) else value


@dataclass(frozen=True)
class Names:
    """The names of a kind of model in transformers.

    Attributes:
        model: the class in exports/modeling.py.
        automatic: the automatic class of transformers that finds it.
        pipeline: the name of the pipeline in transformers.
        typical: the pipeline in `hydractl.auto` that gives typicality too; None if there is none.
    """

    model: str
    automatic: str
    pipeline: str
    typical: str | None = None


class Maps(Protocol):
    """The last maps of a network; see `Hydra`."""

    def classify(self, pooled: Tensor) -> Tensor:
        """Returns logits of pooled tokens, or embeddings where there is no classifier."""

    def embed(self, tower: str, pooled: Tensor) -> Tensor:
        """Returns embeddings of pooled tokens."""

    def compare_prompts(self, images: Tensor, texts: Tensor | None, mask: Tensor | None) -> Tensor:
        """Returns logits of the embeddings of images, for classes in prompts."""

    def mean_of_tokens(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        """Returns the mean `[G,B,D]` of the tokens `[G,B,T,D]` that count."""


class Judged(NamedTuple):
    """Measures of an ensemble's answers to n samples, or words, each `[n]`.

    Attributes:
        quality: as the task measures it, 1 for the best answer; None without labels.
        confidence: higher = more in-distribution; None where answers have none.
        loss: None without labels.
    """

    quality: FloatArray | None
    confidence: FloatArray | None
    loss: FloatArray | None

    def of_sentences(self, counts: IntArray) -> Judged:
        """Returns those of sentences with so many of the words each: mean quality and loss, the least confidence."""
        starts = np.cumsum(counts) - counts
        quality, loss = (None if x is None else np.add.reduceat(x, starts) / counts for x in (self.quality, self.loss))
        return Judged(quality, None if self.confidence is None else np.minimum.reduceat(self.confidence, starts), loss)


class Trials(NamedTuple):
    """The cases `[n]` that a promise of a file is made for, and whether each keeps it.

    Attributes:
        promise: the option of `calibrate` that asks for it.
        promised: the share of cases that should keep it.
        kept: whether each case does, or how large a share of it.
        of: the class, label or number that it is made for; empty for one of all.
        chance: a and b of the beta distribution of the share that fails, over calibration sets, where it follows from
            ranks; None where a one-sided 95 % bound was fitted.
        fitted: how many cases a bound was fitted on; None for as many a sample as here.
        effect: by how much the share kept varies more than that of independent cases.
    """

    promise: str
    promised: float
    kept: BoolArray | FloatArray
    of: str = ""
    chance: tuple[float, float] | None = None
    fitted: int | None = None
    effect: float = 1.0


def by_ranks(samples: int, share: float) -> tuple[float, float]:
    """Returns the chance of a promise that the `ceil((samples + 1) share)`-th smallest calibration score makes."""
    rank = min(ceil(round((samples + 1) * share, 6)), samples)
    return samples + 1 - rank, rank


class Claims(NamedTuple):
    """The n answers or spans that may be sure.

    Attributes:
        confidence: `[n]`.
        right: `[n]`, whether they are right.
        classes: `[n]`, what is answered; zeros of spans, for which one bound is fitted.
        samples: `[n]`, the number of the sample of each; None where every sample has one answer.
    """

    confidence: FloatArray
    right: BoolArray
    classes: IntArray
    samples: IntArray | None = None


class TrueParts(NamedTuple):
    """The labels that answers may hold, or the kinds of spans that words may be part of: K for each of n rows.

    Attributes:
        p: `[n,K]`, their probabilities.
        answered: `[n,K]`, those that answers hold without a promise of recall.
        there: `[n,K]`, those that are true.
        rows: `[n]`, the number of the sample of each row.
        right: `[t]`, the probability of each true label, or the least among the words of each true span.
        samples: `[t]`, the number of its sample.
        labels: `[t]`, that of its label or kind.
    """

    p: FloatArray
    answered: BoolArray
    there: BoolArray
    rows: IntArray
    right: FloatArray
    samples: IntArray
    labels: IntArray

    def groups(self, names: Sequence[str] | None) -> dict[str, TrueParts]:
        """Returns the same with the true parts of each label alone, by name; without names, all of them."""
        masks = {name: self.labels == label for label, name in enumerate(names or ())}
        true = {"right": self.right, "samples": self.samples, "labels": self.labels}
        each = {name: self._replace(**{key: of[mask] for key, of in true.items()}) for name, mask in masks.items()}
        return each or {"": self}

    def kept(self, least: Sequence[float]) -> tuple[IntArray, FloatArray]:
        """Returns the numbers of the samples with a true part, and which share of these each answer holds.

        Args:
            least: the probability from which a part is answered, one for all or `[K]`.
        """
        bounds = np.broadcast_to(least, self.p.shape[1])
        counts, hits = (np.bincount(self.samples, w) for w in (None, self.right >= bounds[self.labels]))
        having = np.flatnonzero(counts)
        return having, hits[having] / counts[having]


class Matcher(Protocol):
    """Finds the labels of some samples; a task calls the method for its kind of labels."""

    def classes(self) -> Any:
        """Returns samples with one class each."""

    def label_sets(self) -> Any:
        """Returns samples with any number of labels each."""

    def numbers(self, unit: bool) -> Any:
        """Returns samples with numbers, from 0 to 1 for `unit`."""

    def tags(self) -> Any:
        """Returns samples with a label for each word."""

    def nothing(self) -> Any:
        """Returns samples of which no label is read."""


def share_of(row: Mapping[str, Any], name: str) -> float:
    """Returns a number from 0 to 1 in a row; raises ValueError for another."""
    value = float(row[name])
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is {value:g}, not from 0 to 1")
    return value


def number_or_none(value: Any) -> float | None:
    """Returns a number as plain JSON, None for NaN."""
    return None if value != value else float(value)


class Task(Protocol):
    """One kind of answer: link and losses of its logits, measures, what calibration fits, labels, rows.

    Tensors are of torch, which is imported by the functions that train or run; arrays are of numpy, so that a service
    and a monitor need no torch.

    Attributes:
        name: its name in a spec.
        names: those of its models in transformers.
        answers: what its answers are, for messages.
        measured: the name of the quality that searches go by, for people.
        parts: in how many equal parts a sample's quality is counted.
        loss_name: the name of its loss in tables.
        objective: what circuits are searched by unless told: `avg` needs a confidence.
        tells_ood: what of an answer tells OOD samples without a fit: any score of logits, its confidence, or nothing.
        promises: what `calibrate` can promise of its answers.
        by_class: those that each class or label can keep by itself.
        either: those of which a file makes at most one.
        taught_only: whether nothing can be right or wrong but by another network's answers.
        label_type: what a monitor counts of an answer: a name, a tuple of names, or nothing.
        outliers_teach: whether a network can learn to be unsure of OOD data.
        or_else: what helps besides where labels do not match; None if nothing does.
        fixed: whether an answer is one of classes that stay, on which OOD scores and promises may depend.
        fewest: how many classes, labels or numbers a new classifier needs.
        output: the name of its answers in a graph.
        axes: those of members' logits in a graph.
    """

    name: TaskName
    names: Names
    answers: ClassVar[str]
    measured: ClassVar[str] = "accuracy"
    parts: ClassVar[int] = 1
    loss_name: ClassVar[str] = "NLL"
    objective: ClassVar[Literal["acc", "avg"]] = "avg"
    tells_ood: ClassVar[Literal["scores", "confidence", "nothing"]] = "confidence"
    promises: ClassVar[tuple[str, ...]] = ()
    by_class: ClassVar[tuple[str, ...]] = ()
    either: ClassVar[tuple[str, ...]] = ()
    taught_only: ClassVar[bool] = False
    outliers_teach: ClassVar[bool] = True
    label_type: ClassVar[type | None] = None
    or_else: ClassVar[str | None] = "train a new classifier with `new_classifier` zeros"
    fixed: ClassVar[bool] = False
    fewest: ClassVar[int] = 1
    output: ClassVar[str] = "probabilities"
    axes: ClassVar[tuple[str, ...]] = ("members", "samples", "answers")

    @property
    def key(self) -> str:
        """The name of the quality in JSON."""
        return self.measured.lower().replace(" ", "_")

    @property
    def config(self) -> dict[str, Any]:
        """The fields of a config.json that tell this task from others on the same inputs, besides `problem_type`."""
        return {}

    def card(self) -> str:
        """Returns what a model card says of its logits."""

    # Labels.

    def unnamed(self, count: int) -> tuple[str, ...]:
        """Returns names for classes that have none."""
        return tuple(f"LABEL_{number}" for number in range(count))

    def match(self, matcher: Matcher) -> Any:
        """Returns samples with the labels that this task reads."""

    def truth(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Returns matched labels as answers are measured by them."""
        return labels

    def has_accuracy(self, labels: NDArray[Any] | None) -> bool:
        """Returns whether answers are right or wrong, by labels like these."""
        return True

    # Classes by prompt.

    def template(self, template: str) -> str | None:
        """Returns the prompt of its classes; None where a classifier has them."""
        return None

    def prompts(self, classes: Sequence[str], template: str) -> list[str]:
        """Returns the prompts of some classes; raises OptionError where they cannot be set."""
        raise OptionError("the classifier fixes this model's classes: leave them out")

    def require_classifier(self, refusal: str) -> None:
        """Raises OptionError for a network whose classes are prompts."""
        return

    def require_classes(self, classes: object) -> None:
        """Raises OptionError where prompts need classes and there are none."""
        return

    # The forward pass and training.

    def read(self, network: Maps, pooled: Tensor, texts: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns members' logits `[G,B,C]` of pooled tokens `[G,B,D]`, and what they are made of `[G,B,D']`.

        Args:
            texts: the tokens of a batch of texts, or of prompts.
            mask: non-zero where a token counts.
        """
        return network.classify(pooled), pooled

    def link(self, member_logits: Tensor, temperature: float) -> Tensor:
        """Returns the logits `[B,C]` of the ensemble for members' logits `[M,B,C]`, always finite, at least float32."""

    def probabilities(self, logits: Tensor) -> Tensor:
        """Returns the probabilities `[B,C]` for these, or the numbers or embeddings."""

    def losses(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        """Returns the loss `[G*B]` of each sample in each copy.

        Args:
            logits: `[G,B,C]`.
            labels: `[B]`, or `[B,C]` of several labels or numbers.
            smoothing: the share of a label that goes to all classes.
        """

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns the mean loss of a batch; see `losses`."""
        return self.losses(logits, labels).mean()

    def taught_losses(self, logits: Tensor, taught: Tensor) -> Tensor:
        """Returns the parts of the loss to teachers' answers `[B,C]`, `[G,B,C]` to be summed."""

    def outlier_losses(self, logits: Tensor) -> Tensor:
        """Returns the loss `[G,B]` of each of some outliers with logits `[G,B,C]`; raises OptionError if none makes
        sense."""

    # Searches.

    def judge(self, members: FloatArray, labels: Any, variance: FloatArray | None = None) -> Judged:
        """Returns what searches go by.

        Args:
            members: `[M,n,C]`, logits over their temperature.
            labels: as for `losses`, or None.
            variance: `[C]` of the labels of all samples, where they are numbers.
        """

    def variance(self, labels: NDArray[Any]) -> FloatArray | None:
        """Returns the variance `[C]` of labels that are numbers; None for other labels."""
        return None

    # Measures.

    def table(self, answers: Answers) -> Any:
        """Returns the per-sample quantities of a set in float64; None where answers without labels tell nothing."""

    def metrics(self, table: Any) -> dict[str, Any]:
        """Returns every number of labelled samples by name."""

    def replicates(self, table: Any, draws: int, seed: int) -> dict[str, FloatArray]:
        """Returns resampled values `[draws]` of these numbers."""

    def class_numbers(self, table: Any, names: Sequence[str], flags: BoolArray | None) -> ByClass | None:
        """Returns the numbers of each class, label or tag by name; None where answers hold none.

        Args:
            table: of labelled samples.
            names: `[C]`.
            flags: `[N]`, whether each sample looks OOD; None if nothing tells.
        """
        return None

    # Calibration.

    def fit(self, answers: Answers, interval: float = INTERVAL, precision: float | None = None) -> FittedTemperature:
        """Returns what calibration fits to labelled answers.

        Args:
            interval: the share of right numbers that intervals hold.
            precision: of each of several labels; None for the highest F1.

        Raises:
            DataError: the samples are too few.
            OptionError: no label can fit such answers.
        """

    def unfitted(self, samples: int) -> str:
        """Returns what `calibrate` tells of samples to whose labels nothing was fitted."""
        return f"confidence is not calibrated, since the {samples} samples have no labels"

    def check_promises(self, names: Collection[str], by_class: bool) -> None:
        """Raises OptionError for promises that cannot be made of its answers, or not together.

        Args:
            names: the options that ask for them.
            by_class: whether each class should keep them by itself.
        """
        promised = "`, `".join(self.promises)
        others = (
            f"promise `{promised}`" if promised else "train a classifier for it by finetune with `new_classifier` zeros"
        )
        for name in names:
            if name not in self.promises:
                problem = f"`{name}` cannot be promised of {self.answers}, and this model is for {self.name}"
                raise OptionError(f"{problem}: leave it out, or {others}")
        if by_class and not set(names) & set(self.by_class):
            raise OptionError(f"`by_class` with `{'`, `'.join(names)}` is not for {self.answers}: leave it out")
        if len(both := [name for name in self.either if name in names]) > 1:
            raise OptionError(f"`{'` and `'.join(both)}` both set the thresholds of {self.answers}: name one of them")

    def open_promises(self, made: Collection[str]) -> tuple[str, ...]:
        """Returns the promises that a file could make beside those that it makes."""
        barred = self.either if any(name in made for name in self.either) else ()
        return tuple(name for name in self.promises if name not in made and name not in barred)

    def check_fit(self, score: str, promised: str | None) -> None:
        """Raises OptionError for what cannot be fitted to its answers.

        Args:
            score: the name of an OOD score, or auto.
            promised: what is promised of classes, for messages; None if nothing is.
        """
        return

    def right(self, table: Any) -> BoolArray | None:
        """Returns whether each answer in a table is right as a whole, `[N]`; None where nothing tells."""
        outcomes = getattr(table, "outcomes", None)
        return None if outcomes is None else outcomes.correct

    def trials(self, answers: Answers) -> Iterator[Trials]:
        """Yields the cases of what calibration promises, in labelled answers."""
        yield from ()

    def claims(self, answers: Answers) -> Claims:
        """Returns what may be sure in labelled answers, see `OodFit.sure`; nothing where none is one class."""
        return Claims(np.zeros(0), np.zeros(0, bool), np.zeros(0, np.int64))

    def true_parts(self, answers: Answers) -> TrueParts | None:
        """Returns the labels or parts of spans in labelled answers, true or not; None of answers without."""
        return None

    def choices(self, answers: Answers) -> tuple[BoolArray, int] | None:
        """Returns which choices `[N]` or `[N,C]` are right, and how many each is made among; None of numbers."""
        return None

    # Rows.

    def columns(self, answers: Answers) -> Mapping[str, Any]:
        """Returns what people and programs read of answers, by name, in the dtype of the logits."""

    def count(self, spec: ModelSpec, classes: Sequence[str] | None) -> int:
        """Returns how many numbers a member answers with."""
        return spec.classes or len(classes or ())

    def width(self, answers: Answers) -> str:
        """Returns how many classes, labels or numbers there are, in words."""
        return f"{answers.logits.shape[-1]} {self.answers}"

    def row(self, answers: Answers, at: int) -> dict[str, Any]:
        """Returns the answer to a sample by columns, as plain JSON."""

    def read_row(self, row: Mapping[str, Any], classes: Sequence[str] | None) -> OneAnswer:
        """Returns the answer in a row that `predict` wrote, without typicality and profile.

        Raises:
            KeyError: the row lacks a column.
            ValueError: it holds something else.
        """
        return OneAnswer(0.0)

    def watch(self, answer: OneAnswer, classes: tuple[str, ...] | None) -> OneAnswer:
        """Returns what a monitor watches of an answer."""
        return OneAnswer(answer.typicality, profile=answer.profile)

    def watched(self, classes: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Returns the classes whose shares a monitor watches; none of other answers, None if they may change."""
        return ()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Answers:
    """A system's answers to N samples, in their order: named columns, of arrays in float32 or float64.

    What the task makes of them, such as `labels`, `probabilities` and `msp`, are further columns: see `Task.columns`.

    Attributes:
        task: what the system answers.
        classes: names of the C classes, labels or numbers; None if they have none.
        calibration: what was fitted to these answers.
        member_logits: `[M,N,C]`, before any temperature; `[M,n,C]` of n words; None if only a confidence was saved.
        truth: `[N]` int64 in 0..C-1, `[N,C]` of several labels or float64 of numbers, `[n]` of words; None of samples
            without labels.
        places: `[n,2]`, sentence and number of each word in order; None where samples have one answer.
        features: `[M,N,D']`, the inputs of the members' classifiers; None unless they were asked for.
        hidden: `[S,N,D]` of each hidden layer, S 1 or M; empty unless they were asked for.
        ood_score: `[N]`, higher = more OOD, by the score in the system's own file; None without one.
        typicality: `[N]`, the share of calibration samples that look at least as odd, 0 to 1; None likewise.
        profile: `[N,L]`, typicality by each layer alone, the first layer first; None unless the score reads all layers.
        confidence: `[N]`, the system's own account of how probably it is right; None if logits say it.
        correct: `[N]`, whether it is right, beside a confidence without logits; None without labels.
        texts: `[N]`, the texts whose words are labelled; empty unless they are to be told.
        spans: start and end of each word in its text; empty likewise.
        truncated: how many texts are too long for the model and lost their end.
    """

    task: Task
    member_logits: Logits | None
    classes: tuple[str, ...] | None = None
    calibration: Calibration = NOT_CALIBRATED
    truth: NDArray[Any] | None = None
    places: IntArray | None = None
    features: Logits | None = None
    hidden: Sequence[Logits] = ()
    ood_score: NDArray[Any] | None = None
    typicality: NDArray[Any] | None = None
    profile: NDArray[Any] | None = None
    confidence: FloatArray | None = None
    correct: BoolArray | None = None
    texts: Sequence[str] = ()
    spans: Sequence[Sequence[tuple[int, int]]] = ()
    truncated: int = 0

    def __post_init__(self) -> None:
        for name in ("member_logits", "features", "ood_score", "typicality", "profile"):
            object.__setattr__(self, name, as_answer(getattr(self, name)))

    def __len__(self) -> int:
        if self.places is not None:
            return int(self.places[:, 0].max()) + 1
        if self.member_logits is not None:
            return self.member_logits.shape[1]
        return 0 if self.confidence is None else len(self.confidence)

    @property
    def logits(self) -> Logits:
        """The members' logits; raises DataError where only a confidence was saved."""
        if self.member_logits is None:
            raise DataError("saved confidences hold no logits to fit to: save logits as well")
        return self.member_logits

    def to_score(self) -> FitSamples:
        """Returns the answers as OOD scores take them."""
        logits = self.logits
        if self.places is not None and self.features is not None:
            logits = self.features[..., :0]  # those of words are no answers to samples
        features = logits[..., :0] if self.features is None else self.features
        one_class = self.truth is not None and self.truth.ndim == 1 and self.places is None
        predicted = None  # labels, tags, numbers and embeddings are no classes of samples
        if self.task.tells_ood == "scores" and logits.shape[-1] > 1:
            predicted = mean_probabilities(logits, self.calibration.divisor).argmax(-1)
        labels = self.truth if one_class else None
        return FitSamples(logits, features, labels, hidden=self.hidden, predicted=predicted)

    @cached_property
    def mean_p(self) -> NDArray[Any]:
        """The mean of the members' probabilities, `[N,C]` in the dtype of the logits."""
        return mean_probabilities(self.logits, self.calibration.divisor).astype(self.logits.dtype)

    @property
    def labelled(self) -> tuple[Logits, NDArray[Any]]:
        """The members' logits and the labels; raises DataError where there are none."""
        logits = self.logits
        if self.truth is None:
            raise DataError("the calibration data has no labels: give labelled data")
        return logits, self.truth

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes, LABEL_0 and so on where they have none; empty of embeddings."""
        return self.classes or self.task.unnamed(self.logits.shape[-1])

    @property
    def ood(self) -> NDArray[np.bool_] | None:
        """`[N]`, true where a sample looks OOD: less typical than most ID samples; None without a typicality."""
        fit = self.calibration.fit
        return None if self.typicality is None or fit is None else as_answer(flagged(self.typicality, fit.accept))

    @cached_property
    def columns(self) -> Mapping[str, Any]:
        """The task's columns of the answers, by name: arrays `[N,...]` or lists, None for what was not calibrated."""
        return {name: as_answer(column) for name, column in self.task.columns(self).items()}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self.columns:
            return self.columns[name]
        raise AttributeError(f"these answers have no {name}")

    def row(self, at: int) -> dict[str, Any]:
        """Returns the answer to a sample by columns, as plain JSON."""
        return self.task.row(self, at)

    def each(self) -> Iterator[OneAnswer]:
        """Yields the answer to each sample, as a monitor watches it.

        Raises:
            OptionError: they have no typicality.
        """
        if self.typicality is None:
            raise OptionError("these predictions have no typicality: calibrate the model first")
        labels, msp, p = (self.columns.get(name) for name in ("labels", "msp", "probabilities"))
        for at, typical in enumerate(self.typicality.tolist()):
            yield OneAnswer(
                typical,
                None if msp is None else float(msp[at]),
                None if labels is None else labels[at],
                None if p is None else np.asarray(p[at], np.float64),
                profile=None if self.profile is None else np.asarray(self.profile[at], np.float64),
            )

    def __repr__(self) -> str:
        cells = [*islice(self._cells(), SHOWN + 1)]
        width = max(len(row[0]) for row in cells)
        lines = (f"  {first:<{width}}  {'  '.join(others)}" for first, *others in cells)
        return "\n".join([self._title, *lines, *([self._more] if self._more else [])])

    def _repr_html_(self) -> str:
        names, *rows = islice(self._cells(), SHOWN + 1)
        head = "".join(f"<th>{name}</th>" for name in names)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        return f"<table><caption>{self._title}</caption><tr>{head}</tr>{body}</table>{self._more}"

    def _cells(self) -> Iterator[tuple[str, ...]]:
        """Yields the names of the columns that people see, then the cells of each sample."""
        rows = (shown(self.row(at)) for at in range(len(self)))
        first = next(rows)
        yield tuple(first)
        yield tuple(first.values())
        yield from (tuple(row.values()) for row in rows)

    @property
    def _title(self) -> str:
        return f"Answers: {len(self)} samples, {len(self.logits)} members, {self.task.width(self)}"

    @property
    def _more(self) -> str:
        return f"... and {len(self) - SHOWN} more" if len(self) > SHOWN else ""


class OneAnswer(NamedTuple):
    """The answer to one input, as a monitor watches it."""

    typicality: float
    confidence: float | None = None  # None of an answer without classes, like its label
    label: str | tuple[Any, ...] | None = None  # its class, or its labels
    probabilities: NDArray[np.floating] | None = None  # `[C]`; None where a pipe had none, and of several labels
    profile: NDArray[np.floating] | None = None  # `[L]`, typicality by layer

    @property
    def labels(self) -> tuple[str, ...]:
        """Its class or labels."""
        return (self.label,) if isinstance(self.label, str) else self.label or ()


def shown(row: Mapping[str, Any]) -> dict[str, str]:
    """Returns the cells of a row that people see; of an embedding the first numbers where there is nothing else."""
    seen = {name: value for name, value in row.items() if name not in HIDDEN}
    return {name: _text(value) for name, value in (seen or {"embedding": [*row["embedding"][:3], "..."]}).items()}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_text(part) for part in value)
    if isinstance(value, Mapping):  # a span
        return "{text} {label} {confidence:.2f}".format_map(value)
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
