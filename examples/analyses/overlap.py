"""Which heads circuits, head scores and pruned models drop alike; the paper's B.2.

    python analyses/overlap.py CIRCUIT|SCORES|MODEL... [--budget N] [--scope global|layer]

Prints for each pair the heads that both drop, how many random choices from the same heads would share, and two
Jensen-Shannon divergences of the dropped heads' distributions, in bits: over layers, 0 for the same and 1 for no layer
in common, and over single heads. Scores drop their lowest heads; a Hydra is compared member by member.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.spatial.distance import jensenshannon
from shared import Analysis, arguments, show

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, in_candidate_order, member_heads
from hydractl.circuit.head_files import SCORES_FORMAT, Circuit, ScoreTable, as_circuit, as_scores
from hydractl.circuit.ranking import Restriction
from hydractl.drawing import arranged, drawn, styled, whole_numbers
from hydractl.inputs.models import as_checkpoint
from hydractl.reports.head_maps import draw_map, map_height
from hydractl.reports.summary import DROPPED, KEPT
from hydractl.surgery.choose import Scope, by_scores
from hydractl.text import aligned

Sizes = Mapping[str, tuple[int, int]]
Rankings = Mapping[str, Sequence[Head]]


@dataclass(frozen=True, eq=False)
class HeadList:
    """Heads that something drops."""

    name: str  # its file, for messages
    kind: Literal["circuit", "scores", "model"]
    label: str | None  # what tables may call it: the objective of a circuit, the method of head scores
    count: int  # how many heads it ranks; of a pruned model, how many it lacks
    first: Callable[[int], Sequence[Head]]  # so many of them, the first dropped first where there is an order
    restriction: Restriction = field(default_factory=Restriction)  # what heads they were chosen from
    sha256: str | None = None  # the identity of the model they are of; None if unknown
    # Layers and heads of each tower, where they are known.
    towers: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Overlap:
    """Agreement of two choices of as many heads."""

    names: tuple[str, str]
    shared: tuple[Head, ...]  # the heads that both drop, in candidate order
    # Jensen-Shannon divergence of the dropped heads' distributions over layers, in bits: 0 where they are the same, 1
    # where no layer loses heads to both.
    over_layers: float
    over_heads: float  # that of the distributions over single heads, which is the share of heads that differ
    by_chance: float  # how many heads two random choices would share, of as many from among the same


def list_of_circuit(circuit: Circuit) -> HeadList:
    """Returns the heads that a circuit drops."""
    return HeadList(
        circuit.name,
        "circuit",
        label=circuit.objective,
        count=len(circuit.ranking),
        first=lambda budget: circuit.ranking[:budget],
        restriction=circuit.restriction,
        sha256=circuit.model.sha256 if circuit.model else None,
        towers=circuit.model.towers if circuit.model else {},
    )


def list_of_scores(scores: ScoreTable, scope: Scope) -> HeadList:
    """Returns the heads with the lowest scores."""
    values = scores.known()
    return HeadList(
        scores.name,
        "scores",
        label=scores.method,
        count=len(values),
        first=lambda budget: by_scores(values, budget, scope),
        restriction=Restriction(",".join(scores.towers)),
        sha256=scores.model.sha256 if scores.model else None,
        towers=scores.model.towers if scores.model else {},
    )


def list_of_member(checkpoint: Checkpoint, member: int) -> HeadList:
    """Returns the heads that a member lacks."""
    towers: dict[str, tuple[int, int]] = {tower.name: (tower.layers, tower.heads) for tower in checkpoint.spec.towers}
    kept = set(member_heads(checkpoint.heads, member))
    gone = [head for head in heads_of(towers) if head not in kept]
    name = checkpoint.name if checkpoint.members == 1 else f"{checkpoint.name} member {member}"
    source = _source(checkpoint.provenance)
    return HeadList(name, "model", None, len(gone), lambda budget: gone[:budget], sha256=source, towers=towers)


def _source(provenance: Any) -> str | None:
    """Returns the identity of the network that a member was first pruned from; None if its history does not say."""
    sha256 = None
    while isinstance(provenance, Mapping) and isinstance(inputs := provenance.get("inputs"), list) and inputs:
        first = inputs[0] if isinstance(inputs[0], Mapping) else {}
        if provenance.get("command") == "prune":
            sha256 = str(first.get("sha256"))
        provenance = first.get("provenance")
    return sha256


def overlaps(dropped: Mapping[str, Sequence[Head]], chosen_from: Mapping[str, Sequence[Head]]) -> list[Overlap]:
    """Returns the overlap of each pair, in the order given.

    Args:
        dropped: heads by the name of their choice, as many each.
        chosen_from: by the same names, the heads that were chosen from.
    """
    pairs = []
    for names in combinations(dropped, 2):
        a, b = (dropped[name] for name in names)
        pools = [set(chosen_from[name]) for name in names]
        shared, likely = shared_by([a, b]), [len(a) / max(1, len(pool)) for pool in pools]
        by_chance = len(pools[0] & pools[1]) * likely[0] * likely[1]
        apart = 1 - len(shared) / len(a)
        pairs.append(Overlap(names, shared, layer_divergence(a, b), over_heads=apart, by_chance=by_chance))
    return pairs


def shared_by(dropped: Sequence[Sequence[Head]]) -> tuple[Head, ...]:
    """Returns the heads that are in every one of the rankings, in candidate order."""
    return tuple(in_candidate_order(set.intersection(*map(set, dropped))))


def layer_divergence(a: Sequence[Head], b: Sequence[Head]) -> float:
    """Returns the Jensen-Shannon divergence of two distributions of heads over layers, to base 2, 0 to 1."""
    # Layer 0 of one tower is not layer 0 of the other.
    first, second = (Counter((head.tower, head.layer) for head in heads) for heads in (a, b))
    layers = sorted(first | second)
    # SciPy's is the distance, which is the root of the divergence.
    return float(jensenshannon([first[layer] for layer in layers], [second[layer] for layer in layers], base=2) ** 2)


def first_dropped(choices: Sequence[HeadList], budget: int | None) -> list[tuple[Head, ...]]:
    """Returns the first --budget heads of each choice.

    The default budget is what a pruned model lacks, or else what the shortest circuit ranks.

    Raises:
        SystemExit: fewer than two choices, of different models, of fewer heads than the budget, or scores alone and no
            budget.
    """
    if len(choices) < 2:
        raise SystemExit("an overlap needs two or more choices of heads: name another")
    first = next((choice for choice in choices if choice.sha256), choices[0])
    for choice in choices:
        if choice.sha256 and choice.sha256 != first.sha256:
            raise SystemExit(
                f"{choice.name}: is of another model (sha256 {choice.sha256[:12]}...) than {first.name} "
                f"({str(first.sha256)[:12]}...): only heads of one model can be compared"
            )
        if not choice.count:
            raise SystemExit(f"{choice.name}: drops no head: name one that drops some")
    size = budget or _common_budget(choices)
    for choice in choices:
        if size > choice.count:
            raise SystemExit(f"--budget {size}: {choice.name} ranks {choice.count} heads: ask for fewer")
        if choice.kind == "model" and size < choice.count:
            raise SystemExit(
                f"--budget {size}: {choice.name} lacks {choice.count} heads in no known order: "
                f"compare {choice.count}, or name a circuit"
            )
    return [tuple(choice.first(size)) for choice in choices]


def _common_budget(choices: Sequence[HeadList]) -> int:
    for kind in ("model", "circuit"):
        if counts := [choice.count for choice in choices if choice.kind == kind]:
            return min(counts)
    raise SystemExit("head scores rank every head: choose with --budget how many of the lowest to compare")


def table_names(choices: Sequence[HeadList]) -> list[str]:
    """Returns the names of choices in tables: their labels, or those of their files where labels are not unique."""
    labels = [choice.label or "" for choice in choices]
    if all(labels) and len(set(labels)) == len(labels):
        return labels
    files = [Path(choice.name).name.removesuffix(".json").removesuffix(".safetensors") for choice in choices]
    return [name if files.count(name) == 1 else f"{name} {place}" for place, name in enumerate(files, 1)]


def sizes(choices: Sequence[HeadList]) -> dict[str, tuple[int, int]]:
    """Returns layers and heads of each tower; as many as the heads name if no choice knows them."""
    if towers := next((choice.towers for choice in choices if choice.towers), None):
        return dict(towers)
    sizes: dict[str, tuple[int, int]] = {}
    for head in in_candidate_order(head for choice in choices for head in choice.first(choice.count)):
        layers, heads = sizes.get(head.tower, (0, 0))
        sizes[head.tower] = max(layers, head.layer + 1), max(heads, head.head + 1)
    return sizes


def heads_of(grid: Mapping[str, tuple[int, int]]) -> list[Head]:
    """Returns every head of towers of so many layers and heads."""
    return [
        Head(tower, layer, head)
        for tower, (layers, heads) in grid.items()
        for layer in range(layers)
        for head in range(heads)
    ]


def read(source: Any, scope: Scope = "global") -> list[HeadList]:
    """Returns the lists of heads in a file, or of a model in memory: one, or one for each member of a model."""
    path = str(source) if isinstance(source, str | Path) else ""
    if not path.endswith(".json"):
        checkpoint = as_checkpoint(path or source)
        return [list_of_member(checkpoint, member) for member in range(checkpoint.members)]
    if json.loads(Path(path).read_text(encoding="utf-8")).get("format") == SCORES_FORMAT:
        return [list_of_scores(as_scores(path), scope)]
    return [list_of_circuit(as_circuit(path))]


def overlap(files: Sequence[Any], budget: int | None = None, scope: Scope = "global") -> Analysis:
    """Compares the heads that files drop."""
    lists = [heads for file in files for heads in read(file, scope)]
    named = dict(zip(table_names(lists), lists, strict=True))
    dropped = dict(zip(named, first_dropped(lists, budget), strict=True))
    grid = sizes(lists)
    pairs = overlaps(dropped, {name: heads.restriction.among(heads_of(grid)) for name, heads in named.items()})
    budget, common = len(next(iter(dropped.values()))), shared_by(list(dropped.values()))
    choices = [
        {"name": name, "file": heads.name, "kind": heads.kind, "label": heads.label, "dropped": as_json(dropped[name])}
        for name, heads in named.items()
    ]
    rows = [
        {
            "choices": list(pair.names),
            "shared": as_json(pair.shared),
            "by_chance": pair.by_chance,
            "jensen_shannon_over_layers": pair.over_layers,
            "jensen_shannon_over_heads": pair.over_heads,
        }
        for pair in pairs
    ]
    content = {"budget": budget, "log_base": 2, "choices": choices, "pairs": rows, "shared_by_all": as_json(common)}
    return Analysis(list(lines(dropped, pairs, common, grid)), content, lambda: picture(dropped, grid))


def as_json(heads: Sequence[Head]) -> list[dict[str, Any]]:
    return [head._asdict() for head in heads]


def lines(dropped: Rankings, pairs: Sequence[Overlap], common: Sequence[Head], grid: Sizes) -> Iterator[str]:
    """Yields the table of pairs, and a map of the heads that each drops."""
    budget = len(next(iter(dropped.values())))
    rows = [["", "", f"shared of {budget}", "by chance", "JSD over layers", "over heads (bits)"]]
    for pair in pairs:
        shared = f"{len(pair.shared)} ({len(pair.shared) / budget:.0%})"
        rows.append([*pair.names, shared, f"{pair.by_chance:.1f}", f"{pair.over_layers:.4f}", f"{pair.over_heads:.4f}"])
    yield from aligned(rows, left=2)
    if len(dropped) > 2:
        yield f"dropped by all {len(dropped)}: {len(common)}"
    yield ""
    yield from map_lines(dropped, grid)


def map_lines(dropped: Rankings, sizes: Sizes) -> Iterator[str]:
    """Yields a map of each tower with a row per layer and a block per circuit, its dropped heads as dots."""
    for tower, (layers, heads) in sizes.items():
        width = max(heads, *map(len, dropped))
        yield f"{tower:8} " + "  ".join(f"{name:{width}}" for name in dropped).rstrip()
        for layer in range(layers):
            rows = (
                "".join(DROPPED if Head(tower, layer, head) in ranking else KEPT for head in range(heads))
                for ranking in dropped.values()
            )
            yield f"layer {layer:>2} " + "  ".join(f"{row:{width}}" for row in rows).rstrip()


@styled
def picture(dropped: Rankings, sizes: Sizes) -> Figure:
    """Returns panels with the step at which each choice drops each head, and how many choices drop it."""
    rows, columns = arranged(len(dropped) + 1)
    heights = [rows * map_height(layers) for layers, _ in sizes.values()]
    figure = Figure(figsize=(3.3 * max(3, columns), sum(heights)), layout="constrained")
    towers = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    longest = max(2, *map(len, dropped.values()))
    for part, (tower, size) in zip(towers, sizes.items(), strict=True):
        grids = {name: _steps(ranking, tower, size) for name, ranking in dropped.items()}
        counts = np.sum([~np.isnan(grid) for grid in grids.values()], axis=0).astype(float)
        counts[counts == 0] = np.nan
        maps = [(grid, drawn(name), "dropped at step", "viridis", 1, longest) for name, grid in grids.items()]
        maps.append((counts, "dropped by how many", "how many", "Reds", 0, len(dropped)))
        for place, (cells, title, label, colors, low, high) in enumerate(maps):
            axes = part.add_subplot(rows, columns, place + 1)
            bar = draw_map(axes, cells, f"{title}: {tower}", label, cmap=colors, vmin=low, vmax=high)
            whole_numbers(bar.ax.yaxis)
    return figure


def _steps(ranking: Sequence[Head], tower: str, size: tuple[int, int]) -> NDArray[np.float64]:
    """Returns `[L,H]`: the step at which a head goes, from 1; NaN for one that stays."""
    grid = np.full(size, np.nan)
    for step, head in enumerate(ranking, 1):
        if head.tower == tower:
            grid[head.layer, head.head] = step
    return grid


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("files", nargs="+", metavar="CIRCUIT|SCORES|MODEL")
    parser.add_argument("--budget", type=int, help="heads of each; by default as many as a model lacks or all rank")
    parser.add_argument("--scope", choices=("global", "layer"), default="global", help="of the lowest scores")
    options = parser.parse_args()
    show(overlap(options.files, options.budget, options.scope), options)


if __name__ == "__main__":
    main()
