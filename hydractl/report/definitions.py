"""The definitions of a report's numbers, and the lines below its table."""

from __future__ import annotations

from collections.abc import Iterator

from hydractl.evaluation.results import Results, System, SystemTemperature
from hydractl.metrics.ood_scores import OOD_SCORES
from hydractl.metrics.styles import OURS, STYLES

DEFINITIONS = {
    "prediction": "argmax of the mean over members of their softmax probabilities, in float64 from float32 logits.",
    "accuracy (acc)": "share of ID samples whose prediction is their label.",
    "Brier": "mean over samples of the sum over classes of (p - y)², 0 to 2; lower is better.",
    "NLL": "mean of -log of the mean member probability of the label, nats; lower is better.",
    "ECE": (
        "expected calibration error of the top label: 15 equal-width bins on (0,1], closed on the right, L1; "
        "lower is better."
    ),
    "aECE": "the same over 15 bins of equal mass, ties kept together; lower is better.",
    "AURC": "area under the risk-coverage curve: mean error of the k most confident samples over k; lower is better.",
    "acc at coverage": "accuracy of the most confident share of the samples.",
    "err. AUROC": "the chance that a wrong ID prediction scores higher than a right one, ties one half.",
    "err. AUPR": "average precision of the score with errors positive; a blind one scores the error rate.",
    "err. FPR95": "share of right ID predictions flagged where at least 95 % of the errors are; lower is better.",
    "AUROC": "the chance that an OOD sample scores higher than an ID sample, ties one half; OOD is positive.",
    "FPR95": "share of ID samples flagged at the highest threshold that flags at least 95 % of OOD; lower is better.",
    "AUPR-out": "average precision, step-wise, OOD positive; a blind detector scores the share of OOD.",
    "AUPR-in": "average precision with ID positive.",
    "mean of near, far, all": "flat means over the sets of a group, each set with the same weight.",
    "MI": "mutual information: entropy of the mean less mean entropy of members, nats; how much members disagree.",
    "disagr.": "share of pairs of members with different argmax.",
    "T": "temperature: divides the logits of every member before the softmax; fitted by least NLL on calibration data.",
    "by T": "share of the calibration data that a fitted temperature predicts another class; 0 for one member.",
    "coverage, set size": "conformal prediction sets: share that holds the label, and mean number of classes.",
    "parameters, multiply-adds": "numbers stored; multiply-adds of matrix products to classify one sample.",
    "interval": (
        "95 % bootstrap over samples: percentiles of the draws, moved so that their mean is the number, as those of "
        "ECE are too high; the same draws for every system, so differences are paired."
    ),
    "▲, ▼": "better or worse than the first system beyond chance: the paired interval of the difference leaves 0 out.",
    "±": "standard deviation over the files (seeds) of a system, N - 1 in the denominator.",
}


LEAK = "†"


def marked(name: str, entry: System) -> str:
    """Returns the name of a system in a table, with a mark where it was evaluated on samples that made it."""
    return f"{name} {LEAK}" if entry.leaks else name


def caption(report: Results, full: bool = False) -> Iterator[str]:
    """Yields the lines under a table: what tells OOD from ID, and how it was averaged.

    Args:
        full: whether the table shows every metric.
    """
    models = report.models
    style = report.options.get("style", OURS.name)
    score = report.options.get("ood_score", OOD_SCORES[0].name)
    if any(system.ood for system in models.values()):
        yield f"OOD is positive. Score: {score}, {_meaning(score)}."
        yield "FPR95: share of ID flagged where at least 95 % of OOD is. Means are flat over sets."
        if own := [name for name, system in models.items() if system.score]:
            yield f"Scored by a confidence of their own: {', '.join(own)}."
        if full:
            yield "AUPR: average precision, OOD positive (out) or ID (in); chance is the share of those samples."
    if style != OURS.name:
        yield f"Style: {next((row.help for row in STYLES if row.name == style), style)}."
    if fitted := [_fitted(name, system.temperature) for name, system in models.items() if _is_fitted(system)]:
        yield f"Temperature fitted: {'; '.join(fitted)}."
    for name, system in models.items():
        for leak in system.leaks or ():
            counted = f"{leak.overlap} of {leak.samples} samples of {leak.name} ({leak.set})"
            yield f"{LEAK} {counted} were used to make or fit {name} (as {', '.join(leak.used_as)}): flattered."
    if not report.complete:
        yield "Interrupted: systems are missing."


def _meaning(score: str) -> str:
    for row in OOD_SCORES:
        if row.name == score:
            return f"{row.help}; fitted on calibration data" if row.needs_features else row.help
    return "as given"


def _is_fitted(system: System) -> bool:
    return system.temperature is not None and system.temperature.argmax_changed is not None


def _fitted(name: str, found: SystemTemperature | None) -> str:
    assert found is not None and found.argmax_changed is not None
    changed = f"{100 * found.argmax_changed:.2f} % of predictions changed"
    return f"{name} {found.value:.3f}, NLL {found.nll_before:.3f} to {found.nll_after:.3f}, {changed}"
