"""Which tensors of a network train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hydractl.checkpoint.slots import ADAPTER, GROUPS, Slot, slots
from hydractl.checkpoint.spec import ModelSpec, TowerSpec
from hydractl.errors import OptionError


def trained_names(spec: ModelSpec, train_only: Sequence[str] = (), freeze_below: int = 0) -> frozenset[str]:
    """The names of the tensors that train; all others stay bit for bit.

    Args:
        train_only: parts of the network: a group ("mlp"), a tower ("text"), a group of one tower ("text.mlp"), or
            one tensor ("logit_scale"). Empty for all.
        freeze_below: embeddings and layers below this one are frozen, in every tower; negative counts from the
            top, so -5 trains the last five layers and what follows them. 0 freezes nothing.

    Raises:
        OptionError: an unknown part, a layer that is not there, or nothing left to train.
    """
    table = slots(spec)
    for part in train_only:
        if not any(_is_part(part, name, slot, table) for name, slot in table.items()):
            towers = [tower.name for tower in spec.towers]
            raise OptionError(
                f"`train_only` {part}: no such part of this model: choose {', '.join(GROUPS)}, {', '.join(towers)}, "
                f"or a part of one tower as in {towers[0]}.mlp"
            )
    chosen = frozenset(
        name
        for name, slot in table.items()
        if (not train_only or any(_is_part(part, name, slot, table) for part in train_only))
        and not _is_below(name, slot, spec, freeze_below)
    )
    if not chosen:
        raise OptionError(
            f"`train_only` {','.join(train_only)}, `freeze_below` {freeze_below}: nothing is left to train"
        )
    return chosen


def decays(name: str, slot: Slot) -> bool:
    """Whether weight decay applies to a tensor: not to biases, norms, a scale and factors around one."""
    return not name.endswith((".bias", ".r", ".s")) and slot.group != "norm" and len(slot.shape) > 0


def _is_part(part: str, name: str, slot: Slot, table: Mapping[str, Slot]) -> bool:
    # What members change of a weight is part of whatever the weight is part of.
    home = table[f"{name.rpartition('.')[0]}.weight"] if slot.group == ADAPTER else slot
    groups = {slot.group, home.group}
    return part in {name, slot.tower, *groups, *(f"{slot.tower}.{group}" for group in groups)}


def first_trained(spec: ModelSpec, freeze_below: int) -> int:
    """The first layer that trains, in a network of one tower.

    Raises:
        OptionError: a layer that is not there.
    """
    (tower,) = spec.towers
    return _first(tower, freeze_below)


def _first(tower: TowerSpec, freeze_below: int) -> int:
    if freeze_below > tower.layers:
        raise OptionError(f"`freeze_below` {freeze_below}: the {tower.name} tower has {tower.layers} layers")
    return freeze_below if freeze_below >= 0 else max(tower.layers + freeze_below, 0)


def _is_below(name: str, slot: Slot, spec: ModelSpec, freeze_below: int) -> bool:
    if freeze_below == 0 or slot.tower is None:
        return False
    first = _first(spec.tower(slot.tower), freeze_below)
    if slot.layer is not None:
        return slot.layer < first
    return name.startswith(f"{slot.tower}.embeddings.")
