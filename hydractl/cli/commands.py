"""The subcommands of `hydractl`, in the order of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydractl.cli.derive import Command
from hydractl.errors import OptionError
from hydractl.steps.analyse_budgets import analyse_budgets
from hydractl.steps.analyse_heads import analyse_heads
from hydractl.steps.analyse_members import analyse_members
from hydractl.steps.analyse_noise import analyse_noise
from hydractl.steps.benchmark import benchmark
from hydractl.steps.build import build
from hydractl.steps.calibrate import calibrate
from hydractl.steps.circuit_overlap import circuit_overlap
from hydractl.steps.evaluate import evaluate
from hydractl.steps.export import export
from hydractl.steps.extract_circuit import extract_circuit
from hydractl.steps.extracted import Extracted
from hydractl.steps.families import families
from hydractl.steps.finetune import finetune
from hydractl.steps.fuse import fuse
from hydractl.steps.guide import guide
from hydractl.steps.inspect import inspect
from hydractl.steps.predict import Predictions, predict
from hydractl.steps.prune import prune
from hydractl.steps.recipes import list_recipes, show_recipe
from hydractl.steps.report import report
from hydractl.steps.score_heads import HeadScores, score_heads
from hydractl.steps.select import select
from hydractl.steps.suites import list_suites, show_suite


def _the_circuit(extracted: Extracted) -> dict[str, Any]:
    (artifact,) = extracted.to_json().values()
    return artifact


def _one_objective(values: Mapping[str, Any]) -> None:
    if "," in values["objective"]:
        raise OptionError(f"`objective` {values['objective']} makes several circuits: name a file as `output`")


COMMANDS = (
    Command("build", build, writes=True),
    Command("score-heads", score_heads, output="scores.json", artifact=HeadScores.to_json),
    Command("extract-circuit", extract_circuit, "circuit.json", artifact=_the_circuit, may_stream=_one_objective),
    Command("circuit overlap", circuit_overlap),
    Command("prune", prune, output="."),
    Command("select", select, output=None),
    Command("finetune", finetune, writes=True),
    Command("fuse", fuse, writes=True),
    Command("evaluate", evaluate),
    Command("calibrate", calibrate, writes=True),
    Command("report", report),
    Command("inspect", inspect),
    Command("families", families),
    Command("predict", predict, csv=Predictions.to_csv),
    Command("benchmark", benchmark),
    Command("export", export, writes=True),
    Command("recipes list", list_recipes),
    Command("recipes show", show_recipe),
    Command("suites list", list_suites),
    Command("suites show", show_suite),
    Command("analyse budgets", analyse_budgets),
    Command("analyse heads", analyse_heads),
    Command("analyse members", analyse_members),
    Command("analyse noise", analyse_noise),
    Command("guide", guide),
)
