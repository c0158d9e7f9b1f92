"""Draws README's picture of Hydras without training: `python front.py [REPORT.json [SYSTEM ...]]` writes front.svg.

The numbers are those of refit.md, in front.csv. A report replaces them, or some of its systems, the network first: the
table.json of tables/front.py, or front/report.json of `hydractl build`.
"""

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
#: Inks that show on white and on black.
INK, LINE, HYDRA = "#7d8590", "#7d859055", "#d9534f"
STYLE = {"svg.hashsalt": "hydractl", "svg.fonttype": "none", "font.size": 10, "savefig.facecolor": "none"}
STYLE |= dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
FIELDS = ("system", "cost", "nll", "nll_low", "nll_high", "auroc", "auroc_low", "auroc_high")
PANELS = (("nll", "NLL", "lower is better"), ("auroc", "mean AUROC of the MSP (%)", "higher is better"))


def rows_of(report: dict[str, Any], names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Returns each system's cost, numbers, and the 95 % intervals of their paired differences to the first.

    Args:
        names: of the systems; all of the report if there are none.
    """
    models, rows = {name: report["models"][name] for name in names or report["models"]}, []
    first = next(iter(models.values()))["cost"]["multiply_adds"]
    for name, model in models.items():
        row = {"system": name, "cost": model["cost"]["multiply_adds"] / first}
        places = {"nll": ("id", "nll", 1), "auroc": ("ood_means", "auroc", 100)}
        for key, (group, metric, scale) in places.items():
            numbers, gaps = model[group], model.get("difference", {}).get(group, {})
            if key == "auroc":
                numbers, gaps = numbers["all"], gaps.get("all", {})
            low, high = gaps.get(metric, {}).get("interval", (0, 0))
            row |= {key: scale * numbers[metric], f"{key}_low": scale * low, f"{key}_high": scale * high}
        rows.append(row)
    return rows


def draw(rows: list[dict[str, str]]) -> Figure:
    """Returns two panels against the cost: a point for each system, with the interval of its gain over the network."""
    figure = Figure(figsize=(9, 3.3), layout="constrained")
    for axes, (key, title, better) in zip(figure.subplots(1, 2), PANELS, strict=True):
        _draw(axes, rows, key)
        axes.set_title(f"{title}: {better}", fontsize=10, loc="left")
        axes.set(xlabel="multiply-adds, the network's = 1", facecolor="none")
        axes.margins(y=0.2)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _draw(axes: Axes, rows: list[dict[str, str]], key: str) -> None:
    systems = {row["system"]: {name: float(row[name]) for name in FIELDS[1:]} for row in rows}
    network, ensemble = systems.pop("network"), systems.pop("ensemble", None)
    at, hydras, beside = network[key], [*systems.values()], ["network" in name for name in systems]
    axes.axhline(at, color=INK, linestyle=(0, (4, 4)), linewidth=1)
    axes.plot(network["cost"], at, "o", color=INK, markersize=9)
    axes.annotate("network", (1, at), (-4, 8), textcoords="offset points", fontsize=9)
    axes.plot([row["cost"] for row in hydras], [row[key] for row in hydras], color=LINE, linewidth=1.5)
    if ensemble is not None:
        axes.plot([ensemble["cost"]] * 2, [at + ensemble[f"{key}_{end}"] for end in ("low", "high")], color=INK)
        axes.plot(ensemble["cost"], ensemble[key], "s", color=INK, markersize=8)
        at_side = {"xytext": (-8, -3), "textcoords": "offset points", "ha": "right", "fontsize": 9}
        axes.annotate("Deep Ensemble, trained on", (ensemble["cost"], ensemble[key]), **at_side)
    for row, hollow in zip(hydras, beside, strict=True):
        axes.plot([row["cost"]] * 2, [at + row[f"{key}_low"], at + row[f"{key}_high"]], color=HYDRA, linewidth=2)
        axes.plot(row["cost"], row[key], "D" if hollow else "o", color=HYDRA, markersize=8)
    if any(beside) and key == "auroc":
        for mark, label in (("o", "three pruned members"), ("D", "with the network as a fourth")):
            axes.plot([], [], mark, color=HYDRA, label=label)
        axes.legend(loc="center right", bbox_to_anchor=(1, 0.35), frameon=False, fontsize=8)


if __name__ == "__main__":
    if sys.argv[1:]:
        with (HERE / "front.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, FIELDS, lineterminator="\n")
            table.writeheader()
            table.writerows(
                {name: value if name == "system" else f"{value:.4f}" for name, value in row.items()}
                for row in rows_of(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2:])
            )
    with (HERE / "front.csv").open() as file, mpl.rc_context(STYLE):
        draw(list(csv.DictReader(file))).savefig(HERE / "front.svg", metadata={"Date": None}, transparent=True)
