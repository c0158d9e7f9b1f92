"""The findings of streams as a Prometheus server scrapes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hydractl.monitoring.findings import Findings
from hydractl.text import printable

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
