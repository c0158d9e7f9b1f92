"""The part of `hydractl prune` that takes gradients on data: `--method taylor` and `taylor-oneshot`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hydractl.cli import console
from hydractl.cli.material import DataOptions, open_material
from hydractl.cli.pruning import Choice
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.heads import Head
    from hydractl.model.hydra import Hydra


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
    reference: str, choice: Choice, options: TaylorOptions, quiet: bool
) -> tuple[list[Head], dict[str, Any]]:
    """The heads to drop, and the options that chose them, search data among them.

    Raises:
        OptionError: no data, an unknown tower, or a budget larger than the heads there are.
    """
    from hydractl.checkpoint.heads import member_heads
    from hydractl.data.seen import sketch
    from hydractl.scoring.data import ScoringData
    from hydractl.scoring.taylor import taylor_scores
    from hydractl.surgery.choose import by_scores
    from hydractl.surgery.layerwise import by_taylor

    if options.data is None:
        raise OptionError(f"--method {choice.method} needs --data: labelled samples to take gradients on")
    material = open_material(reference, options.data, None, options.reading, options.device, None)
    model = material.model
    towers = _towers(model, options.towers)
    heads = [head for head in member_heads(model.heads, 0) if head.tower in towers]
    samples = material.id if options.samples is None else material.id.draw(options.samples, choice.seed or 0)
    data = ScoringData(
        material.batches(samples, options.batch_size), len(samples), prompts=material.prompts(options.batch_size)
    )
    scope = choice.scope or "layer"
    if choice.method == "taylor-oneshot":
        dropped = by_scores(taylor_scores(model, data, heads), choice.budget, scope)
    else:
        dropped = by_taylor(model, data, heads, choice.budget, scope)
    if scope == "layer":
        _tell_shares(heads, choice.budget, quiet)
    return dropped, {
        "samples": options.samples,
        "towers": options.towers,
        "batch_size": options.batch_size,
        "search_data": {"calibration": sketch(samples.content_hashes())},
    }


def _towers(model: Hydra, wanted: str | None) -> list[str]:
    there: list[str] = [tower.name for tower in model.spec.towers]
    # Scores of two towers differ in scale, so by default the one that reads images, or the only one, is pruned.
    towers = wanted.split(",") if wanted else there[:1]
    if unknown := [name for name in towers if name not in there]:
        raise OptionError(f"--towers {wanted}: the model has no {unknown[0]} tower, only {' and '.join(there)}")
    return towers


def _tell_shares(heads: Sequence[Head], budget: int, quiet: bool) -> None:
    from hydractl.checkpoint.heads import layer_budgets

    shares = set(layer_budgets(heads, budget).values())
    if len(shares) > 1:
        console.note(f"note: {budget} heads do not divide over the layers: {min(shares)} to {max(shares)} each", quiet)
