"""The classes of a report: the numbers of each as a table, and which of them a system mistakes for which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hydractl.evaluation.results import SystemResult
from hydractl.metrics.classification import ByClass
from hydractl.reports.columns import Cell
from hydractl.reports.table import Table

MOST = 30  # classes of a matrix
LISTED = 20  # mistakes that a page lists where no matrix is drawn
SHARES = ("recall", "precision", "confidence", "flagged")


class Counted(NamedTuple):
    """A cell of a matrix: how many samples of a class have an answer, and how dark it is, from 0 to 100."""

    samples: int
    shade: int


@dataclass(frozen=True)
class Mistakes:
    """The mistakes of a system between classes; rows of the matrix are the right classes, columns the answers."""

    system: str
    sentence: str  # the most frequent mistake
    rows: Mapping[str, Sequence[Counted]]  # of the matrix; empty with more than MOST classes
    listed: Sequence[str]  # the most frequent mistakes; empty beside a matrix


def by_class_of(models: Mapping[str, SystemResult], best: str) -> dict[str, ByClass]:
    """Returns the numbers by class of the best system and of the first other, as far as they are known."""
    numbers = {}
    for name in [*dict.fromkeys((best, *models))][:2]:
        seeds = models[name].seeds or ()
        title = f"{name}, the first of {len(seeds)} seeds" if seeds else name
        numbers[title] = (*seeds, models[name])[0].by_class
    return {title: by_class for title, by_class in numbers.items() if by_class}


def class_table(systems: Mapping[str, ByClass]) -> Table:
    """Returns a row per class of the first system, the lowest recall first, and a group of columns per system."""
    first = next(iter(systems.values()))
    kind = "class" if any(numbers.answers is not None for numbers in first.values()) else "label"
    names = sorted(first, key=lambda name: 2.0 if (recall := first[name].recall) is None else recall)
    groups = [("", [("samples", [Cell(str(first[name].samples), first[name].samples) for name in names])])]
    for system, by_class in systems.items():
        shares = {share: [getattr(by_class.get(name), share, None) for name in names] for share in SHARES}
        columns = [(f"{share} %", [*map(_cell, of)]) for share, of in shares.items() if {*of} != {None}]
        groups.append((system if len(systems) > 1 else "", columns))
    caption = (
        f"Recall: share of the samples of a {kind} that are answered with it. Precision: share of the answers with it "
        f"that are right. Confidence: mean probability of {'their answers' if kind == 'class' else 'this label'}."
    )
    if any(numbers.flagged is not None for by_class in systems.values() for numbers in by_class.values()):
        caption += " Flagged: share of the samples that look OOD."
    return Table(tuple(names), tuple(groups), (), (caption,), head=kind)


def _cell(share: float | None) -> Cell:
    text = "-" if share is None else f"{100 * share:.1f}"
    return Cell(text, None if share is None else float(text))


def mistakes_of(systems: Mapping[str, ByClass]) -> Iterator[Mistakes]:
    """Yields the mistakes of each system that chooses a class."""
    for system, by_class in systems.items():
        counts = {name: numbers.answers for name, numbers in by_class.items() if numbers.answers is not None}
        samples = {name: max(sum(of.values()), 1) for name, of in counts.items()}
        wrong = [(n, name, answer) for name, of in counts.items() for answer, n in of.items() if answer != name and n]
        wrong.sort(key=lambda mistake: -mistake[0])
        sentence, listed, rows = "Every answer is right.", [], {}
        if wrong:
            most, name, answer = wrong[0]
            share = f"{most} of {samples[name]} times"
            sentence = f"The most frequent mistake: “{name}” is answered as “{answer}”, {share}."
        if len(counts) > MOST:
            listed = [f"{name} answered as {answer}: {n} of {samples[name]}" for n, name, answer in wrong[:LISTED]]
        else:
            darkest = max((n / samples[name] for n, name, _ in wrong), default=1.0)  # mistakes may all be rare
            for name, of in counts.items():
                shares = {answer: of.get(answer, 0) / samples[name] for answer in counts}
                rows[name] = [
                    Counted(of.get(answer, 0), round(100 * share / (1.0 if answer == name else darkest)))
                    for answer, share in shares.items()
                ]
        if counts:
            yield Mistakes(system, sentence, rows, listed)
