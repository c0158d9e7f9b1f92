"""The record of a run: one JSON object a line, and the curve drawn from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydractl.checkpoint.atomic import append_bytes, write_atomically, write_bytes

LOG_NAME = "log.jsonl"


class Log:
    """A JSON-lines file; a run that resumes drops what it had written beyond the step it resumes from."""

    def __init__(self, path: Path | None, resume_step: int) -> None:
        """
        Args:
            path: the file, or None for a process that writes nothing.
            resume_step: the first step still to come; 0 starts afresh.
        """
        self._path = path
        kept = [entry for entry in read_log(path) if entry["step"] <= resume_step] if path and resume_step else []
        if path is not None:
            write_bytes(path, "".join(map(_line, kept)).encode(), force=True)

    def write(self, entry: Mapping[str, Any]) -> None:
        """Adds one line."""
        if self._path is not None:
            append_bytes(self._path, _line(entry).encode())


def read_log(path: Path) -> list[dict[str, Any]]:
    """The entries of a log up to the first that is none, such as a last line that was cut short by a crash."""
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(entry, dict) or type(entry.get("step")) is not int:
            break
        entries.append(entry)
    return entries


def plot_curve(entries: list[dict[str, Any]], path: Path) -> bool:
    """Draws loss, validation accuracy and learning rate over steps; False where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(7, 6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(3, 1, sharex=True)
    for axis, (key, label) in zip(
        axes, (("loss", "training loss"), ("nll", "validation NLL"), ("lr", "lr")), strict=True
    ):
        points = [(entry["step"], entry[key]) for entry in entries if key in entry]
        axis.plot([step for step, _ in points], [value for _, value in points], marker="." if key == "nll" else "")
        axis.set_ylabel(label)
    accuracy = [(entry["step"], entry["accuracy"]) for entry in entries if "accuracy" in entry]
    if accuracy:
        twin = axes[1].twinx()
        twin.plot([step for step, _ in accuracy], [value for _, value in accuracy], "C1.-")
        twin.set_ylabel("accuracy", color="C1")
    axes[-1].set_xlabel("step")
    with write_atomically(path, force=True) as file:
        figure.savefig(file, format="png")
    return True


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry) + "\n"
