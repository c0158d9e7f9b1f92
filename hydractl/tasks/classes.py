"""One class a sample: softmax, its losses, what an answer shows, and what calibration fits to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import log
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hydractl.checkpoint.calibration import INTERVAL
from hydractl.checkpoint.spec import TaskName
from hydractl.errors import OptionError
from hydractl.metrics.arrays import (
    BoolArray,
    FloatArray,
    label_log_probabilities,
    log_doubt,
    mean_over_members,
    member_probabilities,
)
from hydractl.metrics.bootstrap import classification_replicates
from hydractl.metrics.classification import (
    ByClass,
    PredictionTable,
    classification_metrics,
    numbers_of_classes,
    tabulate,
)
from hydractl.metrics.detection import design_effects
from hydractl.metrics.scaling import FittedTemperature, fit_temperature
from hydractl.ood.ood_scores import DEFAULT
from hydractl.tasks.task import (
    Answers,
    Claims,
    Judged,
    Maps,
    Matcher,
    Names,
    OneAnswer,
    Task,
    Trials,
    by_ranks,
    number_or_none,
    share_of,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Classes(Task):
    """One of C classes."""

    name: TaskName
    names: Names

    answers: ClassVar[str] = "classes"
    tells_ood: ClassVar[Literal["scores", "confidence", "nothing"]] = "scores"
    label_type: ClassVar[type | None] = str
    promises: ClassVar[tuple[str, ...]] = ("accuracy", "sets")
    by_class: ClassVar[tuple[str, ...]] = ("accuracy", "sets")
    fixed: ClassVar[bool] = True
    fewest: ClassVar[int] = 2

    def card(self) -> str:
        return "Softmax of its logits is the mean of the members' probabilities;"

    def match(self, matcher: Matcher) -> Any:
        return matcher.classes()

    def link(self, member_logits: Tensor, temperature: float) -> Tensor:
        return log_probabilities(member_logits, temperature)

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits.exp()

    def losses(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
        from torch.nn.functional import cross_entropy

        labels = labels.expand(len(logits), -1).flatten()
        return cross_entropy(logits.flatten(0, 1), labels, reduction="none", label_smoothing=smoothing)

    def taught_losses(self, logits: Tensor, taught: Tensor) -> Tensor:
        return -(taught.to(logits.dtype) * logits.log_softmax(-1))

    def outlier_losses(self, logits: Tensor) -> Tensor:
        # The cross-entropy to a uniform distribution.
        return -logits.log_softmax(-1).mean(-1)

    def judge(self, members: FloatArray, labels: Any, variance: FloatArray | None = None) -> Judged:
        """Returns whether the most probable class is right, -log(1 - p) of its p, and the NLL in nats.

        The confidence ranks samples as p does, and those whose p is 1 to the last digit.
        """
        best = mean_over_members(member_probabilities(members)).argmax(-1)
        confidence = -log_doubt(members, best)
        if labels is None:
            return Judged(None, confidence, None)
        return Judged((best == labels).astype(np.float64), confidence, -label_log_probabilities(members, labels))

    def table(self, answers: Answers) -> PredictionTable:
        return tabulate(answers.logits, answers.truth, answers.calibration.divisor)

    def metrics(self, table: Any) -> dict[str, Any]:
        return asdict(classification_metrics(table))

    def replicates(self, table: Any, draws: int, seed: int) -> dict[str, FloatArray]:
        return classification_replicates(table, draws, seed)

    def class_numbers(self, table: Any, names: Sequence[str], flags: BoolArray | None) -> ByClass | None:
        return numbers_of_classes(table, names, flags)

    def fit(self, answers: Answers, interval: float = INTERVAL, precision: float | None = None) -> FittedTemperature:
        return fit_temperature(*answers.labelled)

    def choices(self, answers: Answers) -> tuple[BoolArray, int] | None:
        return tabulate(*answers.labelled).required_outcomes().correct, answers.logits.shape[-1]

    def trials(self, answers: Answers) -> Iterator[Trials]:
        fit, sets = answers.calibration.fit, answers.calibration.sets
        _, labels = answers.labelled
        if fit is not None and fit.accuracy is not None:
            msp, right, best, sentences = self.claims(answers)
            sure = fit.sure(msp, best)
            for label, of in _groups(answers.names, fit.confidences):
                if sure is not None:
                    cases = sure & ((best == label) | (label is None))
                    effect = (
                        1.0
                        if sentences is None or not cases.any()
                        else float(design_effects(right[cases], sentences[cases])[-1])
                    )
                    yield Trials("accuracy", fit.accuracy, right[cases], of, effect=effect)
        if sets is not None:
            covered = class_sets(answers.mean_p, sets.least)[np.arange(len(labels)), labels]
            counts = None if fit is None or fit.baseline is None else fit.baseline.labels
            for label, of in _groups(answers.names, sets.least if len(sets.least) > 1 else None):
                samples = sets.samples if label is None or counts is None else counts[label]
                cases = covered[(labels == label) | (label is None)]
                yield Trials("sets", sets.coverage, cases, of, by_ranks(samples, sets.coverage))

    def claims(self, answers: Answers) -> Claims:
        p, (_, labels) = answers.mean_p, answers.labelled
        best = p.argmax(-1)
        return Claims(p.max(-1), best == labels, best)

    def columns(self, answers: Answers) -> Mapping[str, Any]:
        """Returns labels, probabilities `[N,C]`, MSP, entropy and mutual information `[N]`, and what is promised."""
        calibration = answers.calibration
        table = tabulate(answers.logits, None, calibration.divisor)
        p = answers.mean_p
        msp = table.msp.astype(p.dtype)
        return {
            "labels": [answers.names[best] for best in table.prediction.tolist()],
            "probabilities": p,
            "msp": msp,
            "entropy": table.entropy.astype(p.dtype),
            "mutual_information": table.mutual_information.astype(p.dtype),
            "sure": None if calibration.fit is None else calibration.fit.sure(msp, table.prediction),
            "sets": None if calibration.sets is None else class_sets(p, calibration.sets.least),
        }

    def row(self, answers: Answers, at: int) -> dict[str, Any]:
        p, sets = answers.probabilities[at], answers.sets
        order = (-p).argsort(kind="stable")
        promised = {} if sets is None else {"set": tuple(answers.names[label] for label in order if sets[at, label])}
        return {
            "label": answers.labels[at],
            **unsureness(answers, at),
            **promised,
            "probabilities": dict(zip(answers.names, p.tolist(), strict=True)),
        }

    def read_row(self, row: Mapping[str, Any], classes: Sequence[str] | None) -> OneAnswer:
        shares = row.get("probabilities") or {name: row[f"p({name})"] for name in classes or () if f"p({name})" in row}
        p = np.array([share_of(shares, name) for name in classes]) if shares and classes else None
        label = str(row["label"])
        if classes is not None and label not in classes:
            label = label.removeprefix("'")  # which CSV puts before what a spreadsheet would run
        return OneAnswer(0.0, share_of(row, "msp"), label, p)

    def watch(self, answer: OneAnswer, classes: tuple[str, ...] | None) -> OneAnswer:
        return answer._replace(probabilities=None) if classes is None else answer

    def watched(self, classes: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return classes


@dataclass(frozen=True)
class PromptedClasses(Classes):
    """One of C classes that prompts name, which may change; embeddings of images and prompts are compared."""

    fixed: ClassVar[bool] = False

    def template(self, template: str) -> str | None:
        return template

    def prompts(self, classes: Sequence[str], template: str) -> list[str]:
        if len(set(classes)) < max(len(classes), 1):
            raise OptionError(f"classes {list(classes)}: expected at least one, each once")
        if "{label}" not in template:
            raise OptionError(f"template {template!r} needs {{label}} where the class name goes")
        return [template.replace("{label}", name) for name in classes]

    def require_classifier(self, refusal: str) -> None:
        raise OptionError(refusal)

    def require_classes(self, classes: object) -> None:
        if classes is None:
            raise OptionError("a zero-shot model needs its classes before it is exported: name them with `classes`")

    def read(self, network: Maps, pooled: Tensor, texts: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        images = network.embed("vision", pooled)
        return network.compare_prompts(images, texts, mask), images

    def check_fit(self, score: str, promised: str | None) -> None:
        if promised:
            raise OptionError(f"{promised} is for models whose classes are fixed, this one is zero-shot: leave it out")
        if score not in ("auto", DEFAULT):
            raise OptionError(
                f"`ood_score` {score} depends on classes, which may change in a zero-shot model: leave it out, or take "
                f"{DEFAULT}"
            )

    def watched(self, classes: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None


def _groups(names: Sequence[str], by_class: Sequence[float] | None) -> Iterator[tuple[int | None, str]]:
    """Yields the number and the name of each class that has a promise of its own, or None for all of them."""
    yield from [(None, "")] if by_class is None else enumerate(names)


def unsureness(answers: Answers, at: int) -> dict[str, float | None]:
    """Returns how unsure the answer to a sample is, as plain JSON."""
    return {name: number_or_none(answers.columns[name][at]) for name in ("msp", "entropy", "mutual_information")}


def class_sets(p: NDArray[Any], least: Sequence[float]) -> NDArray[np.bool_]:
    """Returns which classes are in each set, `[N,C]`: those from the least probability on, and the most probable one.

    Args:
        p: `[N,C]`.
        least: one for all classes, or `[C]`.
    """
    best = p.max(-1, keepdims=True)  # an empty set would help nobody
    return np.asarray((p >= np.asarray(least, p.dtype)) | (p == best))


def log_probabilities(member_logits: Tensor, temperature: float) -> Tensor:
    """Returns the logarithm `[N,C]` of the mean of the members' softmax probabilities, always finite, at least float32.

    Args:
        member_logits: `[M,N,C]`.
    """
    import torch

    wide = member_logits.to(torch.promote_types(member_logits.dtype, torch.float32))
    members = (wide / temperature).log_softmax(-1)
    return members[0] if len(members) == 1 else members.logsumexp(0) - log(len(members))
