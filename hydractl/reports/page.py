"""A report as files: its JSON, read strictly and joined with others, and a folder with a page that needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hydractl.artifacts import found_references, open_artifact, seen_from
from hydractl.checkpoint.output import make_folder, refuse_folder, write_bytes, write_folder
from hydractl.drawing import inline, png, svg
from hydractl.errors import ArtifactError, require
from hydractl.evaluation.results import DataInfo, Results, Sample, SystemResult
from hydractl.metrics.classification import ByClass
from hydractl.reports.columns import Cell, share_cell
from hydractl.reports.figures import TITLES, pictures, told_apart
from hydractl.reports.table import Table, markdown_table, result_table
from hydractl.reports.verdict import next_command, recommended, rivalries, verdicts
from hydractl.schema import document
from hydractl.systems.system import plain
from hydractl.text import printable, printable_json

if TYPE_CHECKING:
    from jinja2 import Environment


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
    numbers = {name: models[name].by_class for name in [*dict.fromkeys((best, *models))][:2]}
    return {name: by_class for name, by_class in numbers.items() if by_class}


def class_table(systems: Mapping[str, ByClass]) -> Table:
    """Returns a row per class of the first system, the lowest recall first, and a group of columns per system."""
    first = next(iter(systems.values()))
    kind = "class" if any(numbers.answers is not None for numbers in first.values()) else "label"
    names = sorted(first, key=lambda name: 2.0 if (recall := first[name].recall) is None else recall)
    groups = [("", [("samples", [Cell(str(first[name].samples), first[name].samples) for name in names])])]
    for system, by_class in systems.items():
        shares = {share: [getattr(by_class.get(name), share, None) for name in names] for share in SHARES}
        columns = [(f"{share} %", [*map(share_cell, of)]) for share, of in shares.items() if {*of} != {None}]
        groups.append((system if len(systems) > 1 else "", columns))
    caption = (
        f"Recall: share of the samples of a {kind} that are answered with it. Precision: share of the answers with it "
        f"that are right. Confidence: mean probability of {'their answers' if kind == 'class' else 'this label'}."
    )
    if any(numbers.flagged is not None for by_class in systems.values() for numbers in by_class.values()):
        caption += " Flagged: share of the samples that look OOD."
    return Table(tuple(names), tuple(groups), (), (caption,), head=kind)


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


FORMAT = "hydractl-report"
VERSION = 1
DEFINING = "ood_score"  # the option that defines the numbers of a report


def results(
    models: Mapping[str, SystemResult], data: DataInfo, options: Mapping[str, Any], complete: bool = True
) -> Results:
    """Returns the results of an evaluation by this version.

    Args:
        models: the systems by their names in the report.
        options: those that determine the numbers; those that are None are left out.
        complete: False if the evaluation was interrupted.
    """
    set_options = {name: value for name, value in options.items() if value is not None}
    return Results(models=models, data=data, options=set_options, complete=complete, hydractl=version("hydractl"))


def report_json(report: Results) -> dict[str, Any]:
    """Returns the report as plain JSON: every number of every system, with a verdict on those that were compared."""
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION, **plain(report)}
    for name, verdict in verdicts(report.models).items():
        content["models"][name]["verdict"] = verdict.to_json()
    return content


def read_report(source: str) -> Results:
    """Returns the report in a file, or on standard input for `-`.

    Raises:
        ArtifactError: the file is no report, or lacks the numbers of a system.
    """
    opened = open_artifact(source, FORMAT, VERSION)
    if not opened.read(Results, "ignore").models:
        raise opened.origin.refusal("models holds no system")
    # The form was checked first: references are looked for where the form has them.
    return document(found_references(opened.fields, source), opened.origin).read(Results, "ignore")


def without_curves(report: Results) -> Results:
    """Returns the results without the curves, which only pictures need."""
    return replace(report, models={name: replace(system, curves=None) for name, system in report.models.items()})


def join_reports(reports: Mapping[str, Results]) -> tuple[Results, list[str]]:
    """Returns one report with the systems of all, and notes on how the reports differ.

    Keeps those differences that are to the first system of the joined report.

    Args:
        reports: at least one, by the name that messages use.

    Raises:
        ArtifactError: two reports define their numbers differently.
    """
    (first_name, first), *others = reports.items()
    models: dict[str, SystemResult] = {}
    notes: list[str] = []
    for name, report in reports.items():
        systems, left = _compared_with(next(iter(first.models.values())), report.models)
        if left:
            notes.append(f"{name}: its differences are to {left}, which is not the first system here: left out")
        for label, system in systems.items():
            system = replace(system, rivals=None) if others else system  # whose names may now be those of others
            stem = _stem(name)
            numbered = (f"{label} ({stem} {number})" for number in range(2, len(reports) + 1))
            names = (label, f"{label} ({stem})", *numbered)
            models[next(free for free in names if models.get(free, system) == system)] = system
    for name, report in others:
        ours, theirs = first.options.get(DEFINING), report.options.get(DEFINING)
        if ours != theirs:
            raise ArtifactError(
                f"{name}: {DEFINING} is {theirs}, in {first_name} {ours}: evaluate both with one of them"
            )
        if report.data != first.data:
            notes.append(f"{name} and {first_name} were not evaluated on the same data: compare with care")
    complete = all(report.complete for report in reports.values())
    warnings = dict.fromkeys(warning for report in reports.values() for warning in report.warnings)
    return replace(first, models=models, complete=complete, command=None, warnings=tuple(warnings)), notes


def _compared_with(first: SystemResult, models: Mapping[str, SystemResult]) -> tuple[Mapping[str, SystemResult], str]:
    """Returns a report's systems, and the name of its first system if their differences to it had to go."""
    name, reference = next(iter(models.items()))
    if (reference.id, reference.ood) == (first.id, first.ood):
        return models, ""
    alone = {label: replace(system, difference=None) for label, system in models.items()}
    return alone, name if alone != models else ""


def _stem(name: str) -> str:
    path = Path(name)
    return path.parent.name if path.name == "report.json" and path.parent.name else path.stem


PAGE = "index.html"
KIND = "report"  # marks the folders that may be replaced

TOLD = 5  # verdicts before the table; further ones fold away


def check_report(folder: Path, force: bool) -> None:
    """Raises an error if a report cannot be written there, before long work starts.

    Raises:
        OutputError: the folder holds a report and `force` is not set, or it holds anything else.
        OptionError: matplotlib, which draws the pictures, is not installed.
    """
    refuse_folder(folder, KIND, force)
    require("matplotlib")


def write_report(folder: Path, report: Results, force: bool = False, full: bool = False) -> Path:
    """Writes index.html, report.json, table.md and figures/*.svg and *.png; returns the page.

    The folder appears with all of them or not at all.

    Args:
        full: whether table.md shows every metric; the page always does.

    Raises:
        OutputError: see `check_report`; or the disk refuses it.
    """
    figures = pictures(report)
    content = seen_from(folder, report_json(report))
    table = result_table(report, full, brief=True)
    texts = {
        "report.json": printable_json(content) + "\n",
        "table.md": markdown_table(table),
        PAGE: html_page(report, {name: inline(figure, name) for name, figure in figures.items()}, folder),
        **{f"figures/{name}.svg": svg(figure) for name, figure in figures.items()},
    }
    with write_folder(folder, KIND, force) as new:
        make_folder(new / "figures")
        for name, text in texts.items():
            write_bytes(new / name, text.encode())
        for name, figure in figures.items():
            write_bytes(new / "figures" / f"{name}.png", png(figure))
    return folder / PAGE


def html_page(report: Results, drawn: Mapping[str, str], folder: Path = Path()) -> str:
    """Returns the page.

    Args:
        drawn: the result of `drawing.inline` for each picture, by its name in `TITLES`.
        folder: of the page, from which references to models are given.
    """
    from markupsafe import Markup

    template = environment().get_template("page.html")
    models, content = report.models, seen_from(folder, report_json(report))
    by_first, rivals = verdicts(models), rivalries(models)
    in_order = sorted(by_first.values(), key=lambda verdict: -models[verdict.system].members)
    main = result_table(report, brief=True)
    shown, chosen_by = told_apart(models)
    first = next(iter(models))
    clear = bool(by_first) and (len(by_first) == 1 or bool(rivals))
    best, why = recommended(models) if clear else (first, "")
    listed, by_class = list(_samples(models)), by_class_of(models, best)
    used = [network["reference"] for network in content["models"][best].get("networks") or ()]
    return template.render(
        report=content,
        models=content["models"],
        tables=[("results", "Results", main), ("details", "Every metric", result_table(report, full=True))],
        verdicts=[verdict.sentence() for verdict in (*in_order, *rivals)],
        told=TOLD,
        deploy=why,
        next=next_command(used) if clear or len(models) == 1 else "",
        compared=bool(by_first),
        caption=main.caption,
        mistakes=list(mistakes_of(by_class)),
        classes=class_table(by_class) if by_class else None,
        pictures=[(TITLES[name], Markup(drawn[name])) for name in TITLES if name in drawn],
        shown=len(shown),
        chosen_by=chosen_by,
        maps=list(_head_maps(models)),
        samples=listed,
        profiles=any(sample.profile for _, shown in listed for sample in shown),
        first=first,
    )


def write_page(folder: Path, name: str, content: object, force: bool, **values: Any) -> Path:
    """Writes a page as index.html from the template of that name, and beside it a JSON file; returns the page.

    Args:
        content: of the JSON file.
        values: that the template shows.

    Raises:
        OutputError: the folder holds a report and `force` is not set, or anything else, or the disk refuses it.
    """
    text = environment().get_template(f"{name}.html").render(**values)
    with write_folder(folder, KIND, force) as new:
        write_bytes(new / PAGE, text.encode())
        write_bytes(new / f"{name}.json", f"{printable_json(content)}\n".encode())
    return folder / PAGE


def environment() -> Environment:
    """Returns Jinja for pages: it escapes markup, and text that no page may hold."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # Jinja escapes markup, but lets characters through that no page may hold.
    made = Environment(
        loader=PackageLoader("hydractl", "reports"),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["oddness"] = _oddness
    return made


def _samples(models: Mapping[str, SystemResult]) -> Iterator[tuple[str, Sequence[Sample]]]:
    """Yields samples under titles.

    The oddest of each set by the first system that has profiles, what the largest system doubts, and what the first one
    was sure of and wrong about.
    """
    curves = {name: entry.curves for name, entry in models.items() if entry.curves}
    odd = {name: curve.oddest for name, curve in curves.items() if curve.oddest}
    for name, sets in list(odd.items())[:1]:
        yield from ((f"Least typical of {'ID' if of == 'id' else of}, by {name}", shown) for of, shown in sets.items())
    doubts = {name: curve.doubts for name, curve in curves.items() if curve.doubts}
    if not doubts:
        return
    most, first = max(doubts, key=lambda name: models[name].members), next(iter(doubts))
    yield f"Samples that {most} is least sure of", doubts[most].doubted
    if doubts[first].wrong:
        yield f"Confident errors of {first}", doubts[first].wrong


def _oddness(typicality: float) -> float:
    """Returns the height of a bar, 0 for a typicality of 1 up to 30 for .001 and less."""
    return round(10 * min(3.0, -log10(max(typicality, 1e-3))), 1)


def _head_maps(models: Mapping[str, SystemResult]) -> Iterator[dict[str, Any]]:
    """Yields the heads that each member keeps, for systems that lack some."""
    for name, system in models.items():
        for network in system.networks or ():
            for tower, heads in network.heads.items():
                members = len(heads.kept[0]) if heads.kept else 0
                if any(len(kept) < heads.of for layer in heads.kept for kept in layer):
                    yield {
                        "title": name if len(network.heads) == 1 else f"{name}, {tower} tower",
                        "heads": heads.of,
                        "layers": len(heads.kept),
                        "members": [[set(layer[member]) for layer in heads.kept] for member in range(members)],
                    }
