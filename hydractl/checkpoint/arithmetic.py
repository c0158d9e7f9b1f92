"""The multiply-adds of a network by its sizes alone, so that `inspect` needs no forward pass and no torch."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from hydractl.checkpoint.heads import Head, Unit, without
from hydractl.checkpoint.layout import Layout
from hydractl.checkpoint.slots import Slot, slots
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import ImageEmbeddings, TowerSpec

TEXT_TOKENS = 128  # a text's length decides its cost; longer than most sentences, as fine-tuning recipes pad


def input_tokens(spec: ModelSpec, length: int = TEXT_TOKENS) -> int:
    """Returns the tokens of an image, or of a text of that length as far as the model takes it."""
    embeddings = spec.towers[0].embeddings
    return embeddings.tokens if isinstance(embeddings, ImageEmbeddings) else min(length, embeddings.max_tokens)


def multiply_adds(spec: ModelSpec, layout: Layout) -> int:
    """Returns the multiply-adds of one sample through a network as published.

    A zero-shot model compares with one class.
    """
    tower = spec.towers[0]
    count = _Count(slots(spec), layout)
    _add_tower(count, tower, input_tokens(spec))
    if spec.projection is not None:
        count.add(f"{tower.name}.projection")
        return count.total + count.copies * spec.projection * spec.prompted
    for name in ("classifier", "distillation_classifier"):
        count.add(name, tower.left_tokens(input_tokens(spec)))
    return count.total


def saved_without(spec: ModelSpec, layout: Layout, piece: Head | Unit) -> int:
    """Returns the multiply-adds that a network of one member saves without a head or MLP unit, any of its tower."""
    if isinstance(piece, Head):
        less = replace(layout, heads=without(layout.heads, {piece}))
    else:
        less = layout.without_units(spec, [piece])
    return multiply_adds(spec, layout) - multiply_adds(spec, less)


class _Count:
    """Multiply-adds so far, and the copies of an activation: one as long as all members have seen the same numbers."""

    def __init__(self, table: Mapping[str, Slot], layout: Layout) -> None:
        self.table, self.layout, self.members, self.shared = table, layout, layout.members, layout.shared
        self.total, self.copies = 0, 1

    def differs(self, prefix: str) -> bool:
        """Returns whether a tensor of this name is each member's own; from then on members have seen other numbers."""
        separate = any(name.startswith(prefix) and name not in self.shared for name in self.table)
        self.copies = self.members if separate else self.copies
        return separate

    def add(self, name: str, tokens: int = 1, copies: int | None = None) -> None:
        """Adds a linear map, if there is one, of so many tokens."""
        weight = f"{name}.weight"
        if weight in self.table:
            # A bias of each member's own is added after the one product.
            copies = self.members if weight not in self.shared else copies or self.copies
            self.total += copies * tokens * prod(self.table[weight].shape)
            self.differs(f"{name}.")


def _add_tower(count: _Count, tower: TowerSpec, tokens: int) -> None:
    prefix, embeddings = tower.name, tower.embeddings
    if isinstance(embeddings, ImageEmbeddings):
        separate = count.differs(f"{prefix}.embeddings.patch.")
        products = embeddings.patches * prod(count.table[f"{prefix}.embeddings.patch.weight"].shape)
        count.total += products * (count.members if separate else 1)
    for name in [name for name in count.table if name.startswith(f"{prefix}.embeddings.")]:
        if ".projection." not in name:
            count.differs(name)
    count.add(f"{prefix}.embeddings.projection", tokens)
    for layer in range(tower.layers):
        _add_layer(count, tower, layer, tokens)
    count.differs(f"{prefix}.norm.")
    if tower.pool == "attention":
        _add_attention_pool(count, tower, tokens)
    count.add(f"{prefix}.pooler", tokens if tower.pool == "each" else tower.features // tower.width)


def _add_attention_pool(count: _Count, tower: TowerSpec, tokens: int) -> None:
    if isinstance(tower.embeddings, ImageEmbeddings) and not tower.pool_all:
        tokens -= tower.embeddings.prefix
    prefix, read = f"{tower.name}.attention_pool.", count.copies
    count.add(f"{prefix}q", 1, 1 if f"{prefix}probe" in count.shared else count.members)
    for part in "kv":
        count.add(f"{prefix}{part}", tokens, read)
    count.differs(f"{prefix}probe")
    count.total += count.copies * 2 * tokens * tower.width
    count.add(f"{prefix}o")
    count.differs(f"{prefix}norm.")
    for part in ("mlp.fc1", "mlp.fc2"):
        count.add(f"{prefix}{part}")


def _add_layer(count: _Count, tower: TowerSpec, layer: int, tokens: int) -> None:
    prefix, heads = f"{tower.name}.layers.{layer}.", count.layout.heads[tower.name][layer]
    if tower.pre_norm:
        count.differs(f"{prefix}attention_norm.")
    separate = f"{prefix}attention.q.weight" not in count.shared
    rows = sum(map(len, heads)) if separate else len(heads[0]) * count.copies
    count.total += rows * tower.head_width * tokens * (4 * tower.width + 2 * tokens)
    if (spec := tower.disentangled) is not None:
        names = {n for n in count.table if n.startswith(f"{tower.name}.embeddings.distance")}
        mapped = rows if separate else len(heads[0]) * (1 if names <= count.shared else count.members)
        met = rows * 2 * tokens * tokens + mapped * 2 * spec.distances * tower.width
        count.total += len(spec.parts) * tower.head_width * met
    count.differs(f"{prefix}attention")  # also the norm behind it
    if tower.pre_norm:
        count.differs(f"{prefix}mlp_norm.")
    read, units = count.copies, count.layout.units_of(tower.name, layer)
    if units is None:
        for part in ("fc1", "factor"):
            count.add(f"{prefix}mlp.{part}", tokens, read)
        count.differs(f"{prefix}mlp.norm.")
        count.add(f"{prefix}mlp.fc2", tokens)
    else:
        parts = [n for n, slot in count.table.items() if n.startswith(f"{prefix}mlp.") and slot.unit_axis is not None]
        once = len(set(units)) == 1 and count.shared.issuperset(parts)
        kept = len(units[0]) * read if once else sum(map(len, units))
        count.total += kept * tokens * tower.width * (3 if tower.gated else 2)
        count.copies = read if once else count.members
    count.differs(f"{prefix}mlp")
