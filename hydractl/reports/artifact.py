"""The JSON form of a report, `hydractl-report`: writes it, reads it strictly, and joins several."""

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hydractl.artifacts import found_references, open_artifact
from hydractl.errors import ArtifactError
from hydractl.evaluation.results import DataInfo, Results, SystemResult
from hydractl.reports.verdict import verdicts
from hydractl.schema import document
from hydractl.systems.system import plain

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
            taken = label in models and models[label] != system
            models[f"{label} ({_stem(name)})" if taken else label] = system
    for name, report in others:
        ours, theirs = first.options.get(DEFINING), report.options.get(DEFINING)
        if ours != theirs:
            raise ArtifactError(
                f"{name}: {DEFINING} is {theirs}, in {first_name} {ours}: evaluate again by one of them"
            )
        if report.data != first.data:
            notes.append(f"{name} and {first_name} are not of the same data: compare with care")
    complete = all(report.complete for report in reports.values())
    return replace(first, models=models, complete=complete, command=None), notes


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
