"""What a trunk costs in uncertainty: accuracy, NLL, ECE and AUROC of a fused network by the depth of its trunk.

    python trunk_depth.py MODEL BUDGET CIRCUIT,CIRCUIT,CIRCUIT DEPTH,DEPTH,... ID_DATA OOD_DATA,OOD_DATA,... OUT

The last circuit is the common one: below the trunk's depth every member drops what it drops. Nothing is trained.
Prints a Markdown table; OUT keeps the members, the fused files, report.json and the picture trunk_depth.png.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def hydractl(*arguments: object) -> None:
    """Runs a command, its own output aside."""
    command = [sys.executable, "-m", "hydractl", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def fused(model: str, budget: int, circuits: Sequence[str], depth: int, out: Path) -> Path:
    """A Hydra of one member per circuit over a trunk of this many layers."""
    share = ["--trunk", depth, "--common-circuit", circuits[-1]] if depth else []
    members = [out / f"trunk{depth}-member{number}.safetensors" for number in range(len(circuits))]
    for circuit, member in zip(circuits, members, strict=True):
        hydractl("prune", model, "--method", "circuit", "--circuit", circuit, "--budget", budget, *share,
                 "-o", member, "--force")  # fmt: skip
    hydra = out / f"trunk{depth}.safetensors"
    hydractl("fuse", *members, "-o", hydra, "--force")
    return hydra


def figures(model: Mapping[str, Any], dense: Mapping[str, Any]) -> dict[str, float]:
    """The figures of one line of the table; AUROC is the mean over OOD sets."""
    aurocs = [entry["auroc"] for entry in model["ood"].values()]
    costs = {
        f"{title} / dense": model["cost"][key] / dense["cost"][key]
        for title, key in (("multiply-adds", "multiply_adds"), ("performed", "performed"))
    }
    names = {"accuracy": "accuracy", "NLL": "nll", "ECE": "ece"}
    return {title: model["id"][key] for title, key in names.items()} | {"AUROC": sum(aurocs) / len(aurocs)} | costs


def draw(depths: Sequence[int], rows: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """One panel per figure over the trunk's depth, the dense network as a line across."""
    from matplotlib import pyplot

    titles = [title for title in rows["dense"] if title != "multiply-adds / dense"]
    _, panels = pyplot.subplots(1, len(titles), figsize=(3 * len(titles), 3), layout="constrained")
    for panel, title in zip(panels, titles, strict=True):
        panel.plot(depths, [rows[f"trunk {depth}"][title] for depth in depths], marker="o", label="Hydra")
        panel.axhline(rows["dense"][title], color="grey", linestyle="--", label="dense")
        panel.set(xlabel="layers in the trunk", title=title, xticks=depths)
    panels[0].legend()
    pyplot.savefig(path, dpi=120)


def main() -> None:
    """Makes, measures and draws."""
    model, budget, circuits, depths, id_data, ood_data, folder = sys.argv[1:]
    out, trunks = Path(folder), [int(depth) for depth in depths.split(",")]
    out.mkdir(parents=True, exist_ok=True)
    hydras = {f"trunk {depth}": fused(model, int(budget), circuits.split(","), depth, out) for depth in trunks}
    report = out / "report.json"
    hydractl("evaluate", f"dense={model}", *(f"{name}={path}" for name, path in hydras.items()), "--id-data", id_data,
             *(part for source in ood_data.split(",") for part in ("--ood-data", source)),
             "--json", report, "--force")  # fmt: skip
    measured = json.loads(report.read_text())["models"]
    rows = {name: figures(result, measured["dense"]) for name, result in measured.items()}
    print(f"| | {' | '.join(rows['dense'])} |\n{'|---' * (len(rows['dense']) + 1)}|")
    for name, values in rows.items():
        print(f"| {name} | {' | '.join(f'{value:.4f}' for value in values.values())} |")
    draw(trunks, rows, out / "trunk_depth.png")


if __name__ == "__main__":
    main()
