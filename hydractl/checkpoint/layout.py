"""The heads and units that members keep, the tensors that they share, and the stored shapes that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import NamedTuple

from hydractl.checkpoint.heads import KeptHeads, Unit, in_candidate_order
from hydractl.checkpoint.slots import Slot, slots
from hydractl.checkpoint.spec import ModelSpec

#: Per member: the heads or units that it keeps in a layer, ascending.
Kept = tuple[tuple[int, ...], ...]
#: Per tower and layer: the MLP units that members keep there, None if all keep all. A tower without losses is absent.
KeptUnits = Mapping[str, tuple[Kept | None, ...]]


class Division(NamedTuple):
    """A tensor's division along an axis into heads or units of `width` entries, and those that each member keeps."""

    axis: int
    width: int
    members: Kept

    def size(self, shared: bool) -> int:
        """Returns the entries stored: the union of all members' if they share the tensor, else one after the other."""
        return self.width * (len(union(self.members)) if shared else sum(map(len, self.members)))

    def places(self, shared: bool) -> list[list[int]]:
        """Returns where the entries of each member are stored along the axis."""
        if shared:
            stored = {piece: place for place, piece in enumerate(union(self.members))}
            by_member: Iterable[Iterable[int]] = ([stored[piece] for piece in kept] for kept in self.members)
        else:
            ends = accumulate(map(len, self.members))
            by_member = (range(end - len(kept), end) for end, kept in zip(ends, self.members, strict=True))
        return [self._entries(pieces) for pieces in by_member]

    def entries(self, member: int) -> list[int]:
        """Returns the entries of a member in the dense network."""
        return self._entries(self.members[member])

    def _entries(self, pieces: Iterable[int]) -> list[int]:
        return [piece * self.width + i for piece in pieces for i in range(self.width)]


def union(members: Iterable[Iterable[int]]) -> list[int]:
    """Returns what any member keeps, ascending."""
    return sorted(set(chain.from_iterable(members)))


@dataclass(frozen=True)
class Layout:
    """The heads and units that each of M members keeps, and the tensors that members share."""

    heads: KeptHeads
    shared: frozenset[str]
    units: KeptUnits = field(default_factory=dict)

    @property
    def members(self) -> int:
        """M, the number of members."""
        return len(next(iter(self.heads.values()))[0])

    def units_of(self, tower: str, layer: int) -> Kept | None:
        """Returns the units that each member keeps in a layer; None if all keep all."""
        layers = self.units.get(tower)
        return None if layers is None else layers[layer]

    def differ(self, tower: str, layer: int) -> bool:
        """Tells whether members keep different units of a layer."""
        return len(set(self.units_of(tower, layer) or ())) > 1

    def division(self, slot: Slot, spec: ModelSpec) -> Division | None:
        """Returns how a slot is divided into what members keep; None if it is stored whole."""
        if slot.tower is None or slot.layer is None:
            return None
        if slot.head_axis is not None:
            kept = self.heads[slot.tower][slot.layer]
            return Division(slot.head_axis, slot.per_head or spec.tower(slot.tower).head_width, kept)
        units = self.units_of(slot.tower, slot.layer) if slot.unit_axis is not None else None
        return None if units is None or slot.unit_axis is None else Division(slot.unit_axis, 1, units)

    def pick(self, spec: ModelSpec, members: Sequence[int]) -> Layout:
        """Returns the layout of some members, in the order given, which share what they shared."""
        heads = {
            tower: tuple(tuple(kept[m] for m in members) for kept in layers) for tower, layers in self.heads.items()
        }
        units = {
            tower: [None if kept is None else tuple(kept[m] for m in members) for kept in layers]
            for tower, layers in self.units.items()
        }
        return replace(self, heads=heads, units=tidy(units, spec))

    def without_units(self, spec: ModelSpec, gone: Iterable[Unit]) -> Layout:
        """Returns the layout of a single member without some units."""
        lost = set(gone)
        units: dict[str, list[Kept | None]] = {
            tower.name: [
                (tuple(unit for unit in kept if (tower.name, layer, unit) not in lost),)
                for layer, (kept,) in enumerate(every_unit(self, spec, tower.name))
            ]
            for tower in spec.towers
        }
        return replace(self, units=tidy(units, spec))


def every_unit(layout: Layout, spec: ModelSpec, tower: str) -> list[Kept]:
    """Returns the kept units of each layer and member of a tower, also where members keep all."""
    every = (tuple(range(spec.tower(tower).mlp_width)),) * layout.members
    kept = (layout.units_of(tower, layer) for layer in range(spec.tower(tower).layers))
    return [every if units is None else units for units in kept]


def member_units(layout: Layout, spec: ModelSpec, member: int) -> list[Unit]:
    """Returns all units that a member keeps, in candidate order."""
    return in_candidate_order(
        Unit(tower.name, layer, unit)
        for tower in spec.towers
        for layer, kept in enumerate(every_unit(layout, spec, tower.name))
        for unit in kept[member]
    )


def tidy(units: Mapping[str, Sequence[Kept | None]], spec: ModelSpec) -> KeptUnits:
    """Returns kept units with None for layers where members keep all, and no towers of such layers."""
    tidied: dict[str, tuple[Kept | None, ...]] = {}
    for tower in spec.towers:
        layers = tuple(
            None if kept is None or all(len(member) == tower.mlp_width for member in kept) else kept
            for kept in units.get(tower.name, ())
        )
        if any(kept is not None for kept in layers):
            tidied[tower.name] = layers
    return tidied


def side_by_side(spec: ModelSpec, layouts: Sequence[Layout], shared: frozenset[str]) -> Layout:
    """Returns the layout of several networks' members, in the order given."""

    def joined(kept: Iterable[Sequence[Kept]]) -> list[Kept]:
        return [tuple(chain.from_iterable(layer)) for layer in zip(*kept, strict=True)]

    heads = {tower: tuple(joined(layout.heads[tower] for layout in layouts)) for tower in layouts[0].heads}
    units: dict[str, list[Kept]] = {
        tower.name: joined(every_unit(layout, spec, tower.name) for layout in layouts)
        for tower in spec.towers
        if any(tower.name in layout.units for layout in layouts)
    }
    return Layout(heads, shared, tidy(units, spec))


def stored_shapes(spec: ModelSpec, layout: Layout) -> dict[str, tuple[int, ...]]:
    """Returns the shape under which each tensor is stored.

    What is divided into heads or units stores those of its members one after the other, or those that any member
    keeps if they share it. Attention's output bias and layer scale are `[M, D]` (`[1, D]` if shared). Any other tensor
    gains a leading `[M, ...]` unless shared.
    """
    return {name: _stored(slot, spec, layout, name in layout.shared) for name, slot in slots(spec).items()}


def _stored(slot: Slot, spec: ModelSpec, layout: Layout, shared: bool) -> tuple[int, ...]:
    division, shape = layout.division(slot, spec), list(slot.shape)
    if division is not None:
        shape[division.axis] = division.size(shared=shared)
        return tuple(shape)
    if slot.is_attention:
        return (1 if shared else layout.members, *shape)
    return tuple(shape) if shared else (layout.members, *shape)


def remaining(before: Division | None, after: Division | None) -> list[int] | None:
    """Returns the entries of a single member's stored tensor that stay when heads or units go; None for all."""
    if after is None or before == after:
        return None
    entries = after.entries(0)
    if before is None:  # the tensor was whole
        return entries
    stored = {entry: place for place, entry in enumerate(before.entries(0))}
    return [stored[entry] for entry in entries]
