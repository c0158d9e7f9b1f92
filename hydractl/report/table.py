"""The table of results: models as rows, metrics as columns, the best of each column in bold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from hydractl.evaluation.results import ModelResult, OodResult

Read = Callable[[ModelResult], float]
GAP = 3  # blanks between groups of columns


@dataclass(frozen=True)
class Column:
    """One metric: its header, how to read and show it, and which direction is better, if any."""

    name: str
    read: Read
    show: Callable[[float], str]
    better: Literal["higher", "lower"] | None = None

    def cells(self, results: Sequence[ModelResult]) -> list[Text]:
        """The values as text, those equal to the best in bold where there is something to compare."""
        values = [self.read(result) for result in results]
        best = None if self.better is None or len(values) < 2 else (max if self.better == "higher" else min)(values)
        return [Text(self.show(value), style="bold" if value == best else "") for value in values]


@dataclass(frozen=True)
class ColumnGroup:
    """Columns that stand together under one title, such as those of an OOD set."""

    title: str
    columns: Sequence[Column]


def print_results(results: Mapping[str, ModelResult], console: Console) -> None:
    """Prints the table; groups of columns that do not fit the console's width go on below."""
    if not results:
        return
    rows = list(results.values())
    names = _part("", [("model", [Text(name) for name in results])], justify="left")
    parts = [
        _part(group.title, [(column.name, column.cells(rows)) for column in group.columns]) for group in _groups(rows)
    ]
    for number, run in enumerate(_fit(parts, console, console.width - _width(names, console))):
        if number:
            console.print()
        line = Table.grid(padding=(0, GAP))
        line.add_row(names, *run)
        console.print(line)


def _part(
    title: str, columns: Sequence[tuple[str, Sequence[Text]]], justify: Literal["left", "right"] = "right"
) -> Table:
    table = Table(title=title or " ", title_justify="left", title_style="italic", box=box.SIMPLE_HEAD)
    table.show_edge = table.pad_edge = False
    table.padding = (0, 1, 0, 0)
    for name, _ in columns:
        table.add_column(name, justify=justify, no_wrap=True)
    for cells in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*cells)
    return table


def _fit(parts: Sequence[Table], console: Console, width: int) -> Iterator[list[Table]]:
    """The parts in runs that fit the width, at least one part a run."""
    run: list[Table] = []
    used = 0
    for part in parts:
        needed = GAP + _width(part, console)
        if run and used + needed > width:
            yield run
            run, used = [], 0
        run.append(part)
        used += needed
    yield run


def _width(part: Table, console: Console) -> int:
    title = len(part.title) if isinstance(part.title, str) else 0
    part.min_width = title  # a title wider than its columns must not wrap
    return max(title, Measurement.get(console, console.options, part).maximum)


def _groups(rows: Sequence[ModelResult]) -> Iterator[ColumnGroup]:
    first = rows[0]
    ensembles = any(row.cost.members > 1 for row in rows)
    yield ColumnGroup(
        "ID",
        [
            Column("acc %", lambda r: r.classification.accuracy, _percent, "higher"),
            Column("Brier", lambda r: r.classification.brier, _plain, "lower"),
            Column("NLL", lambda r: r.classification.nll, _plain, "lower"),
            Column("ECE %", lambda r: r.classification.ece, _percent, "lower"),
            Column("aECE %", lambda r: r.classification.adaptive_ece, _percent, "lower"),
            *(_diversity(lambda r: r) if ensembles else []),
        ],
    )
    for name, result in first.ood.items():
        title = f"{result.group}/{name}" if result.group else name
        yield _ood_group(title, result, _pick_set(name), ensembles)
    for group in _telling_means(first):
        yield _ood_group(f"OOD, mean of {group}", first.means[group], _pick_mean(group), ensembles)
    yield ColumnGroup(
        "cost",
        [
            Column("parameters", lambda r: r.cost.parameters, _count, "lower"),
            Column("multiply-adds", lambda r: r.cost.multiply_adds, _count, "lower"),
        ],
    )


def _telling_means(result: ModelResult) -> list[str]:
    """The means that repeat neither a single set nor one another."""
    by_sets: dict[tuple[str, ...], str] = {}
    for group in result.means:
        sets = tuple(name for name, entry in result.ood.items() if group in (entry.group, "all"))
        if len(sets) > 1:
            by_sets.setdefault(sets, group)
    return list(by_sets.values())


def _ood_group(title: str, result: OodResult, pick: Callable[[ModelResult], OodResult], ensembles: bool) -> ColumnGroup:
    return ColumnGroup(
        # Average precision means nothing without the share of OOD samples, which a blind detector would score.
        f"{title} ({100 * result.detection.ood_share:.0f} % OOD)",
        [
            Column("AUROC %", lambda r: pick(r).detection.auroc, _percent, "higher"),
            Column("FPR95 %", lambda r: pick(r).detection.fpr95, _percent, "lower"),
            Column("AUPR %", lambda r: pick(r).detection.aupr_out, _percent, "higher"),
            *(_diversity(pick) if ensembles else []),
        ],
    )


def _diversity(pick: Callable[[ModelResult], ModelResult | OodResult]) -> list[Column]:
    return [
        Column("MI", lambda r: pick(r).diversity.mutual_information, _plain),
        Column("disagr.", lambda r: pick(r).diversity.disagreement, _plain),
    ]


def _pick_set(name: str) -> Callable[[ModelResult], OodResult]:
    return lambda result: result.ood[name]


def _pick_mean(group: str) -> Callable[[ModelResult], OodResult]:
    return lambda result: result.means[group]


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _plain(value: float) -> str:
    return f"{value:.3f}"


def _count(value: float) -> str:
    unit, name = next(((u, n) for u, n in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= u), (1, ""))
    return f"{value / unit:.2f} {name}".rstrip()
