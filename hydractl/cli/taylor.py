"""The part of `hydractl prune` that takes gradients on data: `--method taylor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hydractl.cli import console
from hydractl.cli.material import DataOptions, open_material
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.heads import Head


@dataclass(frozen=True)
class TaylorOptions:
    """What `--method taylor` goes by; None where an option was not given."""

    data: str | None
    samples: int | None
    towers: str | None
    batch_size: int
    device: str
    reading: DataOptions


def choose_by_taylor(
    reference: str, budget: int, scope: Literal["global", "layer"], seed: int, options: TaylorOptions, quiet: bool
) -> tuple[list[Head], dict[str, Any]]:
    """The heads to drop, and the options that chose them, search data among them.

    Raises:
        OptionError: no data, an unknown tower, or a budget larger than the heads there are.
    """
    from hydractl.checkpoint.heads import member_heads
    from hydractl.data.ranks import Ranks
    from hydractl.data.seen import sketch
    from hydractl.data.sources import draw
    from hydractl.scoring.taylor import ScoringData
    from hydractl.surgery.choose import layer_budgets
    from hydractl.surgery.taylor import by_taylor

    if options.data is None:
        raise OptionError("--method taylor needs --data: labelled samples to take gradients on")
    material = open_material(reference, options.data, None, options.reading, options.device, None)
    there = [tower.name for tower in material.model.spec.towers]
    # Scores of two towers differ in scale, so by default the one that reads images, or the only one, is pruned.
    towers = options.towers.split(",") if options.towers else there[:1]
    if unknown := [name for name in towers if name not in there]:
        raise OptionError(f"--towers {options.towers}: the model has no {unknown[0]} tower, only {' and '.join(there)}")
    heads = [head for head in member_heads(material.model.heads, 0) if head.tower in towers]
    samples = material.id if options.samples is None else draw(material.id, options.samples, seed)
    data = ScoringData(
        material.batches(samples, options.batch_size), len(samples), material.model.class_prompts, Ranks()
    )
    dropped = by_taylor(material.model, data, heads, budget, scope)
    shares = set(layer_budgets(heads, budget).values())
    if scope == "layer" and len(shares) > 1:
        console.note(f"note: {budget} heads do not divide over the layers: {min(shares)} to {max(shares)} each", quiet)
    return dropped, {
        "samples": options.samples,
        "towers": options.towers,
        "batch_size": options.batch_size,
        "search_data": {"calibration": sketch(samples.content_hashes())},
    }
