"""The columns of a table of results: which number each shows, how, and which direction is better."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hydractl.evaluation.results import GROUPS, Difference, Interval, Ood, SystemResult
from hydractl.metrics.bootstrap import Outcome, outcome

if TYPE_CHECKING:
    from hydractl.monitoring.estimates import ShareEstimate

MAIN = frozenset({"acc %", "kept nbrs %", "MSE", "NLL", "ECE %"})
FEW = 3  # OOD sets without a group that have columns of their own where there is little room

#: The mark of an outcome beside a number; the arrow means better or worse, whichever way the number went.
MARKS: Mapping[Outcome, str] = {"better": "▲", "worse": "▼", "within chance": ""}


@dataclass(frozen=True)
class Cell:
    """A number of a system as people read it."""

    text: str
    value: float | None  # the number itself; None where the system has none
    best: bool = False  # whether it wins its column
    outcome: Outcome | None = None  # how it compares with the first system's number; None where that is unknown
    # interval, difference: its interval, and its paired difference to the first system; None where not computed
    interval: str | None = None
    difference: str | None = None

    @property
    def mark(self) -> str:
        """The mark beside the number; empty unless it differs beyond chance."""
        return MARKS[self.outcome] if self.outcome else ""

    @property
    def after(self) -> str:
        """The interval in brackets after the number."""
        return "" if self.interval is None else f" ({self.interval})"


def share_cell(share: float | None) -> Cell:
    """Returns a share in percent, or a dash."""
    text = "-" if share is None else f"{100 * share:.1f}"
    return Cell(text, None if share is None else float(text))


def percent_cell(share: ShareEstimate | None, interval: bool = True) -> Cell:
    """Returns a share in percent, with its interval if that is to be read too."""
    if share is None:
        return share_cell(None)
    ends = f" ({100 * share.low:.1f} to {100 * share.high:.1f})" if interval else ""
    return Cell(f"{100 * share.value:.1f}{ends}", share.value)


@dataclass(frozen=True)
class Column:
    """One metric: its header, its place in a system's entry, how to show it, and which direction is better, if any."""

    name: str
    path: tuple[str, ...]
    kind: Literal["percent", "plain", "count"]
    better: Literal["higher", "lower"] | None = None

    def value(self, entry: SystemResult) -> float | None:
        """Returns the number in a system's entry; None where it has none."""
        number = at(entry, self.path)
        return number if isinstance(number, int | float) else None

    def ends(self, entry: SystemResult) -> Interval | None:
        """Returns both ends of the number's interval; None where none was computed."""
        return at(entry.intervals, self.path)

    def paired(self, entry: SystemResult) -> Difference | None:
        """Returns the difference to the first system; None if it was not computed."""
        return at(entry.difference, self.path)

    def outcome(self, entry: SystemResult) -> Outcome | None:
        """Returns how a number compares with the first system's; None if that is unknown or no direction is better.

        Every mark, sentence and JSON entry comes from this one test, corrected for the numbers that a verdict judges.
        """
        difference = self.paired(entry)
        if difference is None or self.better is None:
            return None
        return outcome(difference.value, difference.interval, self.better == "higher", numbers_judged(entry))

    def show(self, value: float) -> str:
        """Returns a number of this column as text."""
        if self.kind == "count":
            return count_text(value)
        return f"{100 * value:.2f}" if self.kind == "percent" else f"{value:.3f}"

    def signed(self, value: float) -> str:
        """Returns a difference of two numbers of this column as text."""
        shown = self.show(value)
        return shown if shown.startswith("-") else f"+{shown}"

    def cells(self, entries: Sequence[SystemResult]) -> tuple[Cell, ...]:
        """Returns the numbers of the systems as people read them."""
        best = self._best(entries)
        return tuple(self._cell(entry, best) for entry in entries)

    def _cell(self, entry: SystemResult, best: str | None) -> Cell:
        value, ends, paired = self.value(entry), self.ends(entry), self.paired(entry)
        return Cell(
            "-" if value is None else self.show(value),
            value,
            best=self._shown(entry) == best is not None,
            outcome=self.outcome(entry),
            interval=None if ends is None else self._span(ends),
            difference=None if paired is None else f"{self.signed(paired.value)} ({self._span(paired.interval)})",
        )

    def _span(self, ends: Interval) -> str:
        return " to ".join(map(self.show, ends))

    def _shown(self, entry: SystemResult) -> str | None:
        value = self.value(entry)
        return None if value is None else self.show(value)

    def _best(self, entries: Sequence[SystemResult]) -> str | None:
        """Returns the winning number, by the digits shown; None if nothing competes.

        Where paired differences to the first system are known, the winner must differ from it beyond chance; if the
        first system wins, all others must.
        """
        values = [value for value in map(self.value, entries) if value is not None]
        if self.better is None or len(values) < 2:
            return None
        best = self.show(max(values) if self.better == "higher" else min(values))
        compared = [entry for entry in entries if self.paired(entry) is not None]
        winners = [entry for entry in compared if self._shown(entry) == best] or compared
        return None if any(self.outcome(entry) == "within chance" for entry in winners) else best


#: The metrics of a verdict by their keys in JSON.
JUDGED = {
    "accuracy": Column("accuracy", ("id", "accuracy"), "percent", "higher"),
    "neighbours": Column("kept neighbours", ("id", "neighbours"), "percent", "higher"),
    "mse": Column("MSE", ("id", "mse"), "plain", "lower"),
    "nll": Column("NLL", ("id", "nll"), "plain", "lower"),
    "ece": Column("ECE", ("id", "ece"), "percent", "lower"),
    "mean_auroc": Column("mean AUROC", ("ood_means", "all", "auroc"), "percent", "higher"),
    "mean_fpr95": Column("mean FPR95", ("ood_means", "all", "fpr95"), "percent", "lower"),
}


def judged_sets(entry: SystemResult) -> dict[str, dict[str, Column]]:
    """Returns the detection metrics that a verdict judges on each OOD set; none for a single set, which is the mean."""
    compared = entry.difference.ood or {} if entry.difference else {}
    return {
        name: {
            "auroc": Column(f"AUROC of {name}", ("ood", name, "auroc"), "percent", "higher"),
            "fpr95": Column(f"FPR95 of {name}", ("ood", name, "fpr95"), "percent", "lower"),
        }
        for name in (compared if len(compared) > 1 else ())
    }


def numbers_judged(entry: SystemResult) -> int:
    """Returns for how many numbers the outcomes of a system are corrected, at least 1."""
    columns = [*JUDGED.values(), *(column for pair in judged_sets(entry).values() for column in pair.values())]
    return max(sum(column.paired(entry) is not None for column in columns), 1)


def count_text(value: float) -> str:
    """Returns a count as people read it.

    >>> count_text(86_567_656)
    '86.57 M'
    """
    unit, name = next(((u, n) for u, n in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= u), (1, ""))
    return f"{value / unit:.2f} {name}" if name else f"{value:g}"


def at(value: Any, path: Sequence[str]) -> Any:
    """Returns the part of a value that a path of fields and keys leads to; None if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
    return value


@dataclass(frozen=True)
class ColumnGroup:
    """Columns that stand together under one title, such as those of an OOD set."""

    title: str
    columns: Sequence[Column]


def column_groups(entries: Sequence[SystemResult], full: bool) -> list[ColumnGroup]:
    """Returns the columns for these systems.

    Args:
        entries: of a report, at least one.
        full: every metric, rather than the few that fit a terminal.
    """
    groups = [
        ColumnGroup("ID", _id_columns(full, any(entry.members > 1 for entry in entries))),
        *_ood_groups(entries, full),
        *_shift_groups(entries, full),
        ColumnGroup("cost", _cost_columns(full)),
    ]
    return _present(groups, entries)


def main_groups(entries: Sequence[SystemResult]) -> list[ColumnGroup]:
    """Returns the columns that a page or a paper has room for: accuracy, NLL, ECE, AUROC of near and far OOD, cost.

    Args:
        entries: of a report, at least one.
    """
    sets = {name: result for entry in entries for name, result in entry.ood.items()}
    members = {group: [name for name, entry in sets.items() if entry.group == group] for group in ("near", "far")}
    paths = [(_title(group, names), _path(group, names)) for group, names in members.items() if names]
    paths += [] if paths or len(sets) > FEW else [(name, ("ood", name)) for name in sets]
    if len(sets) > 1 and not any(len(names) == len(sets) for names in members.values()):
        paths.append(("mean", ("ood_means", "all")))
    groups = [
        ColumnGroup("ID", [column for column in _id_columns(False, False) if column.name in MAIN]),
        ColumnGroup("AUROC %", [Column(name, (*path, "auroc"), "percent", "higher") for name, path in paths]),
        ColumnGroup("MSP AUROC %", [Column(name, (*path, "msp_auroc"), "percent", "higher") for name, path in paths]),
        ColumnGroup("cost", _cost_columns(False)),
    ]
    return _present(groups, entries)


def _title(group: str, names: Sequence[str]) -> str:
    return group if len(names) > 1 or names == [group] else f"{group}: {names[0]}"


def _path(group: str, names: Sequence[str]) -> tuple[str, str]:
    return ("ood_means", group) if len(names) > 1 else ("ood", names[0])


def _present(groups: Sequence[ColumnGroup], entries: Sequence[SystemResult]) -> list[ColumnGroup]:
    """Drops the columns that no system has a number for, and the groups that are then empty."""
    present = (
        ColumnGroup(group.title, [c for c in group.columns if any(c.value(entry) is not None for entry in entries)])
        for group in groups
    )
    return [group for group in present if group.columns]


def _id_columns(full: bool, ensembles: bool) -> list[Column]:
    columns = [
        Column("acc %", ("id", "accuracy"), "percent", "higher"),
        Column("kept nbrs %", ("id", "neighbours"), "percent", "higher"),
        Column("MSE", ("id", "mse"), "plain", "lower"),
        Column("MAE", ("id", "mae"), "plain", "lower"),
        Column("Spearman", ("id", "spearman"), "plain", "higher"),
        Column("coverage %", ("id", "coverage"), "percent"),
        Column("width", ("id", "width"), "plain", "lower"),
        Column("spread", ("id", "spread"), "plain"),
        Column("Brier", ("id", "brier"), "plain", "lower"),
        Column("NLL", ("id", "nll"), "plain", "lower"),
        Column("ECE %", ("id", "ece"), "percent", "lower"),
        Column("aECE %", ("id", "adaptive_ece"), "percent", "lower"),
        Column("micro F1 %", ("id", "micro_f1"), "percent", "higher"),
        Column("macro F1 %", ("id", "macro_f1"), "percent", "higher"),
        Column("mAP %", ("id", "mean_ap"), "percent", "higher"),
        Column("label AUROC %", ("id", "label_auroc"), "percent", "higher"),
        Column("precision %", ("id", "precision"), "percent", "higher"),
        Column("recall %", ("id", "recall"), "percent", "higher"),
        Column("span F1 %", ("id", "span_f1"), "percent", "higher"),
        Column("span ECE %", ("id", "span_ece"), "percent", "lower"),
    ]
    if full:
        columns += [
            Column("AURC %", ("selective", "aurc"), "percent", "lower"),
            Column("acc % at 80 %", ("selective", "accuracy_at_coverage", "0.8"), "percent", "higher"),
            Column("err. AUROC %", ("selective", "misclassification_auroc"), "percent", "higher"),
            Column("err. AUPR %", ("selective", "misclassification_aupr"), "percent", "higher"),
            Column("err. FPR95 %", ("selective", "misclassification_fpr95"), "percent", "lower"),
            Column("odd err. AUROC %", ("selective", "ood_score_misclassification_auroc"), "percent", "higher"),
            Column("T", ("temperature", "value"), "plain"),
            Column("by T %", ("temperature", "argmax_changed"), "percent"),
        ]
    return [
        *columns,
        *(_diversity(("id",)) if full or ensembles else []),
        Column("coverage %", ("conformal", "coverage"), "percent"),
        *([Column("worst class %", ("conformal", "worst_class"), "percent", "higher")] if full else []),
        Column("set size", ("conformal", "mean_size"), "plain", "lower"),
    ]


def _ood_groups(entries: Sequence[SystemResult], full: bool) -> Iterator[ColumnGroup]:
    sets: dict[str, Ood] = {}
    for entry in entries:
        for name, result in entry.ood.items():
            sets.setdefault(name, result)
    for group in telling_means(sets):
        yield ColumnGroup(f"mean of {group}", _detection(("ood_means", group), full))
    for name, result in sets.items():
        title = f"{result.group}/{name}" if result.group else name
        # Average precision means nothing without the share of OOD samples, which a blind detector would score.
        share = f" ({100 * result.ood_share:.0f} % OOD)" if full else ""
        yield ColumnGroup(title + share, _detection(("ood", name), full))


def telling_means(sets: Mapping[str, Ood]) -> list[str]:
    """Returns the means that repeat neither a single set nor one another.

    Args:
        sets: the entries of OOD sets by name.
    """
    by_sets: dict[tuple[str, ...], str] = {}
    for group in GROUPS:
        members = tuple(name for name, entry in sets.items() if group in (entry.group, "all"))
        if len(members) > 1:
            by_sets.setdefault(members, group)
    return list(by_sets.values())


def _detection(path: tuple[str, ...], full: bool) -> list[Column]:
    columns = [
        Column("AUROC %", (*path, "auroc"), "percent", "higher"),
        Column("FPR95 %", (*path, "fpr95"), "percent", "lower"),
        Column("MSP AUROC %", (*path, "msp_auroc"), "percent", "higher"),
        Column("MSP FPR95 %", (*path, "msp_fpr95"), "percent", "lower"),
    ]
    if full:
        columns += [
            Column("AUPR-out %", (*path, "aupr_out"), "percent", "higher"),
            Column("AUPR-in %", (*path, "aupr_in"), "percent", "higher"),
            *_diversity(path),
        ]
    return columns


def _diversity(path: tuple[str, ...]) -> list[Column]:
    return [Column("MI", (*path, "mutual_information"), "plain"), Column("disagr.", (*path, "disagreement"), "plain")]


def _shift_groups(entries: Sequence[SystemResult], full: bool) -> Iterator[ColumnGroup]:
    """Yields the mean over all shifted sets; in full, also those at each severity and of each kind, and every set.

    Without a mean, as of a single set, every set is shown.
    """
    yield _shifted("mean under shift", "shift_means", "all")
    if not full and any(entry.shift_means for entry in entries):
        return
    for title, place in (("mean at severity {}", "by_severity"), ("mean of {}", "by_kind")):
        means = (getattr(entry.shift_means, place) for entry in entries if entry.shift_means)
        yield from (_shifted(title.format(name), "shift_means", place, name) for name in _each(means))
    for kind in _each(entry.shift or {} for entry in entries):
        by_severity = ((entry.shift or {}).get(kind, {}) for entry in entries)
        yield from (_shifted(f"{kind} {severity}", "shift", kind, severity) for severity in _each(by_severity))


def _each(entries: Iterable[Mapping[str, object]]) -> list[str]:
    """Returns the names in any of the entries, each once, in their order."""
    return list(dict.fromkeys(name for entry in entries for name in entry))


def _shifted(title: str, *path: str) -> ColumnGroup:
    return ColumnGroup(
        title,
        [
            Column("acc %", (*path, "accuracy"), "percent", "higher"),
            Column("Brier", (*path, "brier"), "plain", "lower"),
            Column("ECE %", (*path, "ece"), "percent", "lower"),
        ],
    )


def _cost_columns(full: bool) -> list[Column]:
    members = [Column("members", ("cost", "members"), "count")] if full else []
    return [
        *members,
        Column("parameters", ("cost", "parameters"), "count", "lower"),
        Column("multiply-adds", ("cost", "multiply_adds"), "count", "lower"),
    ]
