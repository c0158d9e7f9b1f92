"""The loss of a network with each head that is dropped; the paper's B.3.

    python analyses/budgets.py MODEL [FILE...] --circuit avg.json --scores taylor.json --budgets 2,4,6,8/layer \
      --id-data digits:test [--ood-data near/a=a ...]

Budgets are numbers of heads of the whole network, or of each layer. Files are members that exist already, such as
fine-tuned ones. Detection is by the MSP, in the mean over the OOD sets.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from shared import Analysis, arguments, show

import hydractl
from hydractl.drawing import INK, Key, explained, line, line_keys, panels, styled, whole_numbers
from hydractl.text import aligned

DENSE, PER_LAYER = "dense", "/layer"
MEANS = ("auroc", "fpr95", "aupr_out")
#: Key of a point, name, and whether it is a share.
COLUMNS = (
    ("accuracy", "accuracy", True),
    ("nll", "NLL", False),
    ("mean_auroc", "AUROC", True),
    ("mean_fpr95", "FPR95", True),
    ("mean_aupr_out", "AUPR out", True),
)
File = str | Path


def cut(model: Any, file: File, number: int, per_layer: bool) -> Any:
    """Returns the network without the heads that a circuit drops first, or that have the lowest scores."""
    content = json.loads(Path(file).read_text(encoding="utf-8"))
    if "steps" not in content:
        layers = sum(map(len, content["towers"].values()))
        scope, budget = ("layer", number * layers) if per_layer else ("global", number)
        return hydractl.prune(model, method="scores", scores=file, budget=budget, scope=scope)
    if not per_layer:
        return hydractl.prune(model, method="circuit", circuit=file, budget=number)
    layers = {}
    for step in content["steps"]:
        layers.setdefault((step["tower"], step["layer"]), []).append(step)
    if (fewest := min(map(len, layers.values()))) < number:
        raise SystemExit(f"{file}: ranks {fewest} heads of some layer, not {number}: extract more")
    steps = [step for each in layers.values() for step in each[:number]]
    with tempfile.TemporaryDirectory() as folder:
        chosen = Path(folder) / "circuit.json"
        chosen.write_text(json.dumps(content | {"steps": steps}), encoding="utf-8")
        return hydractl.prune(model, method="circuit", circuit=chosen, budget=len(steps))


def budgets(
    model: Any,
    members: Sequence[File] = (),
    *,
    circuit: Sequence[File] = (),
    scores: Sequence[File] = (),
    budgets: str = "",
    **data: Any,
) -> Analysis:
    """Measures the network, its pruned versions and existing members, by the options of data of `evaluate`."""
    per_layer, numbers = budgets.endswith(PER_LAYER), budgets.removesuffix(PER_LAYER)
    systems: dict[str, Any] = {DENSE: model}
    methods = [DENSE]
    for file in (*circuit, *scores):
        content = json.loads(Path(file).read_text(encoding="utf-8"))
        for number in map(int, numbers.split(",")):
            methods.append(content.get("objective") or content.get("method") or Path(file).stem)
            systems[f"{file} {number}"] = cut(model, file, number, per_layer)
    if not (circuit or scores or members):
        raise SystemExit("nothing to compare with the network: name members, or --circuit or --scores with --budgets")
    for member in members:
        methods.append(Path(member).stem)
        systems[str(member)] = member
    report = hydractl.evaluate(systems, ood_score="msp" if data.get("ood_data") else None, bootstrap=0, **data)
    heads = [sum(map(len, kept_heads(system))) for system in systems.values()]
    points = []
    for method, left, entry in zip(methods, heads, report.models.values(), strict=True):
        means = entry["ood_means"].get("all", {})
        numbers_of = {"accuracy": entry["id"]["accuracy"], "nll": entry["id"]["nll"], "ood": entry["ood"]}
        means = {f"mean_{name}": means[name] for name in MEANS if means}
        points.append({"method": method, "dropped": heads[0] - left, **numbers_of, **means})
    return Analysis(list(lines(points)), {"points": points}, lambda: picture(points))


def kept_heads(model: Any) -> Iterator[Sequence[int]]:
    """Yields the heads that a network of one member keeps in each layer."""
    towers = hydractl.inspect(model).to_json()["towers"]
    for tower in towers.values():
        yield from (kept for (kept,) in tower["kept_heads"])


def columns_of(points: Sequence[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    return [column for column in COLUMNS if column[0] in points[0]]


def lines(points: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yields a line for each method and budget."""
    columns = columns_of(points)
    rows = [["", "dropped", *(name for _, name, _ in columns)]]
    for point in points:
        numbers = (f"{100 * point[key]:.2f} %" if share else f"{point[key]:.4f}" for key, _, share in columns)
        rows.append([point["method"], str(point["dropped"]), *numbers])
    return aligned(rows)


@styled
def picture(points: Sequence[dict[str, Any]]) -> Figure:
    """Draws a panel for each figure against the number of dropped heads, with a line for each method."""
    dense, methods = points[0], list(dict.fromkeys(point["method"] for point in points[1:]))
    columns = columns_of(points)
    figure, every = panels([f"{name} (%)" if share else f"{name} (nats)" for _, name, share in columns])
    for axes, (key, _, share) in zip(every, columns, strict=True):
        scale = 100 if share else 1
        axes.axhline(scale * dense[key], color=INK, linewidth=1, linestyle=":")
        for number, method in enumerate(methods):
            curve = sorted((point["dropped"], scale * point[key]) for point in points[1:] if point["method"] == method)
            axes.plot(*zip(*curve, strict=True), marker="o", markersize=4, **line(number))
        axes.set(xlabel="heads dropped")
        whole_numbers(axes.xaxis)
    return explained(figure, [Key(DENSE, INK, ":"), *line_keys(methods)])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("model")
    parser.add_argument("members", nargs="*", metavar="FILE")
    parser.add_argument("--circuit", action="append", default=[], metavar="FILE")
    parser.add_argument("--scores", action="append", default=[], metavar="FILE")
    parser.add_argument("--budgets", default="", metavar="2,4,6,8/layer|12,24")
    parser.add_argument("--id-data", required=True)
    parser.add_argument("--ood-data", action="append", default=[])
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    methods = {"circuit": options.circuit, "scores": options.scores, "budgets": options.budgets}
    data = {"id_data": options.id_data, "ood_data": options.ood_data, "limit": options.limit}
    show(budgets(options.model, options.members, **methods, **data), options)


if __name__ == "__main__":
    main()
