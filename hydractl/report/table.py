"""The table of results: models as rows, metrics as columns, the best of each column in bold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hydractl.evaluation.results import ModelResult, OodResult

Better = Literal["higher", "lower"]
PADDING = 2  # blanks between columns


@dataclass(frozen=True)
class Column:
    """One metric: its header in two lines, how to read and show it, and which direction is better, if any."""

    group: str
    name: str
    read: Callable[[ModelResult], float]
    show: Callable[[float], str]
    better: Better | None = None

    def cells(self, results: Sequence[ModelResult]) -> list[Text]:
        """The values as text, those equal to the best in bold where there is something to compare."""
        values = [self.read(result) for result in results]
        best = None if self.better is None or len(values) < 2 else (max if self.better == "higher" else min)(values)
        return [Text(self.show(value), style="bold" if value == best else "") for value in values]


def print_results(results: Mapping[str, ModelResult], console: Console) -> None:
    """Prints the table; one too wide for the console goes on below, with the models named again."""
    if not results:
        return
    rows = list(results.values())
    name_width = max(len(name) for name in results)
    for columns in _fit(list(_columns(rows[0])), rows, console.width - name_width - PADDING):
        console.print(_table(columns, results))


def _table(columns: Sequence[Column], results: Mapping[str, ModelResult]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, PADDING // 2), show_edge=False)
    table.add_column("\nmodel", no_wrap=True)
    group = None
    for column in columns:
        # A group is named over its first column only, as in a printed table.
        table.add_column(
            f"{'' if column.group == group else column.group}\n{column.name}", justify="right", no_wrap=True
        )
        group = column.group
    cells = [column.cells(list(results.values())) for column in columns]
    for row, name in enumerate(results):
        table.add_row(name, *(of_column[row] for of_column in cells))
    return table


def _fit(columns: Sequence[Column], rows: Sequence[ModelResult], width: int) -> Iterator[list[Column]]:
    """The columns in runs that fit the width, at least one column a run."""
    run: list[Column] = []
    used = 0
    for column in columns:
        needed = PADDING + max(len(column.group), len(column.name), *(len(c) for c in column.cells(rows)))
        if run and used + needed > width:
            yield run
            run, used = [], 0
        run.append(column)
        used += needed
    yield run


def _columns(result: ModelResult) -> Iterator[Column]:
    yield Column("ID", "acc %", lambda r: r.classification.accuracy, _percent, "higher")
    yield Column("ID", "Brier", lambda r: r.classification.brier, _plain, "lower")
    yield Column("ID", "NLL", lambda r: r.classification.nll, _plain, "lower")
    yield Column("ID", "ECE %", lambda r: r.classification.ece, _percent, "lower")
    yield Column("ID", "aECE %", lambda r: r.classification.adaptive_ece, _percent, "lower")
    yield Column("ID", "MI", lambda r: r.diversity.mutual_information, _plain)
    yield Column("ID", "disagr.", lambda r: r.diversity.disagreement, _plain)
    for name, ood in result.ood.items():
        label = f"{ood.group}/{name}" if ood.group else name
        yield from _ood_columns(label, ood, _pick_set(name))
    # The mean over a single set repeats it.
    for group in result.means if len(result.ood) > 1 else ():
        yield from _ood_columns(f"OOD {group}", result.means[group], _pick_mean(group))
    yield Column("cost", "params M", lambda r: r.cost.parameters / 1e6, "{:,.2f}".format, "lower")
    yield Column("cost", "mult-adds G", lambda r: r.cost.multiply_adds / 1e9, "{:,.3f}".format, "lower")


def _ood_columns(label: str, ood: OodResult, pick: Callable[[ModelResult], OodResult]) -> Iterator[Column]:
    yield Column(label, "AUROC %", lambda r: pick(r).detection.auroc, _percent, "higher")
    yield Column(label, "FPR95 %", lambda r: pick(r).detection.fpr95, _percent, "lower")
    # Average precision means nothing without the share of OOD samples, which a blind detector would score.
    share = f"AUPR % (of {100 * ood.detection.ood_share:.0f})"
    yield Column(label, share, lambda r: pick(r).detection.aupr_out, _percent, "higher")
    yield Column(label, "MI", lambda r: pick(r).diversity.mutual_information, _plain)
    yield Column(label, "disagr.", lambda r: pick(r).diversity.disagreement, _plain)


def _pick_set(name: str) -> Callable[[ModelResult], OodResult]:
    return lambda result: result.ood[name]


def _pick_mean(group: str) -> Callable[[ModelResult], OodResult]:
    return lambda result: result.means[group]


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _plain(value: float) -> str:
    return f"{value:.3f}"
