"""Descriptions of the artifacts that hydractl writes, of every kind, as facts and lines for people.

A kind imports what reads it when it is asked, so that `inspect` starts at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.artifacts import RECIPE, ModelReference, open_artifact
from hydractl.checkpoint.heads import Head, in_candidate_order
from hydractl.errors import ArtifactError
from hydractl.schema import Items, Origin, Schema, read_json, shown
from hydractl.text import aligned, printable

if TYPE_CHECKING:
    from hydractl.training.recipe import Recipe

BUILD, BUILD_VERSION = "hydractl-build", 1
WIDTH = 80  # of tables: any terminal has it


@dataclass(frozen=True)
class Described:
    """An artifact as people read it: its kind in words, facts by name, and further lines."""

    name: str
    kind: str
    facts: Mapping[str, object]
    body: Sequence[str] = ()

    def lines(self) -> Iterator[str]:
        """Yields the lines that `hydractl inspect` prints."""
        width = max((len(name) for name in self.facts), default=0)
        yield f"{printable(self.name)}: {self.kind}"
        yield from (f"  {name:<{width}}  {printable(str(fact))}" for name, fact in self.facts.items())
        yield from map(printable, self.body)


@dataclass(frozen=True)
class ArtifactKind:
    """A kind of JSON artifact: its `format`, its description in words, and the function that describes a file."""

    format: str
    help: str
    describe: Callable[[str], tuple[Mapping[str, object], Sequence[str]]]


def describe_artifact(path: Path) -> Described:
    """Returns the description of an artifact.

    Raises:
        ArtifactError: the file is none of ours, or damaged.
        OptionError: the file is no valid recipe.
    """
    name = str(path)
    if path.suffix == RECIPE:
        from hydractl.training.recipe import read_recipe, to_toml

        recipe = read_recipe(path)
        return Described(name, "a recipe for fine-tuning", _recipe(recipe), to_toml(recipe).splitlines())
    origin = Origin(name, ArtifactError, "name a model, or an artifact of hydractl")
    format_name = read_json(path, origin).fields.get("format")
    kind = next((kind for kind in KINDS if kind.format == format_name), None)
    if kind is None:
        what = "missing" if format_name is None else shown(format_name)
        raise origin.refusal(f"format is {what}, known are {', '.join(kind.format for kind in KINDS)}")
    facts, body = kind.describe(name)
    return Described(name, kind.help, facts, body)


class _BuildFile(Schema, extra="ignore"):
    steps: Items[str]
    hydra: str
    verdict: str | None = None
    advice: Items[str] = ()


def _circuit(source: str) -> tuple[Mapping[str, object], Sequence[str]]:
    from hydractl.circuit.head_files import read_circuit
    from hydractl.reports.head_maps import heat_map

    circuit = read_circuit(source)
    order = list(map(_head, circuit.ranking))
    towers = circuit.model.towers if circuit.model else {}
    facts = {
        "objective": circuit.objective or "none: written by hand",
        "heads": f"{len(order)} ranked" + (f" of {sum(map(prod, towers.values()))}" if towers else ""),
        **_made_of(circuit.model),
        "dropped first": ", ".join(order[:8]) + (" ..." if len(order) > 8 else ""),
    }
    places: dict[Head, float] = {head: place for place, head in enumerate(circuit.ranking)}
    body: list[str] = []
    for tower, (layers, heads) in towers.items():
        rows = [[places.get(Head(tower, layer, head), len(order)) for head in range(heads)] for layer in range(layers)]
        body += ["", f"the step at which a head is dropped, {len(order)} for kept heads", *heat_map(tower, rows)]
    return facts, body


def _scores(source: str) -> tuple[Mapping[str, object], Sequence[str]]:
    from hydractl.circuit.head_files import read_scores
    from hydractl.reports.head_maps import heat_map

    scores = read_scores(source)
    facts = {"method": scores.method or "none: written by hand", **_made_of(scores.model)}
    body = [line for tower, rows in scores.towers.items() if any(rows) for line in ("", *heat_map(tower, rows))]
    return facts, body


def _selection(source: str) -> tuple[Mapping[str, object], Sequence[str]]:
    from hydractl.selection.selection_file import read_selection

    selection = read_selection(source)
    facts: dict[str, object] = {}
    for number, member in enumerate(selection.members):
        dropped = ", ".join(map(_head, in_candidate_order(member.heads)))
        made = f"the file {member.reference}" if member.reference else f"without {dropped}" if dropped else "unchanged"
        facts[f"member {number}"] = f"{member.candidate or 'a member'}, {made}"
    return {**facts, **_made_of(selection.model)}, ()


def _report(source: str) -> tuple[Mapping[str, object], Sequence[str]]:
    from hydractl.reports.page import read_report
    from hydractl.reports.table import result_table, table_lines
    from hydractl.reports.verdict import verdicts

    report = read_report(source)
    facts = {
        "systems": ", ".join(report.models),
        "ID data": report.data.id.name if report.data.id else "unknown",
        "OOD data": ", ".join(report.data.ood) or "none",
        "complete": "yes" if report.complete else "no: it was interrupted",
        "better in": "; ".join(
            f"{name}: {', '.join(judgement.metric for judgement in verdict.of('better')) or 'nothing beyond chance'}"
            for name, verdict in verdicts(report.models).items()
        )
        or "nothing was compared",
    }
    return facts, ["", *table_lines(result_table(report), WIDTH)]


def _build(source: str) -> tuple[Mapping[str, object], Sequence[str]]:
    build = open_artifact(source, BUILD, BUILD_VERSION).read(_BuildFile)
    facts = {"Hydra": os.path.normpath(Path(source).parent / build.hydra), "verdict": build.verdict or "not finished"}
    return facts, [*(f"  {line}" for line in build.advice), "", "steps", *(f"  {line}" for line in build.steps)]


def _recipe(recipe: Recipe) -> Mapping[str, object]:
    from hydractl.training.recipe import Recipe, recipe_json

    defaults = recipe_json(Recipe())
    changed = [name for name, value in recipe_json(recipe).items() if value != defaults[name] and name != "source"]
    return {"source": recipe.source or "not named", "not the default": ", ".join(changed) or "nothing"}


def _made_of(model: ModelReference | None) -> Mapping[str, object]:
    return {} if model is None else {"model": f"{model.reference} ({model.sha256[:12]}...)"}


def _head(head: Head) -> str:
    return f"{head.tower} {head.layer}.{head.head}"


#: The JSON artifacts that `inspect` describes.
KINDS = (
    ArtifactKind("hydractl-circuit", "a circuit: heads in the order in which they are dropped", _circuit),
    ArtifactKind("hydractl-scores", "head scores", _scores),
    ArtifactKind("hydractl-selection", "a selection of members", _selection),
    ArtifactKind("hydractl-report", "a report of an evaluation", _report),
    ArtifactKind(BUILD, "a build: its steps and its result", _build),
)


def curve_lines(selection: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line for the network itself, and one for each member that joined with the numbers of all so far.

    Args:
        selection: a `hydractl-selection` artifact.
    """
    from hydractl.tasks.all_tasks import TASKS

    baseline, chosen = selection["baseline"], len(selection["members"])
    task = next(row for row in TASKS if row.key in baseline)
    rows = [("network", baseline), *((step["candidate"], step) for step in selection["curve"])]
    width = max(len(name) for name, _ in rows)
    lines = [["  M    candidate", task.measured, task.loss_name, "multiply-adds"]]
    for number, (name, row) in enumerate(rows):
        mark = "*" if number == chosen else " "
        lines.append(
            [
                f"{number or '':>3} {mark}  {name:<{width}}",
                f"{100 * row[task.key]:.2f} %",
                f"{row['nll']:.4f}",
                f"{row['multiply_adds'] / baseline['multiply_adds']:.2f}x",
            ]
        )
    return aligned(lines)
