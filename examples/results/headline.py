"""Draws README's picture of results: `python headline.py` in this folder reads headline.csv and writes headline.svg.

The numbers are those of vit-tiny.md.
"""

import csv
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
MARKS = {"auroc": ("o", "MSP"), "auroc_mahalanobis": ("D", "Mahalanobis")}
#: Where the name of a system stands beside its mark, in points.
LEFT, RIGHT, UP = (-8, -3), (8, -3), (8, 1)
OFFSETS = {
    "network": LEFT,
    "trained on": LEFT,
    "taught": LEFT,
    "mean of three": LEFT,
    "Deep Ensemble": LEFT,
    "Hydra": UP,
    "Hydra of circuits": LEFT,
    "Hydra of the mean's circuits": LEFT,
    "Hydra auroc": (8, -8),
    "Hydra of circuits auroc": (-8, 0),
    "Hydra of the mean's circuits auroc": (-8, -8),
    "taught auroc_mahalanobis": (-8, 1),
    "mean of three auroc_mahalanobis": RIGHT,
    "mean of three auroc": RIGHT,
    "trained on auroc_mahalanobis": (-8, -8),
    "network auroc_mahalanobis": (-8, 1),
}


def draw(rows: list[dict[str, str]]) -> Figure:
    """Returns two panels: NLL and mean AUROC against the cost, each with a mark for every system."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    nll, auroc = figure.subplots(1, 2)
    for row in rows:
        _mark(nll, row, "nll", "o")
        for column, (mark, _) in MARKS.items():
            if row[column]:
                _mark(auroc, row, column, mark)
    for mark, label in MARKS.values():
        auroc.plot([], [], mark, color="#1f5fa8", label=label)
    auroc.legend(loc="lower right", frameon=False)
    for axes, label in ((nll, "NLL (lower is better)"), (auroc, "mean AUROC, % (higher is better)")):
        axes.set(xlabel="multiply-adds, network = 1", ylabel=label, xlim=(0.2, 3.4))
        axes.margins(y=0.15)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _mark(axes: Axes, row: dict[str, str], column: str, mark: str) -> None:
    name, x, y = row["system"], float(row["cost"]), float(row[column])
    axes.plot(x, y, mark, color="#c0392b" if name.startswith("Hydra") else "#1f5fa8")
    dx, dy = OFFSETS.get(f"{name} {column}", OFFSETS[name])
    axes.annotate(name, (x, y), (dx, dy), textcoords="offset points", ha="right" if dx < 0 else "left", fontsize=8)


if __name__ == "__main__":
    mpl.rcParams["svg.hashsalt"] = "hydractl"
    with (HERE / "headline.csv").open() as file:
        draw(list(csv.DictReader(file))).savefig(HERE / "headline.svg", metadata={"Date": None})
