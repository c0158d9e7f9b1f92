"""The subcommands of `hydractl`, in the order of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from hydractl.cli.derive import Command
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.steps.extract_circuit import Extracted


def _the_circuit(extracted: Extracted) -> dict[str, Any]:
    (artifact,) = extracted.to_json().values()
    return artifact


def _one_objective(values: Mapping[str, Any]) -> None:
    if "," in (values["objective"] or ""):
        raise OptionError(f"`objective` {values['objective']} makes several circuits: name a file as `output`")


STEPS = "Step by step"
COMMANDS = (
    Command("build", "build:Build", panel="Start"),
    Command(
        "score-heads", "score_heads:ScoreHeads", output="scores.json", artifact=methodcaller("to_json"), panel=STEPS,
    ),
    Command(
        "extract-circuit", "extract_circuit:ExtractCircuit", "circuit.json", panel=STEPS,
        artifact=_the_circuit, may_stream=_one_objective,
    ),
    Command("prune", "prune:Prune", output=".", panel=STEPS),
    Command("select", "select:Select", artifact=methodcaller("to_json"), panel=STEPS),
    Command("finetune", "finetune:Finetune", writes=True, panel=STEPS),
    Command("fuse", "fuse:Fuse", writes=True, panel=STEPS),
    Command("evaluate", "evaluate:Evaluate"),
    Command("calibrate", "calibrate:Calibrate", writes=True, panel=STEPS),
    Command("report", "report:Report"),
    Command("inspect", "inspect:Inspect", panel="Start"),
    Command("predict", "predict:Predict", csv=methodcaller("to_csv"), panel="Start"),
    Command("monitor", "monitor:MonitorInputs"),
    Command("export", "export:Export", writes=True, panel=STEPS),
    Command("list families", "listings:ListFamilies", panel="Look up"),
    Command("list recipes", "listings:ListRecipes", panel="Look up"),
    Command("list suites", "listings:ListSuites", panel="Look up"),
    Command("analyse heads", "analyse_heads:AnalyseHeads"),
    Command("analyse speed", "analyse_speed:AnalyseSpeed"),
    Command("guide", "guide:Guide", panel="Look up"),
)  # fmt: skip
