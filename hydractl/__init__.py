"""Post-hoc Hydra ensembles: a trained transformer classifier becomes one network that knows when it is wrong.

>>> import hydractl
>>> hydra = hydractl.load("hydra")
>>> hydra.members
2

Every subcommand of the command line is a function here, of the same name and options. Models are given as paths, as
what `load` returns, or as the result of a step before.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hydractl.inputs.models import load as load
    from hydractl.inputs.models import save as save
    from hydractl.inputs.stream_monitor import Monitor as Monitor
    from hydractl.steps.analyse import analyse_heads as analyse_heads
    from hydractl.steps.analyse import analyse_speed as analyse_speed
    from hydractl.steps.build import build as build
    from hydractl.steps.calibrate import calibrate as calibrate
    from hydractl.steps.check import check as check
    from hydractl.steps.evaluate import evaluate as evaluate
    from hydractl.steps.export import export as export
    from hydractl.steps.extract_circuit import extract_circuit as extract_circuit
    from hydractl.steps.finetune import finetune as finetune
    from hydractl.steps.fuse import fuse as fuse
    from hydractl.steps.guide import guide as guide
    from hydractl.steps.monitor import monitor as monitor
    from hydractl.steps.predict import predict as predict
    from hydractl.steps.prune import prune as prune
    from hydractl.steps.score_heads import score_heads as score_heads
    from hydractl.steps.select import select as select
    from hydractl.steps.show import inspect as inspect
    from hydractl.steps.show import list_families as list_families
    from hydractl.steps.show import list_recipes as list_recipes
    from hydractl.steps.show import list_suites as list_suites
    from hydractl.steps.show import report as report

#: Turns off what libraries send home: the hub client beside each request, `datasets` for each local table, onnxruntime
#: for each graph. They read these as they are imported. What the user has set wins.
_SILENCE = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_UPDATE_DOWNLOAD_COUNTS": "0", "ORT_DISABLE_TELEMETRY": "1"}
for _name, _value in _SILENCE.items():
    os.environ.setdefault(_name, _value)

#: The names in each file. None is imported before it is asked for: `hydractl --help` imports this package too.
_FILES = {
    "inputs.models": ("load", "save"),
    "inputs.stream_monitor": ("Monitor",),
    "steps.analyse": ("analyse_heads", "analyse_speed"),
    "steps.show": ("inspect", "list_families", "list_recipes", "list_suites", "report"),
}
_ALONE = (
    "build", "calibrate", "check", "evaluate", "export", "extract_circuit", "finetune", "fuse",
    "guide", "monitor", "predict", "prune", "score_heads", "select",
)  # fmt: skip
_PLACES = {name: f"steps.{name}" for name in _ALONE} | {name: file for file, names in _FILES.items() for name in names}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(f"hydractl.{_PLACES[name]}"), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("hydractl")
    if name == "process":
        return import_module("hydractl.process")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
