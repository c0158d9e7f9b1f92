"""Pruning without structure: single weights of a network are set to zero."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hydractl.data.like import DataLike
from hydractl.data.reading import Reading
from hydractl.errors import OptionError
from hydractl.steps.inputs import DeviceLike, ModelLike
from hydractl.steps.material import drawn_data
from hydractl.steps.pruned import Pruned, PrunedMember, output_file
from hydractl.surgery.weight_methods import WEIGHT_METHODS
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.steps.inputs import DtypeLike


class WeightPruning(NamedTuple):
    """What `prune` is asked for where it takes weights."""

    method: str | None
    model: ModelLike | None
    keep: str | float | None
    order: int
    towers: str | None
    data: DataLike | None
    samples: int | None
    seed: int
    reading: Reading
    device: DeviceLike
    batch_size: int
    watch: Watcher


def prune_weights(asked: WeightPruning, output: str | Path | None, dtype: DtypeLike | None, force: bool) -> Pruned:
    """The network without its weights of the lowest saliencies.

    Raises:
        OptionError: no model, share or data, or a share that the network cannot have.
        OutputError: the output exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.circuit.restriction import require_towers
    from hydractl.families.open import write_checkpoint
    from hydractl.steps.compute import choose_dtype, dtype_name
    from hydractl.steps.inputs import as_checkpoint
    from hydractl.surgery.dtype import with_dtype
    from hydractl.surgery.provenance import with_provenance
    from hydractl.surgery.weights import candidates, leaving, zero_weights

    method = next(row for row in WEIGHT_METHODS if row.name == asked.method)
    if asked.model is None:
        raise OptionError("`model` is missing: name a Hugging Face folder or a file of ours")
    if asked.keep is None:
        raise OptionError(f"`method` {method.name} needs `keep`: the share of the parameters that stay, as in 89.1%")
    if asked.data is None:
        raise OptionError(f"`method` {method.name} needs `data`: labelled samples to take gradients on")
    checkpoint = as_checkpoint(asked.model)
    names = candidates(checkpoint, require_towers(asked.towers, checkpoint.heads) if asked.towers else ())
    count = leaving(asked.keep, checkpoint, names)
    options: dict[str, Any] = {
        "method": method.name,
        "keep": str(asked.keep),
        "order": asked.order,
        "towers": asked.towers,
        "seed": asked.seed if asked.samples is not None else None,
        "dtype": dtype_name(dtype),
    }
    path = output_file(output, checkpoint, options, force)
    network, data, used = drawn_data(
        checkpoint, asked.data, asked.samples, asked.seed, asked.reading, asked.device, asked.batch_size, asked.watch
    )
    pruned = zero_weights(checkpoint, method.saliencies(network, data, names, asked.order), count)
    pruned = with_provenance(with_dtype(pruned, choose_dtype(dtype)), "prune", [checkpoint], options | used)
    if path is not None:
        write_checkpoint(pruned, path, force)
    return Pruned((PrunedMember(pruned, (), path, zeroed=count),))
