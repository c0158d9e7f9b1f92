"""The contents of a model as JSON and as text with a map of its heads, and its size before and after a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hydractl.checkpoint.arithmetic import multiply_adds
from hydractl.checkpoint.contents import Checkpoint, identity, trunk_depth
from hydractl.checkpoint.heads import Head, Unit, member_heads, without
from hydractl.checkpoint.layout import Layout, member_units, stored_shapes
from hydractl.checkpoint.slots import all_heads, parameter_count, slots
from hydractl.checkpoint.tensors import DTYPES
from hydractl.checkpoint.tower_spec import TowerSpec
from hydractl.text import counted, printable, shortened, span

if TYPE_CHECKING:
    from hydractl.systems.onnx_file import OnnxFile

KEPT, DROPPED = "■", "·"


def summarize(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns sizes, members, kept heads, trunk and provenance of a model, as plain JSON."""
    return {
        "model": checkpoint.name,
        "sha256": identity(checkpoint),
        **_sizes(checkpoint),
        "provenance": dict(checkpoint.provenance),
    }


def summarize_onnx(file: OnnxFile) -> dict[str, Any]:
    """Returns the summary of the network in an ONNX file, and what its graph computes with."""
    return {
        **summarize(file.checkpoint),
        "sha256": file.sha256,
        "parameters": file.cost.parameters,
        "dtypes": [file.precision],
        "graph": {"opset": file.opset, "bytes": file.size, "outputs": list(file.outputs)},
    }


def _sizes(checkpoint: Checkpoint) -> dict[str, Any]:
    spec = checkpoint.spec
    return {
        "family": checkpoint.family,
        "task": spec.task,
        "members": checkpoint.members,
        "parameters": parameter_count({name: tensor.shape for name, tensor in checkpoint.tensors.items()}),
        "multiply_adds": multiply_adds(spec, checkpoint.layout),
        "dense_multiply_adds": multiply_adds(spec, Layout(all_heads(spec), frozenset(slots(spec)))),
        "dtypes": sorted({DTYPES[tensor.kind] for tensor in checkpoint.tensors.values()}),
        "labels": None if checkpoint.labels is None else list(checkpoint.labels),
        "towers": {tower.name: _tower(checkpoint, tower) for tower in spec.towers},
        "separate": sorted({slot.group for name, slot in checkpoint.slots().items() if name not in checkpoint.shared}),
        "temperature": None,
        "ood": None,
        **checkpoint.calibration.to_json(),
    }


def _tower(checkpoint: Checkpoint, tower: TowerSpec) -> dict[str, Any]:
    layers = checkpoint.heads[tower.name]
    return {
        "layers": tower.layers,
        "heads": tower.heads,
        "head_width": tower.head_width,
        "width": tower.width,
        "mlp_width": tower.mlp_width,
        "trunk_layers": trunk_depth(checkpoint.spec, checkpoint.layout, tower.name),
        "kept_heads": [[list(kept) for kept in members] for members in layers],
        **({"kept_units": units} if (units := checkpoint.units.get(tower.name)) else {}),
    }


def key_facts(checkpoint: Checkpoint) -> dict[str, object]:
    """Returns the facts of a notebook's table, without reading weights."""
    sizes = _sizes(checkpoint)
    return _facts(sizes) | dict(_kept(sizes["towers"]))


def _facts(summary: Mapping[str, Any]) -> dict[str, object]:
    """Returns the facts of a summary, by the names that `hydractl inspect` prints."""
    labels, performed, dense = (summary[key] for key in ("labels", "multiply_adds", "dense_multiply_adds"))
    facts: dict[str, object] = {
        "family": f"{summary['family']}, {summary['task']}",
        "members": summary["members"],
        "parameters": f"{summary['parameters']:,} ({', '.join(summary['dtypes'])})",
        "mult-adds": f"{performed:,} a sample ({performed / dense:.2f} x one network with every head)",
        "labels": "none" if labels is None else counted(labels),
    }
    if (graph := summary.get("graph")) is not None:
        facts["graph"] = f"ONNX opset {graph['opset']}, {graph['bytes'] / 1e6:.3g} MB: {', '.join(graph['outputs'])}"
    if summary["separate"]:
        facts["per member"] = ", ".join(summary["separate"])
    if summary["temperature"] is not None:
        facts["temperature"] = f"{summary['temperature']:.4g}"
    recall = summary.get("recall")
    if summary.get("thresholds") and recall is None:
        facts["thresholds"] = ", ".join(f"{threshold:.2f}" for threshold in summary["thresholds"])
    if (around := summary.get("intervals")) is not None:
        facts["intervals"] = f"hold {100 * around['share']:g} % of right numbers"
    if (fit := summary["ood"]) is not None:
        flagged = f"flags about {100 - 100 * fit['accept']:g} % of ID data"
        facts["OOD score"] = f"{fit['score']}, fitted on {fit['samples']} samples, {flagged}"
        if "accuracy" in fit:
            right, confidence = f"{100 * fit['accuracy']:g} % of", fit.get("confidence")
            if least := fit.get("confidences") or ([] if confidence is None else [confidence]):
                facts["sure"] = f"from an MSP of {span(least)}: {right} answers are right"
            elif "thresholds" in facts:
                facts["thresholds"] = f"{facts['thresholds']}: {right} the answers with each label are right"
    if recall is not None:
        share = f"{100 * recall['share']:g} %"
        facts["recall"] = f"from a probability of {span(recall['least'])}: answers hold {share} of what is there"
    if (sets := summary.get("sets")) is not None:
        facts["sets"] = (
            f"from a probability of {span(sets['least'])}: {100 * sets['coverage']:g} % hold the right class"
        )
    return facts


def _kept(towers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields how many heads the members of each tower keep, and how many units where some are missing."""
    for name, tower in towers.items():
        for what, most in (("heads", tower["heads"]), ("units", tower["mlp_width"])):
            if layers := tower.get(f"kept_{what}"):
                counts = (
                    sum(most if kept is None else len(kept[member]) for kept in layers)
                    for member in range(len(tower["kept_heads"][0]))
                )
                yield f"{name} {what}", f"{'+'.join(map(str, counts))} of {tower['layers'] * most}"


def summary_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines that `hydractl inspect` prints: facts first, then a map with a column per member."""
    yield printable(str(summary["model"]))
    for name, fact in {**_facts(summary), "sha256": summary["sha256"]}.items():
        yield f"  {name:<11} {printable(str(fact))}"
    for name, tower in summary["towers"].items():
        yield ""
        yield from _tower_lines(name, tower)
    if summary["provenance"]:
        yield ""
        yield "made by, with --json in full"
        yield from _history(summary["provenance"])


def _tower_lines(name: str, tower: Mapping[str, Any]) -> Iterator[str]:
    sizes = f"{tower['layers']} layers x {tower['heads']} heads of {tower['head_width']}"
    yield f"{name} tower: {sizes}, width {tower['width']}, MLP {tower['mlp_width']}"
    yield f"  trunk: {tower['trunk_layers']} leading layers shared by all members"
    for layer, members in enumerate(tower["kept_heads"]):
        maps = ("".join(KEPT if head in kept else DROPPED for head in range(tower["heads"])) for kept in members)
        counts = "+".join(str(len(kept)) for kept in members)
        units = (tower.get("kept_units") or {layer: None})[layer]
        more = "" if units is None else f", units {'+'.join(str(len(kept)) for kept in units)}"
        yield f"  layer {layer:>2}  {'  '.join(maps)}  {counts}{more}"


def _history(made: Mapping[str, Any], indent: str = "  ") -> Iterator[str]:
    """Yields a line for a command with its options that are numbers or words, and below it the lines of its inputs."""
    options = made.get("options") or {}
    shown = ", ".join(f"{name} {value}" for name, value in options.items() if isinstance(value, int | float | str))
    yield printable(shortened(f"{indent}{made.get('command', 'unknown')}{shown and '  '}{shown}", 200))
    for origin in made.get("inputs") or ():
        if origin.get("provenance"):
            yield from _history(origin["provenance"], indent + "  ")
        else:
            yield printable(f"{indent}  {shortened(str(origin.get('sha256', 'unknown')), 15)}")


def pruning_line(checkpoint: Checkpoint, dropped: Sequence[Head], units: Sequence[Unit], path: Path | None) -> str:
    """Returns how many heads and MLP units a network of one member lost, and how much smaller it is.

    Args:
        checkpoint: the network without them.
        path: its file, if it was written.
    """
    layout, spec = checkpoint.layout, checkpoint.spec
    kept, every = member_heads(layout.heads, 0), Layout(all_heads(spec), layout.shared)
    heads = without(every.heads, set(member_heads(every.heads, 0)).difference([*kept, *dropped]))
    left = member_units(layout, spec, 0)
    with_units = every.without_units(spec, set(member_units(every, spec, 0)).difference([*left, *units]))
    before = _size(checkpoint, replace(with_units, heads=heads))
    counts = f"heads {len(kept) + len(dropped)} -> {len(kept)}"
    if units:
        counts += f", MLP units {len(left) + len(units)} -> {len(left)}"
    return _line(counts, before, _size(checkpoint, layout), path)


def fusing_line(checkpoint: Checkpoint, path: Path | None) -> str:
    """Returns how much smaller a network of several members is than the members by themselves.

    Args:
        path: its file, if it was written.
    """
    every = frozenset(checkpoint.slots())
    layouts = [checkpoint.layout.pick(checkpoint.spec, [member]) for member in range(checkpoint.members)]
    alone = [_size(checkpoint, replace(layout, shared=every)) for layout in layouts]
    apart = _Size(sum(size.parameters for size in alone), sum(size.multiply_adds for size in alone))
    counts = "+".join(str(len(member_heads(layout.heads, 0))) for layout in layouts)
    members = f"{checkpoint.members} members" if checkpoint.members > 1 else "one network"
    members += f" of {counts} heads"
    return _line(members, apart, _size(checkpoint, checkpoint.layout), path)


class _Size(NamedTuple):
    parameters: int
    multiply_adds: int


def _size(checkpoint: Checkpoint, layout: Layout) -> _Size:
    shapes = stored_shapes(checkpoint.spec, layout)
    return _Size(parameter_count(shapes), multiply_adds(checkpoint.spec, layout))


def _line(heads: str, before: _Size, after: _Size, path: Path | None) -> str:
    from hydractl.reports.columns import count_text

    parts = [heads]
    for name in ("parameters", "multiply_adds"):
        was, now = getattr(before, name), getattr(after, name)
        parts.append(f"{name.replace('_', '-')} {count_text(was)} -> {count_text(now)} ({now / was:.2f} x)")
    if path is not None:
        parts.append(f"file {count_text(path.stat().st_size)}B")
    return ", ".join(parts)
