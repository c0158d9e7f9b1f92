"""A checkup of one system: its promises, its quality, and what of odd inputs it catches and misses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import betaincinv
from scipy.stats import betabinom, binom

from hydractl.checkpoint.calibration import OodFit
from hydractl.data.number_labels import match_to_task
from hydractl.data.samples import Samples, form_of, missing_classes
from hydractl.errors import DataError
from hydractl.evaluation.curves import LONGEST, called, data_uri
from hydractl.evaluation.probes import probed
from hydractl.evaluation.results import Interval, Sample
from hydractl.evaluation.run import by_head, flags_of
from hydractl.evaluation.system_numbers import estimated
from hydractl.metrics.arrays import BoolArray, FloatArray
from hydractl.metrics.classification import PredictionTable, is_chance
from hydractl.metrics.detection import ood_metrics
from hydractl.monitoring.estimates import ShareEstimate, exact_share
from hydractl.monitoring.stream import Scale
from hydractl.ood.score import QUANTILES
from hydractl.surgery.provenance import used_samples
from hydractl.systems.system import EvaluationData, OnBatch, Running, SetKey, System
from hydractl.tasks.task import Answers, Trials, by_ranks
from hydractl.text import shortened

State = Literal["kept", "broken", "too few to tell"]
LEVEL = 0.025  # of one side of a 95 % interval
POWER = 0.8  # the probability of finding a promise broken that fails twice as often as it may
MOST = 20_000  # cases beyond which a promise is said to need more calibration samples


@dataclass(frozen=True)
class CheckedPromise:
    """One promise of a file on some samples.

    Attributes:
        name: the option of `calibrate` that asks for it.
        of: the class, label or number that it is made for; empty for one of all.
        promised: the share of cases that should keep it.
        cases: how many there are.
        seen: the share that keeps it, with its interval by Clopper and Pearson.
        least: the share from which it counts as kept: less is due to chance, in the calibration set or here, with a
            probability of at most 2.5 % over all promises.
        state: whether it is kept.
        needed: how many samples it takes to find it broken where it fails twice as often; None where none suffice.
    """

    name: str
    of: str
    promised: float
    cases: int
    seen: ShareEstimate
    least: float
    state: State
    needed: int | None


def accepted(fit: OodFit, quantiles: int, flags: BoolArray) -> Trials:
    """Returns the cases of the promise that inputs like the calibration samples are not flagged.

    Args:
        quantiles: how many calibration scores the file stores.
        flags: `[N]`, where an input is flagged.
    """
    failing = Scale(fit.samples, quantiles).cells_below(1 - fit.accept)
    return Trials("accept", fit.accept, ~flags, chance=(failing, fit.samples + 1 - failing))


def promises_of(answers: Answers, others: Sequence[Trials]) -> tuple[CheckedPromise, ...]:
    """Returns every promise that answers to ID samples tell of.

    Args:
        others: the cases of promises that no label is needed for.
    """
    trials = [*others, *((*answers.task.trials(answers), *_recalled(answers)) if answers.truth is not None else ())]
    trials = [each for each in trials if len(each.kept)]
    return tuple(_judged(each, len(answers), answers, len(trials)) for each in trials)


def _recalled(answers: Answers) -> Iterator[Trials]:
    """Yields the samples of the promise of recall. A share that is kept varies no more than all or nothing would."""
    promise = answers.calibration.recall
    if promise is not None and (parts := answers.task.true_parts(answers)) is not None:
        groups = parts.groups(answers.names if len(promise.least) > 1 else None)
        for (name, group), samples in zip(groups.items(), promise.samples, strict=True):
            _, shares = group.kept(promise.least)
            yield Trials("recall", promise.share, shares, name, by_ranks(samples, promise.share))


def _judged(trials: Trials, samples: int, answers: Answers, promises: int) -> CheckedPromise:
    fit, cases = answers.calibration.fit, len(trials.kept)
    fitted = trials.fitted or ceil((0 if fit is None else fit.samples) * cases / samples)
    chance, level = trials.chance or _of_bound(ceil(fitted / trials.effect), trials.promised), LEVEL / promises
    independent = cases / trials.effect
    allowed = _allowed(ceil(independent), *chance, level)
    failed = float((1.0 - trials.kept).sum()) / trials.effect
    needed = _needed(1 - trials.promised, *chance, level)
    state: State = "kept" if needed is not None and independent >= needed else "too few to tell"
    seen = exact_share(independent - failed, independent)
    assert seen is not None
    return CheckedPromise(
        trials.promise,
        trials.of,
        trials.promised,
        cases=cases,
        seen=seen,
        least=1 - allowed / independent,
        state="broken" if failed >= allowed + 1 - 1e-6 else state,
        needed=None if needed is None else ceil(needed * samples / independent),
    )


def _of_bound(fitted: int, promised: float) -> tuple[float, float]:
    """Returns the beta distribution of the share of failures where a one-sided 95 % bound just keeps the promise.

    Of `fitted` cases the most have failed with which Clopper and Pearson's bound of the share kept is the promise.
    """
    failed = np.arange(max(fitted, 1))
    bounds = betaincinv(len(failed) - failed, failed + 1.0, 0.05)
    most = int((bounds >= promised).sum()) - 1
    return max(most, 0) + 1.0, float(len(failed) - max(most, 0))


def _tails(cases: int, failing: float, keeping: float) -> FloatArray:
    """Returns the probability of at least 0, 1, ... failures, where the share of failures is drawn from a beta."""
    masses = betabinom.pmf(np.arange(cases + 1), cases, max(failing, 1e-3), keeping)
    return np.asarray(np.cumsum(masses[::-1])[::-1])


def _allowed(cases: int, failing: float, keeping: float, level: float) -> int:
    """Returns the most failures that chance explains."""
    return int((_tails(cases, failing, keeping) >= level).sum()) - 1


@cache
def _needed(share: float, failing: float, keeping: float, level: float) -> int | None:
    """Returns how many cases show, with the probability POWER, that failures are twice as many as may be."""
    for cases in np.unique(np.geomspace(10, MOST, 60).round(-1).astype(int)).tolist():
        allowed = _allowed(cases, failing, keeping, level)
        if binom.sf(allowed, cases, min(2 * share, 0.9)) >= POWER:
            return int(cases)
    return None


QUICK = 10_000  # samples of a set that are hashed to find those that are in two sets
DRAWS = 300  # resamples for the intervals of accuracy and its like
FALSE_ALARMS = 0.05  # the share of ID samples that the MSP of a file without calibration flags
Kind = Literal["id", "probe", "ood"]
KINDS: tuple[Kind, ...] = get_args(Kind)  # in the order of the page
#: Called with each set and its size as it starts; returns what to call with the size of each finished batch.
OnSet = Callable[[str, int], AbstractContextManager[OnBatch]]


@dataclass(frozen=True)
class Row:
    """The answers to one set: the owner's samples, a probe, or OOD data.

    Attributes:
        help: what the inputs are.
        right: the share of right answers, of numbers that of intervals that hold the right one; None without labels.
        flagged: the share that looks OOD; None where nothing tells.
        missed: the share that is wrong, sure and not flagged; None likewise. An answer to an input without a label is
            wrong, and one without a confidence sure.
        confidence: the mean; None of answers without.
        auroc: how well the score that flags tells these inputs from the owner's samples.
        example: one input, if there are any one that is missed.
    """

    kind: Kind
    name: str
    help: str
    samples: int
    right: ShareEstimate | None
    flagged: ShareEstimate | None
    missed: ShareEstimate | None
    confidence: float | None
    auroc: float | None
    example: Sample


@dataclass(frozen=True)
class Checkup:
    """The findings of a checkup.

    Attributes:
        model: the name of the system.
        data: the name of the ID data.
        samples: how many of them count.
        calibrated: whether the file says which inputs look OOD; else its MSP does.
        findings: sentences on the data.
        promises: those of the file.
        open: the promises that it could make and does not, as options of `calibrate`.
        quality: the numbers of labelled samples, with intervals.
        sure: the confidence from which an answer counts as sure, the promised one or the median of the owner's
            samples; None where each class has its own, or answers have none.
        rows: the owner's samples, then probes and OOD sets, each the worst first.
    """

    model: str
    data: str
    samples: int
    calibrated: bool
    findings: tuple[str, ...]
    promises: tuple[CheckedPromise, ...]
    open: tuple[str, ...]
    quality: Mapping[str, tuple[float, Interval]]
    sure: float | None
    rows: tuple[Row, ...]

    @property
    def broken(self) -> list[CheckedPromise]:
        """The broken promises."""
        return [promise for promise in self.promises if promise.state == "broken"]

    def of(self, kind: str) -> list[Row]:
        """Returns the rows of a kind."""
        return [row for row in self.rows if row.kind == kind]


@dataclass(frozen=True, eq=False)
class _Set:
    """The answers to one set, as a row counts them; all `[N]`."""

    samples: Samples
    answers: Answers
    table: Any
    scores: FloatArray | None  # None where nothing tells odd inputs
    flags: BoolArray | None

    @property
    def confidence(self) -> FloatArray | None:
        return self.table.msp if isinstance(self.table, PredictionTable) else None

    @property
    def right(self) -> BoolArray | None:
        return None if self.answers.truth is None else self.answers.task.right(self.table)


def check_up(
    name: str,
    system: System,
    data: EvaluationData,
    running: Running,
    *,
    probes: int,
    notes: Sequence[str],
    on_set: OnSet,
) -> Checkup:
    """Returns what a system does on its owner's samples, on probes made from these, and on OOD data.

    Args:
        data: labels of the ID samples are read if there are some. Samples that made the system are left out.
        probes: how many samples each probe is made from.
        notes: on the data, by now and whatever `running.on_note` adds.

    Raises:
        DataError: a sample cannot be read, labels do not match, or all samples made the system.
        OptionError: a zero-shot model without classes.
    """
    data, left_out = _unseen(name, system, data)
    id_key = next(key for key in data.sets if key.role == "id")
    made = probed(data.id, probes, running.seed)
    keys = {
        SetKey("shift", probe.name, severity=1, labelled=probe.keeps_label and id_key.labelled): probe for probe in made
    }
    everything = {**data.sets, **dict(zip(keys, made.values(), strict=True))}
    system = system.on(replace(data, sets=everything), running)
    sets: dict[SetKey, _Set] = {}
    for key, samples in data.sets.items():
        with on_set(key.path, len(samples)) as advance:
            sets[key] = _answered(system, key, samples, advance)
    findings = [*left_out, *_findings(system, sets, id_key, data), *notes]
    id_set = sets[id_key]
    maker = _Rows.of(id_set, system.labels)
    rows = [maker.row("id", data.id.name, "your samples", id_set)]
    rows += [maker.row("ood", key.name, key.group or "OOD data", of) for key, of in sets.items() if key.role == "ood"]
    for key, probe in keys.items():
        with on_set(f"probe {key.name}", len(made[probe])) as advance:
            rows.append(maker.row("probe", key.name, probe.help, _answered(system, key, made[probe], advance)))
    rows.sort(key=lambda row: (KINDS.index(row.kind), -(row.missed.value if row.missed else 0), row.auroc or 0))
    calibration, fit, count = system.calibration, system.calibration.fit, len(id_set.samples)
    quality: dict[str, tuple[float, Interval]] = {}
    if id_set.answers.truth is not None:
        quality = estimated(system.task, id_set.table, DRAWS, running.seed, samples=count)
    result = Checkup(
        name,
        data.id.name,
        samples=count,
        calibrated=fit is not None and system.ood_head is not None,
        findings=tuple(dict.fromkeys(findings)),
        promises=promises_of(id_set.answers, _accepted(system, id_set)),
        open=system.task.open_promises(calibration.promises),
        quality=quality,
        sure=maker.least if fit is None or not fit.least else fit.least[0] if len(fit.least) == 1 else None,
        rows=tuple(rows),
    )
    system.dismiss()
    return result


def _unseen(name: str, system: System, data: EvaluationData) -> tuple[EvaluationData, list[str]]:
    """Returns the data without ID samples that made the system, and sentences on copies and OOD data that made it."""
    samples = data.id
    hashes = samples.content_hashes()
    masks = used_samples(name, system.histories, samples)
    used = np.any([np.zeros(len(samples), bool), *masks.values()], axis=0)
    if used.all():
        raise DataError(
            f"{samples.name}: all {len(samples)} samples were used to make {name} (as {', '.join(masks)}): "
            "name data that it has not seen"
        )
    findings = []
    if used.any():
        findings.append(
            f"{int(used.sum())} of {len(samples)} samples were used to make {name}, as calibration or search data: "
            "left out"
        )
        samples = samples.subset(np.flatnonzero(~used))
    twice = len(samples) - len(np.unique(samples.content_hashes()))
    if twice:
        findings.append(f"{twice} samples are copies of others: intervals are too narrow")
    for key, others in data.sets.items():
        quick = key.role == "ood" and max(len(others), len(hashes)) <= QUICK
        if quick and (shared := int(np.isin(others.content_hashes(), hashes).sum())):
            findings.append(f"{shared} of {len(others)} samples of OOD data {key.name} are ID samples too")
        if key.role == "ood" and (seen := used_samples(name, system.histories, others)):
            count = f"{np.any([*seen.values()], axis=0).sum()} of {len(others)} samples of OOD data {key.name}"
            findings.append(
                f"{count} were used to make {name} (as {', '.join(seen)}): new ones may be detected less well"
            )
    sets = {key: samples if key.role == "id" else others for key, others in data.sets.items()}
    return replace(data, sets=sets), findings


def _answered(system: System, key: SetKey, samples: Samples, advance: OnBatch) -> _Set:
    head, task = system.ood_head, system.task
    answers = system.answers(key, "logits" if head is None or system.scores_itself else head.row.reads, advance)
    table = task.table(answers)
    if head is not None:
        scores = by_head(head, answers)
        return _Set(samples, answers, table, scores=scores, flags=flags_of(head, scores))
    doubt = table.doubt if isinstance(table, PredictionTable) else None
    return _Set(samples, answers, table, scores=doubt, flags=None)


def _findings(system: System, sets: Mapping[SetKey, _Set], id_key: SetKey, data: EvaluationData) -> Iterator[str]:
    """Yields what is odd about the ID samples and their labels."""
    samples, answers = sets[id_key].samples, sets[id_key].answers
    yield from form_of(samples)
    if answers.truth is None:
        if system.task.has_accuracy(None):
            yield "without labels, accuracy and promises of right answers cannot be checked"
        return
    matched = match_to_task(samples, system.task, answers.names, data.match)
    if (missing := missing_classes(matched, "this page does not cover them")) is not None:
        yield missing
    choices = system.task.choices(answers)
    if choices is not None and choices[0].ndim == 1 and is_chance(int(choices[0].sum()), len(samples), choices[1]):
        yield "answers are right no more often than guesses: check that the labels are those of the model's classes"


@dataclass(frozen=True, eq=False)
class _Rows:
    """Makes rows beside those of the owner's samples.

    Attributes:
        least: the median confidence of these; None of answers without.
        most: the score from which one in twenty of these is flagged where the file flags none; None without scores.
        names: of the classes.
    """

    id_set: _Set
    least: float | None
    most: float | None
    names: Sequence[str] | None

    @classmethod
    def of(cls, id_set: _Set, names: Sequence[str] | None) -> _Rows:
        """Returns the maker of rows for a system with these classes."""
        most = None if id_set.scores is None else float(np.quantile(id_set.scores, 1 - FALSE_ALARMS))
        least = None if id_set.confidence is None else float(np.median(id_set.confidence))
        return cls(id_set, least, most, names)

    def row(self, kind: Kind, name: str, about: str, of: _Set) -> Row:
        """Returns the row of a set."""
        size, right, flags = len(of.samples), of.right, self._flags(of)
        auroc = None
        if kind != "id" and of.scores is not None and self.id_set.scores is not None:
            auroc = ood_metrics(self.id_set.scores, of.scores).auroc
        missed = None if flags is None or (kind == "id" and right is None) else ~flags & self._sure(of)
        if missed is not None and right is not None:
            missed &= ~right
        return Row(
            kind,
            name,
            about,
            size,
            right=_share(right),
            flagged=_share(flags),
            missed=_share(missed),
            confidence=None if of.confidence is None else float(of.confidence.mean()),
            auroc=auroc,
            example=_example(of, 0 if missed is None else int(missed.argmax()), self.names),
        )

    def _flags(self, of: _Set) -> BoolArray | None:
        if of.flags is not None or of.scores is None or self.most is None:
            return of.flags
        return np.asarray(of.scores > self.most)

    def _sure(self, of: _Set) -> BoolArray:
        """Returns which answers are sure, `[N]`: all where they have no confidence."""
        if of.confidence is None or self.least is None:
            return np.ones(len(of.samples), bool)
        fit = of.answers.calibration.fit
        sure = None if fit is None else fit.sure(of.confidence, of.table.prediction)
        return np.asarray(of.confidence >= self.least) if sure is None else sure


def _accepted(system: System, of: _Set) -> list[Trials]:
    head = system.ood_head
    return [] if head is None or of.flags is None else [accepted(head.fit, len(head.get_buffer(QUANTILES)), of.flags)]


def _share(hits: BoolArray | None) -> ShareEstimate | None:
    return None if hits is None else exact_share(int(hits.sum()), len(hits))


def _example(of: _Set, place: int, names: Sequence[str] | None) -> Sample:
    """Returns an input as a page shows it."""
    samples, table = of.samples, of.table
    image = samples.modality == "image"
    confident = isinstance(table, PredictionTable)
    return Sample(
        float(table.msp[place]) if confident else 0.0,
        called(table, table.prediction, place, names) if confident else "",
        text=None if image else shortened(samples.called(place), LONGEST),
        image=data_uri(samples.inputs[place]) if image else None,
    )
