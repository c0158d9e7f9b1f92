"""The kinds of answers that an evaluation measures: how answers become a table, a table numbers, and what is fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from hydractl.checkpoint.calibration import INTERVAL, NOT_CALIBRATED, Calibration, Intervals
from hydractl.data.samples import Labels
from hydractl.errors import OptionError
from hydractl.evaluation.set_answers import SetAnswers
from hydractl.metrics.bootstrap import classification_replicates, draw_places
from hydractl.metrics.calibration import classification_metrics
from hydractl.metrics.checks import FloatArray, Logits
from hydractl.metrics.label_sets import (
    FittedLabels,
    fit_label_sets,
    label_set_metrics,
    label_set_replicates,
    tabulate_label_sets,
)
from hydractl.metrics.number_metrics import (
    NumberTable,
    fit_intervals,
    fit_logit,
    number_metrics,
    number_replicates,
)
from hydractl.metrics.prediction_table import PredictionTable, tabulate
from hydractl.metrics.scaling import FittedTemperature, fit_temperature
from hydractl.metrics.word_spans import WordTable, tabulate_words, word_metrics, word_replicates
from hydractl.tasks.embedding import mean_embedding
from hydractl.tasks.task import TaskRow


class AnswerKind(Protocol):
    """One kind of answers; its fields are what a file brings for them.

    Attributes:
        name: of the answers, for messages.
        confident: whether they have a probability, which tells errors and OOD samples.
        one_class: whether each is one class, so that every score and saved answer makes sense.
    """

    name: ClassVar[str]
    confident: ClassVar[bool] = True
    one_class: ClassVar[bool] = False

    def table(self, answers: SetAnswers, temperature: float) -> Any:
        """Returns the per-sample quantities of a set; None where answers without labels tell nothing."""

    def metrics(self, table: Any) -> dict[str, Any]:
        """Returns every number of labelled samples by name."""

    def replicates(self, table: Any, draws: int, seed: int) -> dict[str, FloatArray]:
        """Returns resampled values `[draws]` of these numbers."""

    def fit(self, member_logits: Logits, labels: Labels) -> FittedTemperature:
        """Returns what calibration fits to labelled answers; raises OptionError for answers that no label can fit."""
        raise OptionError(f"{self.name} have no labels that anything could be fitted to")

    def fitted(self, _found: FittedTemperature | None) -> AnswerKind:
        """Returns the kind with what was fitted instead of what its file brought."""
        return self


@dataclass(frozen=True)
class Classes(AnswerKind):
    """One class a sample."""

    name = "classes"
    one_class = True

    def table(self, answers: SetAnswers, temperature: float) -> PredictionTable:
        assert answers.member_logits is not None
        return tabulate(answers.member_logits, answers.labels, temperature)

    def metrics(self, table: PredictionTable) -> dict[str, Any]:
        return asdict(classification_metrics(table))

    def replicates(self, table: PredictionTable, draws: int, seed: int) -> dict[str, FloatArray]:
        return classification_replicates(table, draws, seed)

    def fit(self, member_logits: Logits, labels: Labels) -> FittedTemperature:
        return fit_temperature(member_logits, labels)


@dataclass(frozen=True)
class LabelSets(AnswerKind):
    """Any number of labels a sample."""

    thresholds: Sequence[float] | None = None  # the probability from which each label is answered; None for one half
    names: Sequence[str] | None = None  # of the labels
    precision: float | None = None  # of each label's answers, for thresholds to fit; None for the highest F1

    name = "labels"

    def table(self, answers: SetAnswers, temperature: float) -> Any:
        assert answers.member_logits is not None
        return tabulate_label_sets(answers.member_logits, answers.labels, temperature, self.thresholds)

    def metrics(self, table: Any) -> dict[str, Any]:
        return asdict(label_set_metrics(table))

    def replicates(self, table: Any, draws: int, seed: int) -> dict[str, FloatArray]:
        return label_set_replicates(table, draws, seed)

    def fit(self, member_logits: Logits, labels: Labels) -> FittedTemperature:
        return fit_label_sets(member_logits, labels, self.precision, self.names)

    def fitted(self, found: FittedTemperature | None) -> LabelSets:
        return replace(self, thresholds=found.thresholds if isinstance(found, FittedLabels) else None)


@dataclass(frozen=True)
class WordLabels(Classes):
    """A label a word, and the spans that words make."""

    names: Sequence[str] | None = None  # of the labels, which tell spans

    name = "labels of words"
    one_class = False

    def table(self, answers: SetAnswers, temperature: float) -> PredictionTable:
        if answers.places is None:
            return super().table(answers, temperature)
        assert answers.member_logits is not None
        return tabulate_words(answers.member_logits, answers.labels, temperature, answers.places, names=self.names)

    def metrics(self, table: PredictionTable) -> dict[str, Any]:
        return asdict(word_metrics(table)) if isinstance(table, WordTable) else super().metrics(table)

    def replicates(self, table: Any, draws: int, seed: int) -> dict[str, FloatArray]:
        return word_replicates(table, draws, seed)


@dataclass(frozen=True, kw_only=True)
class Numbers(LabelSets):
    """Numbers a sample; under a sigmoid, labels of 0 and 1 make them probabilities of labels."""

    task: TaskRow
    intervals: Intervals | None = None
    share: float = INTERVAL  # of right numbers, that intervals to fit hold
    thresholds: None = None

    name = "numbers"
    confident = False

    def table(self, answers: SetAnswers, temperature: float) -> Any:
        if answers.labels is None:
            return None
        if answers.labels.dtype.kind != "f":
            return super().table(answers, temperature)
        assert answers.member_logits is not None
        return self._numbers(answers.member_logits, answers.labels, temperature)

    def metrics(self, table: Any) -> dict[str, Any]:
        if not isinstance(table, NumberTable):
            return super().metrics(table)
        return {name: value for name, value in asdict(number_metrics(table)).items() if value == value}

    def replicates(self, table: Any, draws: int, seed: int) -> dict[str, FloatArray]:
        if not isinstance(table, NumberTable):
            return super().replicates(table, draws, seed)
        found = number_replicates(table, draws, seed)
        return {name: values for name, values in found.items() if not np.isnan(values).any()}

    def fit(self, member_logits: Logits, labels: Labels) -> FittedTemperature:
        """Returns a temperature for labels of 0 and 1 under a sigmoid, otherwise intervals for a share of samples."""
        if labels.dtype.kind != "f":
            return fit_logit(member_logits, labels)
        found = self._numbers(member_logits, labels, 1.0)
        return fit_intervals(found.values, found.spread, labels, self.share)

    def fitted(self, _found: FittedTemperature | None) -> Numbers:
        return self

    def _numbers(self, member_logits: Logits, labels: Labels, temperature: float) -> NumberTable:
        """Returns the answers `[N,C]` beside their labels, as `predict` gives them."""
        found = self.task.predict(torch.from_numpy(member_logits).double(), temperature, None, intervals=self.intervals)
        columns = {name: getattr(found, name) for name in ("values", "spread", "deviation", "low", "high")}
        known: Any = {name: one.numpy() for name, one in columns.items() if one is not None}
        return NumberTable(labels=labels, **known)


@dataclass(frozen=True, eq=False)
class EmbeddingTable:
    """Embeddings `[N,P]`, and the share `[N]` of each one's neighbours by another system that it keeps."""

    embeddings: FloatArray
    kept: FloatArray | None = None


@dataclass(frozen=True)
class Embeddings(AnswerKind):
    """An embedding a sample."""

    name = "embeddings"
    confident = False

    def table(self, answers: SetAnswers, temperature: float) -> EmbeddingTable:
        assert answers.member_logits is not None
        return EmbeddingTable(mean_embedding(torch.from_numpy(answers.member_logits)).numpy())

    def metrics(self, table: EmbeddingTable) -> dict[str, Any]:
        return {} if table.kept is None else {"neighbours": float(table.kept.mean())}

    def replicates(self, table: EmbeddingTable, draws: int, seed: int) -> dict[str, FloatArray]:
        assert table.kept is not None
        places = draw_places([len(table.kept)], draws, seed)
        return {"neighbours": np.array([table.kept[drawn].mean() for [drawn] in places])}


def answer_kind(
    task: TaskRow,
    calibration: Calibration = NOT_CALIBRATED,
    *,
    names: Sequence[str] | None = None,
    share: float = INTERVAL,
    precision: float | None = None,
) -> AnswerKind:
    """Returns how answers of a task are measured.

    Args:
        calibration: what a file brings for them.
        share: of right numbers, that intervals to fit hold.
        precision: of each of several labels, for thresholds to fit.
    """
    if not task.labelled:
        return Embeddings()
    if task.numbers:
        return Numbers(task=task, intervals=calibration.intervals, share=share)
    if task.several:
        return LabelSets(calibration.thresholds, names, precision)
    return WordLabels(names) if task.tagged else Classes()
