"""Comparing the heads that circuits, head scores and pruned models drop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl import bounds
from hydractl.circuit.circuit_file import as_circuit
from hydractl.circuit.scores import as_scores
from hydractl.errors import ArtifactError, OptionError
from hydractl.inputs.arguments import PlotOptions, as_checkpoint
from hydractl.inputs.result import Finding
from hydractl.options import Option, function, option
from hydractl.surgery.choose import Scope
from hydractl.text import aligned
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.analysis.overlap import HeadList, Overlap
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.circuit_file import Circuit
    from hydractl.circuit.scores import ScoreTable

ListLike = Any  #: a circuit, head scores or a model, as other commands take them


@dataclass(frozen=True, eq=False)
class Overlaps:
    """The heads that circuits, head scores and pruned models share.

    Attributes:
        choices: the compared lists of heads, by the names that tables give them.
        dropped: the heads that were compared, by the same names.
        pairs: each list with each other.
        common: the heads that all of them drop.
        grid: layers and heads of each tower.
    """

    choices: Mapping[str, HeadList]
    dropped: Mapping[str, Sequence[Head]]
    pairs: Sequence[Overlap]
    common: Sequence[Head]
    grid: Mapping[str, tuple[int, int]]

    @property
    def budget(self) -> int:
        """The number of compared heads of each list."""
        return len(next(iter(self.dropped.values())))


@dataclass(frozen=True)
class AnalyseOverlap:
    """Compare the heads that circuits, scores and pruned models drop.

    Example: hydractl analyse overlap circuit-avg.json taylor.json pruned.safetensors --budget 48 --plot heads.png

    Prints for each pair the heads that both drop, how many random choices from the same heads would share, and two
    Jensen-Shannon divergences of the dropped heads' distributions, in bits: over layers, 0 for the same and 1 for no
    layer in common, and over single heads. Scores drop their lowest heads; a Hydra is compared member by member.
    A map shows the heads that each drops; `plot` draws it.

    >>> same = hydractl.analyse_overlap(["circuit.json", "circuit.json"], budget=3)
    >>> len(same.value.common), same.value.pairs[0].over_layers
    (3, 0.0)

    Raises:
        ArtifactError: a file cannot be read, drops no head, or is of another model than the first.
        CheckpointError: a model cannot be read.
        OptionError: fewer than two lists, one of fewer heads than the budget, or a model that lacks more.
        OutputError: the picture exists and `force` is not set, or the disk refuses it.
    """

    circuits: Annotated[
        Sequence[ListLike],
        Option(
            "Circuits, head scores and pruned models, all of one model; - is a circuit on stdin.",
            "Model",
            "CIRCUIT|SCORES|MODEL...",
            positional=True,
        ),
    ]
    budget: int | None = option(
        None,
        "Compare the first N heads of each. Default: as many as a model lacks or all circuits rank.",
        minimum=1,
        maximum=bounds.HEADS,
    )
    scope: Scope | None = option(None, "Drop the lowest of all head scores, or evenly over layers. Default: global.")
    picture: PlotOptions = PlotOptions()

    def run(self, watch: Watcher) -> Finding[Overlaps]:
        from hydractl.analysis.overlap import first_dropped, heads_of, overlaps, shared_by, sizes, table_names
        from hydractl.reports.head_maps import overlap_figure

        self.picture.check()
        read = [one for given in self.circuits for one in self._lists(given)]
        if self.scope is not None and not any(one.kind == "scores" for one in read):
            raise OptionError(f"`scope` {self.scope} is for head scores, and none are given: leave it out")
        named = dict(zip(table_names(read), read, strict=True))
        dropped = dict(zip(named, first_dropped(read, self.budget), strict=True))
        grid = sizes(read)
        pairs = overlaps(dropped, {name: one.restriction.among(heads_of(grid)) for name, one in named.items()})
        self.picture.write(lambda: overlap_figure(dropped, grid))
        found = Overlaps(named, dropped, pairs, common=shared_by(list(dropped.values())), grid=grid)
        return Finding(found, _json(found), list(_lines(found)))

    def _lists(self, given: ListLike) -> list[HeadList]:
        """Returns the lists of heads that something stands for: one, or one for each member of a model."""
        from hydractl.analysis.overlap import list_of_circuit, list_of_member, list_of_scores
        from hydractl.circuit.circuit_file import Circuit
        from hydractl.circuit.scores import ScoreTable

        found = _read(given)
        if isinstance(found, ScoreTable):
            return [list_of_scores(found, self.scope or "global")]
        if isinstance(found, Circuit):
            return [list_of_circuit(found)]
        return [list_of_member(found, member) for member in range(found.members)]


analyse_overlap = function(AnalyseOverlap)


def _read(given: ListLike) -> Circuit | ScoreTable | Checkpoint:
    """Returns the circuit, scores or model that a path names or a value holds."""
    from hydractl.artifacts import REMEDY, file_of_ours
    from hydractl.circuit.circuit_file import Circuit
    from hydractl.circuit.scores import FORMAT, ScoreTable
    from hydractl.schema import STDIN, Origin, read_json

    if not isinstance(given, str | Path):
        held: Any = getattr(given, "scores", None) or getattr(given, "circuit", None) or given
        return held if isinstance(held, ScoreTable | Circuit) else as_checkpoint(held)
    path = str(given)
    if path == STDIN:
        return as_circuit(path)
    if file_of_ours(path) is None and not path.endswith(".json"):
        return as_checkpoint(path)
    fields = read_json(path, Origin(path, ArtifactError, REMEDY)).fields
    return as_scores(path) if fields.get("format") == FORMAT else as_circuit(path)


def _json(found: Overlaps) -> dict[str, Any]:
    from hydractl.evaluation.results import plain

    choices = [
        {"name": name, "file": one.name, "kind": one.kind, "label": one.label, "dropped": found.dropped[name]}
        for name, one in found.choices.items()
    ]
    pairs = [
        {
            "choices": pair.names,
            "shared": pair.shared,
            "by_chance": pair.by_chance,
            "jensen_shannon_over_layers": pair.over_layers,
            "jensen_shannon_over_heads": pair.over_heads,
        }
        for pair in found.pairs
    ]
    content = {"budget": found.budget, "log_base": 2, "choices": choices, "pairs": pairs}
    written: dict[str, Any] = plain(content | {"shared_by_all": found.common})
    return written


def _lines(found: Overlaps) -> Iterator[str]:
    from hydractl.reports.head_maps import map_lines

    rows = [["", "", f"shared of {found.budget}", "by chance", "JSD over layers", "over heads (bits)"]]
    for pair in found.pairs:
        shared = f"{len(pair.shared)} ({len(pair.shared) / found.budget:.0%})"
        rows.append([*pair.names, shared, f"{pair.by_chance:.1f}", f"{pair.over_layers:.4f}", f"{pair.over_heads:.4f}"])
    yield from aligned(rows, left=2)
    if len(found.dropped) > 2:
        yield f"dropped by all {len(found.dropped)}: {len(found.common)}"
    yield ""
    yield from map_lines(found.dropped, found.grid)
