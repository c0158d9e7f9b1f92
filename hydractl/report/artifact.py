"""The report of an evaluation in its JSON form, `hydractl-report`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.data.sources import Samples
from hydractl.evaluation.results import ModelResult
from hydractl.evaluation.run import EvaluationData

FORMAT = "hydractl-report"
VERSION = 1


def report_json(
    results: Mapping[str, ModelResult],
    checkpoints: Mapping[str, Checkpoint],
    data: EvaluationData,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """The report as plain JSON: every number of every model, and what it was measured on.

    Args:
        results: by the models' names in the report.
        checkpoints: likewise.
        options: those that determine the numbers.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "models": {
            name: {
                "model": {"reference": checkpoints[name].name, "sha256": identity(checkpoints[name])},
                **result.to_json(),
            }
            for name, result in results.items()
        },
        "data": {
            "id": _data_json(data.id),
            "ood": {name: _data_json(entry.samples) for name, entry in data.ood.items()},
        },
        "options": {name: value for name, value in options.items() if value is not None},
        "hydractl": version("hydractl"),
    }


def _data_json(samples: Samples) -> dict[str, Any]:
    columns = samples.chosen_columns
    return {"name": samples.name, "samples": len(samples), "columns": list(columns.inputs) if columns else None}
