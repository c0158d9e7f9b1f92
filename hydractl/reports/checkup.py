"""A checkup as people read it: sentences, tables, and a page with an example of each probe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from hydractl.evaluation.checkup import CheckedPromise, Checkup, Row
from hydractl.reports.columns import Cell, percent_cell, share_cell
from hydractl.reports.page import write_page
from hydractl.reports.table import Table
from hydractl.systems.system import plain

#: Of the quality of labelled samples, those that the page has: their name, and whether they are shares.
QUALITY = (
    ("accuracy", True),
    ("micro_f1", True),
    ("span_f1", True),
    ("mae", False),
    ("nll", False),
    ("ece", True),
    ("coverage", True),
)
NAMES = {"nll": "NLL", "ece": "ECE", "mae": "MAE", "micro_f1": "micro F1", "span_f1": "span F1"}
PROMISED = {
    "accept": "inputs not flagged",
    "accuracy": "sure answers right",
    "sets": "right class in set",
    "interval": "number in interval",
    "recall": "true labels or spans answered",
}
CAUGHT, MISSED = 0.05, 0.2  # the shares of missed inputs below which a set is caught, and from which it is missed
SHOWN = 8  # promises of classes


def headline(checkup: Checkup) -> str:
    """Returns the one line that an owner reads."""
    states = [promise.state for promise in checkup.promises]
    counts = [f"{states.count(state)} {state}" for state in ("broken", "kept", "too few to tell") if state in states]
    promises = f"promises: {', '.join(counts)}" if counts else "it promises nothing, since it is not calibrated"
    return f"{checkup.model} on {checkup.samples:,} samples of {checkup.data}: {promises}"


def sentences(checkup: Checkup) -> Iterator[str]:
    """Yields what matters most: broken promises, then what is missed and what is caught."""
    for promise in checkup.broken[:SHOWN]:
        yield (
            f"BROKEN: {_promised(promise)}: {promise.seen}, {_percent(promise.promised)} promised, and chance explains "
            f"no less than {_percent(promise.least)}."
        )
    for kind, what in (("ood", "OOD data"), ("probe", "probes")):
        rows = [row for row in checkup.of(kind) if row.missed is not None]
        shares = {row.name: row.missed.value for row in rows if row.missed}
        missed, partly = (
            [f"{name} ({_percent(share)})" for name, share in shares.items() if low <= share < high]
            for low, high in ((MISSED, 1.1), (CAUGHT, MISSED))
        )
        caught = [name for name, share in shares.items() if share < CAUGHT]
        if missed:
            yield f"It misses these {what}, with answers that are wrong, sure and not flagged: {', '.join(missed)}."
        if partly:
            yield f"It misses some of these {what}: {', '.join(partly)}."
        if caught:
            yield f"It catches these {what}, or is right or unsure: {', '.join(caught)}."


def following(checkup: Checkup) -> Iterator[str]:
    """Yields what the file does not promise, and what to do about it."""
    if not checkup.calibrated:
        yield (
            "Neither the share of flagged inputs nor that of right answers can be promised. Fit both: hydractl "
            "calibrate MODEL --id-data SOURCE -o calibrated.safetensors. Until then the MSP flags 5 % of your samples."
        )
    elif checkup.open:
        options = " or ".join(f"--{option}" for option in checkup.open)
        yield f"It could promise more: hydractl calibrate {options}, on labelled samples"
    short = [promise for promise in checkup.promises if promise.state == "too few to tell"]
    if short:
        needed = max((promise.needed or 0 for promise in short), default=0)
        if needed:
            yield f"Detecting a promise that fails twice as often as it may takes up to {needed:,} samples."
        if any(promise.needed is None for promise in short):
            yield "Some promises rest on too few calibration samples for any check: calibrate on more."


def tables(checkup: Checkup) -> list[Table]:
    """Returns the tables: promises, quality, and the rows."""
    return [*_promises(checkup), *_quality(checkup), *_rows(checkup)]


def _promises(checkup: Checkup) -> Iterator[Table]:
    worst = sorted(checkup.promises, key=lambda each: (each.state != "broken", each.seen.value - each.least))
    shown = worst[:SHOWN] if len(worst) > SHOWN else checkup.promises
    if not shown:
        return
    columns = (
        ("state", [Cell(each.state, None) for each in shown]),
        ("promised %", [Cell(f"{100 * each.promised:g}", each.promised) for each in shown]),
        ("here % (95 %)", [percent_cell(each.seen) for each in shown]),
        ("by chance from %", [Cell(f"{100 * each.least:.1f}", each.least) for each in shown]),
        ("cases", [Cell(f"{each.cases:,}", each.cases) for each in shown]),
        ("it takes", [Cell("-" if each.needed is None else f"{each.needed:,}", each.needed) for each in shown]),
    )
    notes = [f"The {SHOWN} worst of {len(worst)} promises."] if len(worst) > len(shown) else []
    notes.append(
        "Broken: fewer cases keep it than chance explains, in the calibration set and here, at 95 % over all promises. "
        "It takes: samples that detect a promise failing twice as often as it may; fewer are too few to tell."
    )
    yield Table(tuple(map(_promised, shown)), (("", columns),), (), tuple(notes), head="promise")


def _promised(promise: CheckedPromise) -> str:
    return PROMISED.get(promise.name, promise.name) + (f": {promise.of}" if promise.of else "")


def _quality(checkup: Checkup) -> Iterator[Table]:
    names, cells = [], []
    for name, share in QUALITY:
        if name in checkup.quality:
            value, (low, high) = checkup.quality[name]
            factor, digits = (100, 2) if share else (1, 3)
            names.append(NAMES.get(name, name) + " %" * share)
            number, *ends = (f"{factor * each:.{digits}f}" for each in (value, low, high))
            cells.append(Cell(f"{number} ({' to '.join(ends)})", value))
    if names:
        yield Table(tuple(names), (("", (("here (95 %)", cells),)),), (), (), head="quality")


def _rows(checkup: Checkup) -> Iterator[Table]:
    rows = checkup.rows
    columns: list[tuple[str, Sequence[Cell]]] = [("inputs", [Cell(f"{row.samples:,}", row.samples) for row in rows])]
    if any(row.right is not None for row in rows):
        columns.append(("right %", [percent_cell(row.right, False) for row in rows]))
    if any(row.confidence is not None for row in rows):
        columns.append(("confidence %", [share_cell(row.confidence) for row in rows]))
    columns += [
        ("flagged %", [percent_cell(row.flagged, False) for row in rows]),
        ("AUROC %", [share_cell(row.auroc) for row in rows]),
        ("missed % (95 %)", [percent_cell(row.missed) for row in rows]),
    ]
    sure = "" if checkup.sure is None else f" Sure: a confidence of at least {checkup.sure:.4f}."
    notes = (
        f"Missed: wrong, sure and not flagged; an answer to an input without a label counts as wrong.{sure}",
        "Right: where the label still holds. AUROC: how well the score that flags tells these from your samples.",
    )
    yield Table(tuple(map(_title, rows)), (("", tuple(columns)),), (), notes, head="inputs")


def _title(row: Row) -> str:
    return f"{row.name} ({row.help})"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def write_checkup(folder: Path, checkup: Checkup, force: bool) -> Path:
    """Writes index.html and checkup.json; returns the page.

    Raises:
        OutputError: the folder holds a report and `force` is not set, or anything else, or the disk refuses it.
    """
    return write_page(
        folder,
        "checkup",
        plain(checkup),
        force,
        headline=headline(checkup),
        sentences=[*sentences(checkup), *following(checkup)],
        findings=checkup.findings,
        tables=tables(checkup),
        rows=checkup.rows,
    )
