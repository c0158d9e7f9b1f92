"""The findings of streams as a Prometheus server scrapes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hydractl.monitoring.findings import Findings
from hydractl.text import printable

Sample = tuple[Mapping[str, str], float | int | None]


def prometheus(found: Findings) -> str:
    """Returns the findings in Prometheus' text format 0.0.4."""
    lines = []
    for name, kind, text, samples in _metrics(found):
        known = [f"hydractl_{name}{_labels(labels)} {value}" for labels, value in samples if value is not None]
        lines += [f"# HELP hydractl_{name} {text}", f"# TYPE hydractl_{name} {kind}", *known] if known else []
    return "\n".join([*lines, *_histogram(found), ""])


def _metrics(found: Findings) -> Iterator[tuple[str, str, str, list[Sample]]]:
    flagged = None if found.flagged is None else round(found.flagged.value * found.inputs)
    yield "inputs_total", "counter", "Inputs answered.", [({}, found.inputs)]
    yield "flagged_total", "counter", "Inputs that look OOD.", [({}, flagged or 0)]
    yield "evidence", "gauge", "Evidence that inputs have changed.", [({}, found.evidence)]
    yield "evidence_limit", "gauge", "Evidence at which an alarm comes.", [({}, 1 / found.alpha)]
    yield "alarm", "gauge", "1 once an alarm has come.", [({}, int(found.since is not None))]
    yield "confidence", "gauge", "Mean confidence.", [({}, found.confidence)]
    estimable = int(found.estimable) if found.classes else None
    yield "accuracy_estimable", "gauge", "0 if too many inputs look OOD to estimate the accuracy.", [({}, estimable)]
    for name, of, estimated in (("", "all", found.accuracy), ("_accepted", "accepted", found.accepted_accuracy)):
        accuracy: list[Sample] = [({"method": method}, one.value) for method, one in estimated.items()]
        yield f"accuracy_estimate{name}", "gauge", f"Accuracy on {of} inputs, estimated without labels.", accuracy
    shares: list[Sample] = [({"class": one.name}, one.predicted.value) for one in found.classes]
    yield "class_share", "gauge", "Share of answers with this class.", shares


def _labels(labels: Mapping[str, str]) -> str:
    pairs = (
        '{}="{}"'.format(name, printable(text).replace("\\", "\\\\").replace('"', '\\"'))
        for name, text in labels.items()
    )
    return f"{{{','.join(pairs)}}}" if labels else ""


def _histogram(found: Findings) -> Iterator[str]:
    yield "# HELP hydractl_typicality Typicality of inputs; that of ID inputs is uniform."
    yield "# TYPE hydractl_typicality histogram"
    total = 0
    for place, count in enumerate(found.histogram[:-1], 1):
        total += count
        yield f'hydractl_typicality_bucket{{le="{place / len(found.histogram):g}"}} {total}'
    yield f'hydractl_typicality_bucket{{le="+Inf"}} {found.inputs}'
    yield f"hydractl_typicality_count {found.inputs}"
