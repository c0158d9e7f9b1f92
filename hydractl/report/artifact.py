"""The report of an evaluation in its JSON form, `hydractl-report`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hydractl.artifacts import found_references, open_artifact
from hydractl.errors import ArtifactError
from hydractl.report.form import ReportFile
from hydractl.report.verdict import with_verdicts

FORMAT = "hydractl-report"
VERSION = 1
DEFINING = ("ood_score", "style")


def report_json(
    models: Mapping[str, Mapping[str, Any]], data: Mapping[str, Any], options: Mapping[str, Any], complete: bool = True
) -> dict[str, Any]:
    """The report as plain JSON: every number of every system, and what it was measured on.

    Args:
        models: the systems' entries by their names in the report.
        data: names and sizes of the sets.
        options: those that determine the numbers; None stands for one that was not used and is left out.
        complete: False where the evaluation was interrupted.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "complete": complete,
        "models": with_verdicts(models),
        "data": dict(data),
        "options": {name: value for name, value in options.items() if value is not None},
        "hydractl": version("hydractl"),
    }


def read_report(source: str) -> dict[str, Any]:
    """The report in a file, or on standard input where that is `-`.

    Raises:
        ArtifactError: not a report, or one without the numbers of a system.
    """
    document = open_artifact(source, FORMAT, VERSION)
    document.read(ReportFile)
    content = {"data": {}, "options": {}, "complete": True, "hydractl": "unknown", **document.fields}
    return found_references({**content, "data": {"ood": {}, **content["data"]}}, source)


def join_reports(reports: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """One report with the systems of all, and what a reader should know of how they differ.

    Differences are kept where they are to the first system of the joined report.

    Args:
        reports: by what messages call them, at least one.

    Raises:
        ArtifactError: two reports define their numbers differently.
    """
    (first_name, first), *others = reports.items()
    models: dict[str, Any] = {}
    notes: list[str] = []
    for name, report in reports.items():
        own, left = _compared_with(next(iter(first["models"].values())), report["models"])
        if left:
            notes.append(f"{name}: its differences are to {left}, which is not the first system here: left out")
        for system, entry in own.items():
            taken = system in models and models[system] != entry
            models[f"{system} ({_stem(name)})" if taken else system] = entry
    for name, report in others:
        for key in DEFINING:
            ours, theirs = (one.get("options", {}).get(key) for one in (first, report))
            if ours != theirs:
                raise ArtifactError(f"{name}: {key} is {theirs}, in {first_name} {ours}: evaluate again by one of them")
        if report.get("data") != first.get("data"):
            notes.append(f"{name} and {first_name} are not of the same data: compare with care")
    complete = all(report.get("complete", True) for report in reports.values())
    joined = {**first, "models": with_verdicts(models), "complete": complete}
    joined.pop("command", None)
    return joined, notes


def _compared_with(first: Mapping[str, Any], models: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """A report's entries without differences to another system than this, and the name of that system if there are."""
    name, own = next(iter(models.items()))
    if all(own.get(key) == first.get(key) for key in ("id", "ood")):
        return models, ""
    found = {system: {k: part for k, part in entry.items() if k != "difference"} for system, entry in models.items()}
    return found, name if found != models else ""


def _stem(name: str) -> str:
    path = Path(name)
    return path.parent.name if path.name == "report.json" and path.parent.name else path.stem
