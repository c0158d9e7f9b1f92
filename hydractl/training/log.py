"""The record of a run: one JSON object a line, and the curve drawn from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.checkpoint.output import append_bytes, write_atomically, write_bytes
from hydractl.style import COLORS, SMALL, styled, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


#: What a curve shows over the steps: a key of entries, and what it is.
CURVES = {
    "loss": "training loss (nats)",
    "nll": "validation NLL (nats)",
    "accuracy": "validation accuracy",
    "lr": "learning rate",
}


def plot_curve(entries: list[dict[str, Any]], path: Path) -> bool:
    """Draws what entries hold of `CURVES` over the steps; False where matplotlib is not installed."""
    try:
        import matplotlib as mpl  # noqa: F401
    except ImportError:
        return False
    figure = _curve(entries)
    with write_atomically(path, force=True) as file:
        figure.savefig(file, format="png", dpi=150)
    return True


@styled
def _curve(entries: list[dict[str, Any]]) -> Figure:
    from matplotlib.figure import Figure

    shown = {key: title for key, title in CURVES.items() if any(key in entry for entry in entries)}
    figure = Figure(figsize=(2 * SMALL[0], 0.4 + 1.5 * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for place, (axes, (key, title)) in enumerate(zip(panels, shown.items(), strict=True)):
        points = [(entry["step"], entry[key]) for entry in entries if key in entry]
        axes.plot(*zip(*points, strict=True), color=COLORS[place], marker="o" if len(points) < 30 else "", markersize=4)
        axes.set_title(title)
    panels[-1].set_xlabel("step")
    whole_numbers(panels[-1].xaxis)
    return figure


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry) + "\n"
