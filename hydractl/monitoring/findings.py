"""The findings of one or several streams as numbers, as a Prometheus server scrapes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from math import sqrt
from typing import Any

import numpy as np
from scipy.stats import betabinom, norm

from hydractl.monitoring.estimates import (
    NORMAL,
    Confidence,
    ShareEstimate,
    class_shares,
    estimates,
    exact_share,
    labelled_accuracy,
)
from hydractl.monitoring.stream import RARE, Known, Span, Stream
from hydractl.text import printable

CHANCE = 0.05  # of naming any layer that did not move
#: What answers without a confidence lack.
OF_CLASSES = ("confidence", "estimable", "accuracy", "accepted_accuracy", "labelled", "right", "classes")


@dataclass(frozen=True)
class ClassShare:
    """The share of a class: as predicted, as estimated by EM, and among the calibration samples; None if unknown."""

    name: str
    predicted: ShareEstimate
    estimated: ShareEstimate | None
    calibrated: float | None


@dataclass(frozen=True)
class LayerChange:
    """The typicality of the inputs since the change by one layer.

    Attributes:
        typicality: the mean by this layer; .5 for ID inputs.
        odd: the share of inputs with a typicality up to 5 %.
        moved: whether the mean is lower, or the share higher, than chance explains.
    """

    layer: int
    typicality: ShareEstimate
    odd: ShareEstimate
    moved: bool


@dataclass(frozen=True)
class Findings:
    """The findings of streams.

    Attributes:
        inputs: how many were answered.
        streams: how many there are; the evidence of several is the largest, divided by their number.
        alpha: the probability of a false alarm, over all inputs that ever come.
        evidence: now. It begins at 1; an alarm takes 1 / alpha.
        highest: the most it ever was.
        alarm_at: the input of its stream at which it came; None without an alarm.
        since: the input after which the evidence rose; None likewise.
        flagged: the share that looks OOD.
        promised: the share of ID inputs that does.
        confidence: the mean; None without classes, and before the first input.
        estimable: whether no more inputs look OOD than chance explains; confidence says nothing of inputs of no class.
        accuracy: by each method without labels; empty unless it is estimable.
        accepted_accuracy: the same of the inputs that do not look OOD; empty if that of all is estimable.
        labelled: how many inputs have labels; None without classes.
        right: the accuracy of these, with a confidence sequence; None without labels.
        classes: the most frequent first; of several labels each has a share of its own.
        layers: those of the profile, after an alarm.
        histogram: how many inputs have a typicality in each of 20 bins from 0 to 1.
        history: of each stream.
    """

    inputs: int
    streams: int
    alpha: float
    evidence: float
    highest: float
    alarm_at: int | None
    since: int | None
    flagged: ShareEstimate | None
    promised: float
    confidence: float | None
    estimable: bool
    accuracy: Mapping[str, ShareEstimate]
    accepted_accuracy: Mapping[str, ShareEstimate]
    labelled: int | None
    right: ShareEstimate | None
    classes: Sequence[ClassShare]
    layers: Sequence[LayerChange]
    histogram: Sequence[int]
    history: Sequence[Sequence[Span]]

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON, without what the answers lack."""
        return asdict(self, dict_factory=_without_classes)


def _without_classes(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    # Before the first input no model has a mean confidence; spans have nothing else to tell.
    lacks = OF_CLASSES if entries.get("labelled", entries.get("confidence", 0)) is None else ()
    return {name: value for name, value in entries.items() if name not in lacks}


def find(reference: Known, alpha: float, streams: Sequence[Stream]) -> Findings:
    """Returns what streams show together.

    Streams of one model share its calibration samples, so their evidence may not be multiplied. That any of m streams
    ever reaches m / alpha has a probability of at most alpha, by the sum of their probabilities.
    """
    count, inputs = len(streams), sum(stream.evidence.seen for stream in streams)
    loudest = max(streams, key=lambda stream: stream.highest)
    alarm_at = since = None
    layers: list[LayerChange] = []
    if loudest.highest >= count / alpha:
        # Where one stream alone suffices it knows the input; among several it may have come later.
        alarm_at = loudest.alarm
        start, spans = _changed(loudest.history, loudest.alarm or loudest.evidence.seen)
        since, layers = start, _layers(reference, spans)
    seen, accepted = (
        Confidence.summed(getattr(stream, name) for stream in streams) for name in ("answered", "answered_accepted")
    )
    right, labelled, flagged = (
        sum(getattr(stream, name) for stream in streams) for name in ("right", "labelled", "flagged")
    )
    estimable = not _too_odd(reference, flagged, inputs, alpha, alarm=since is not None)
    classes = _classes(reference, streams, inputs)
    return Findings(
        inputs=inputs,
        streams=count,
        alpha=alpha,
        evidence=max(float(stream.evidence.value) for stream in streams) / count,
        highest=loudest.highest / count,
        alarm_at=alarm_at,
        since=since,
        flagged=exact_share(flagged, inputs),
        promised=1 - reference.accept,
        confidence=seen.total / inputs if inputs and classes else None,
        estimable=estimable,
        accuracy=estimates(seen, reference.baseline) if classes and estimable else {},
        accepted_accuracy=estimates(accepted, reference.baseline) if classes and not estimable else {},
        labelled=None if reference.classes == () else labelled,
        right=labelled_accuracy(right, labelled) if labelled else None,
        classes=classes,
        layers=layers,
        histogram=[sum(counts) for counts in zip(*(stream.histogram for stream in streams), strict=True)],
        history=[tuple(stream.history) for stream in streams],
    )


def _too_odd(reference: Known, flagged: int, inputs: int, alpha: float, *, alarm: bool) -> bool:
    """Returns whether more inputs are flagged than the calibration allows.

    That is, more than promised after an alarm, or else so many that of ID inputs as many are flagged with a probability
    below alpha, over calibration sets too.
    """
    if alarm and flagged > (1 - reference.accept) * inputs:
        return True
    cells, gaps = reference.scale.cells_below(1 - reference.accept), reference.scale.samples + 1
    return flagged > 0 and bool(betabinom.sf(flagged - 1, inputs, cells, gaps - cells) < alpha)


def _changed(history: Sequence[Span], alarm: int) -> tuple[int, Sequence[Span]]:
    """Returns the input after which evidence rose to its alarm, and the spans from there to its peak."""
    ends = list(accumulate(span.inputs for span in history))
    last = next(at for at, end in enumerate(ends) if end >= alarm)
    values = [1.0, *(span.evidence for span in history[:last])]
    first = len(values) - 1 - int(np.argmin(values[::-1]))
    peak = last + int(np.argmax([span.evidence for span in history[last:]]))
    return (ends[first - 1] if first else 0), history[first : peak + 1]


def _layers(reference: Known, spans: Sequence[Span]) -> list[LayerChange]:
    """Returns what each layer says of some spans; the chance of the calibration samples counts too.

    The mean typicality is that of Mann and Whitney's test. Several layers and two tests each share the level.
    """
    profiled = [span for span in spans if span.layers]
    inputs, samples, cells = sum(span.inputs for span in profiled), reference.scale.samples, reference.scale.cells[RARE]
    level = CHANCE / (2 * max(reference.layers, 1))
    changes = []
    for layer in range(reference.layers if inputs else 0):
        count, total = (sum(getattr(span, name)[layer] for span in profiled) for name in ("layers", "typical"))
        mean, deviation = total / inputs, sqrt((inputs + samples + 1) / (12 * inputs * samples))
        wide = NORMAL * deviation
        odd = exact_share(count, inputs)
        assert odd is not None
        chances = norm.cdf((mean - 0.5) / deviation), betabinom.sf(count - 1, inputs, cells, samples + 1 - cells)
        typical = ShareEstimate(mean, max(mean - wide, 0.0), min(mean + wide, 1.0))
        changes.append(LayerChange(layer, typical, odd, bool(min(chances) < level)))
    return changes


def _classes(reference: Known, streams: Sequence[Stream], inputs: int) -> list[ClassShare]:
    counts: dict[str, int] = dict.fromkeys(reference.classes or (), 0)
    for stream in streams:
        for name, count in stream.predicted.items():
            counts[name] = counts.get(name, 0) + count
    baseline, rows = reference.baseline, [row for stream in streams for row in stream.recent]
    estimated: dict[str, ShareEstimate] = {}
    calibrated: dict[str, float] = {}
    if baseline is not None and reference.classes is not None:
        shares = (count / baseline.samples for count in baseline.labels)
        calibrated = dict(zip(reference.classes, shares, strict=True))
    if baseline is not None and reference.classes is not None and rows:
        for name, share, wide in zip(reference.classes, *class_shares(rows, baseline.labels), strict=True):
            estimated[name] = ShareEstimate(float(share), max(float(share - wide), 0.0), min(float(share + wide), 1.0))
    listed = []
    for name, count in sorted(counts.items(), key=lambda pair: -pair[1]):
        if (predicted := exact_share(count, inputs)) is not None:
            listed.append(ClassShare(name, predicted, estimated.get(name), calibrated.get(name)))
    return listed


Sample = tuple[Mapping[str, str], float | int | None]


def prometheus(findings: Findings) -> str:
    """Returns the findings in Prometheus' text format 0.0.4."""
    lines = []
    for name, kind, text, samples in _metrics(findings):
        shown = [f"hydractl_{name}{_labels(labels)} {value}" for labels, value in samples if value is not None]
        lines += [f"# HELP hydractl_{name} {text}", f"# TYPE hydractl_{name} {kind}", *shown] if shown else []
    return "\n".join([*lines, *_histogram(findings), ""])


def _metrics(findings: Findings) -> Iterator[tuple[str, str, str, list[Sample]]]:
    flagged = None if findings.flagged is None else round(findings.flagged.value * findings.inputs)
    yield "inputs_total", "counter", "Inputs answered.", [({}, findings.inputs)]
    yield "flagged_total", "counter", "Inputs that look OOD.", [({}, flagged or 0)]
    yield "evidence", "gauge", "Evidence that inputs have changed.", [({}, findings.evidence)]
    yield "evidence_limit", "gauge", "Evidence at which an alarm comes.", [({}, 1 / findings.alpha)]
    yield "alarm", "gauge", "1 once an alarm has come.", [({}, int(findings.since is not None))]
    yield "confidence", "gauge", "Mean confidence.", [({}, findings.confidence)]
    estimable = int(findings.estimable) if findings.classes else None
    yield "accuracy_estimable", "gauge", "0 if too many inputs look OOD to estimate the accuracy.", [({}, estimable)]
    for name, of, estimated in (("", "all", findings.accuracy), ("_accepted", "accepted", findings.accepted_accuracy)):
        accuracy: list[Sample] = [({"method": method}, estimate.value) for method, estimate in estimated.items()]
        yield f"accuracy_estimate{name}", "gauge", f"Accuracy on {of} inputs, estimated without labels.", accuracy
    shares: list[Sample] = [({"class": share.name}, share.predicted.value) for share in findings.classes]
    yield "class_share", "gauge", "Share of answers with this class.", shares


def _labels(labels: Mapping[str, str]) -> str:
    pairs = (
        '{}="{}"'.format(name, printable(text).replace("\\", "\\\\").replace('"', '\\"'))
        for name, text in labels.items()
    )
    return f"{{{','.join(pairs)}}}" if labels else ""


def _histogram(findings: Findings) -> Iterator[str]:
    yield "# HELP hydractl_typicality Typicality of inputs; that of ID inputs is uniform."
    yield "# TYPE hydractl_typicality histogram"
    total = 0
    for place, count in enumerate(findings.histogram[:-1], 1):
        total += count
        yield f'hydractl_typicality_bucket{{le="{place / len(findings.histogram):g}"}} {total}'
    yield f'hydractl_typicality_bucket{{le="+Inf"}} {findings.inputs}'
    yield f"hydractl_typicality_count {findings.inputs}"
