"""The tensor-name table: every tensor of a network, its shape, and how members store it.

Names are those of the file and of the module alike. A slot's shape is that of one dense network; `stored_shape`
returns its shape for M members that keep some heads each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.spec import Adapter, ImageEmbeddings, ModelSpec, TextEmbeddings, TowerSpec

#: The groups for `fuse --separate`; attention always stays with its member.
GROUPS = ("attention", "mlp", "norm", "embeddings", "pooler", "projection", "classifier")
#: The group of the tensors by which members change weights that they share; a single network has none.
ADAPTER = "adapter"
KEPT = "kept"  # the numbers of the features that a member keeps, int32


@dataclass(frozen=True)
class Slot:
    """One tensor of a dense network.

    `head_axis` is the axis along which heads lie, K entries each (None: not divided into heads). A slot of the group
    "adapter" belongs to one member: a single network has none, and members never share it.
    """

    shape: tuple[int, ...]
    group: str
    tower: str | None = None
    layer: int | None = None
    head_axis: int | None = None

    @property
    def is_attention(self) -> bool:
        return self.group == "attention"


def slots(spec: ModelSpec) -> dict[str, Slot]:
    """Returns every tensor of a network of this spec by name, in forward order."""
    table = {name: slot for tower in spec.towers for name, slot in _tower_slots(tower)}
    if spec.task == "zero-shot":
        assert spec.projection is not None
        for tower in spec.towers:
            shape = (spec.projection, tower.width)
            if tower.projected:
                table[f"{tower.name}.projection.weight"] = Slot(shape, "projection", tower.name)
            if tower.projected and tower.projection_bias:
                table[f"{tower.name}.projection.bias"] = Slot(shape[:1], "projection", tower.name)
        for name in ("logit_scale", "logit_bias") if spec.logit_bias else ("logit_scale",):
            table[name] = Slot((), "projection")
    else:
        assert spec.classes is not None
        features = spec.towers[0].width if spec.distilled else spec.towers[0].features
        for name in ("classifier", "distillation_classifier") if spec.distilled else ("classifier",):
            table[f"{name}.weight"] = Slot((spec.classes, features), "classifier")
            table[f"{name}.bias"] = Slot((spec.classes,), "classifier")
    return table if spec.adapter is None else dict(_adapted(table, spec.adapter))


def linear_weights(spec: ModelSpec) -> list[str]:
    """Returns the names of the weights of all linear maps before the classifier, the patches' included."""
    groups = ("attention", "mlp", "pooler", "projection")
    return [
        name
        for name, slot in slots(spec).items()
        if name.endswith((".embeddings.patch.weight", ".embeddings.projection.weight"))
        or (name.endswith(".weight") and slot.group in groups and len(slot.shape) > 1)
    ]


def is_adapted(adapter: Adapter | None, name: str, slot: Slot) -> bool:
    """Returns whether a weight or bias belongs to a linear map that members adapt."""
    if adapter is None or (slot.layer is not None and slot.layer < adapter.first):
        return False
    linear = name.rpartition(".")[0].removeprefix(f"{slot.tower}.")
    return linear.removeprefix(f"layers.{slot.layer}.") in adapter.parts


def _adapted(table: Mapping[str, Slot], adapter: Adapter) -> Iterator[tuple[str, Slot]]:
    """Yields the table with each member's own tensors, behind the weight that they go with."""
    for name, slot in table.items():
        linear, _, part = name.rpartition(".")
        if not is_adapted(adapter, name, slot):
            yield name, slot
        elif part == "weight":
            yield name, slot
            for own, shape, axis in _own(adapter, linear, slot):
                yield f"{linear}.{own}", Slot(shape, ADAPTER, slot.tower, slot.layer, head_axis=axis)
        else:
            yield name, replace(slot, group=ADAPTER) if adapter.kind == "rank-one" else slot


def _own(adapter: Adapter, linear: str, weight: Slot) -> Iterator[tuple[str, tuple[int, ...], int | None]]:
    """Yields name, shape and head axis of each tensor that a member has beside a weight `[out,in]`."""
    (rows, columns), heads = weight.shape, weight.head_axis
    of_rows, of_columns = 0 if heads == 0 else None, 0 if heads == 1 else None
    if adapter.kind == "low-rank":
        yield "lora_a", (adapter.size, columns), None if of_columns is None else 1
        yield "lora_b", (rows, adapter.size), of_rows
    elif adapter.kind == "rank-one":
        yield "r", (columns,), of_columns
        yield "s", (rows,), of_rows
    elif linear.endswith("fc2"):
        yield KEPT, (adapter.size,), None


def _tower_slots(tower: TowerSpec) -> Iterator[tuple[str, Slot]]:
    yield from _embedding_slots(tower)
    for layer in range(tower.layers):
        yield from _layer_slots(tower, layer)
    d = tower.width
    if tower.final_norm:
        yield from _affine(f"{tower.name}.norm", (d,), "norm", tower)
    if tower.pool == "attention":
        yield f"{tower.name}.attention_pool.probe", Slot((d,), "pooler", tower.name)
        shapes = {
            **dict.fromkeys("qkvo", (d, d)),
            "norm": (d,),
            "mlp.fc1": (tower.mlp_width, d),
            "mlp.fc2": (d, tower.mlp_width),
        }
        for part, shape in shapes.items():
            yield from _affine(f"{tower.name}.attention_pool.{part}", shape, "pooler", tower)
    if tower.pooler is not None:
        yield from _affine(f"{tower.name}.pooler", (d, d), "pooler", tower)
    if tower.pooler_norm:
        yield from _affine(f"{tower.name}.pooler_norm", (d,), "pooler", tower, part="norm")


def _embedding_slots(tower: TowerSpec) -> Iterator[tuple[str, Slot]]:
    e, prefix = tower.embeddings, f"{tower.name}.embeddings"
    narrow = e.width if isinstance(e, TextEmbeddings) else None
    d = narrow or tower.width

    def slot(*shape: int) -> Slot:
        return Slot(shape, "embeddings", tower.name)

    if isinstance(e, ImageEmbeddings):
        yield f"{prefix}.patch.weight", slot(d, e.channels, *e.patch_size)
        if e.patch_bias:
            yield f"{prefix}.patch.bias", slot(d)
        if e.class_token:
            yield f"{prefix}.class_token", slot(d)
        if e.distillation_token:
            yield f"{prefix}.distillation_token", slot(d)
        if e.registers:
            yield f"{prefix}.registers", slot(e.registers, d)
        if e.learned:
            yield f"{prefix}.position", slot(e.positions, d)
    else:
        yield f"{prefix}.word", slot(e.vocabulary, d)
        if e.learned:
            yield f"{prefix}.position", slot(e.positions, d)
        if e.token_types:
            yield f"{prefix}.token_type", slot(e.token_types, d)
    if e.norm:
        yield from _affine(f"{prefix}.norm", (d,), "norm", tower)
    if narrow is not None:
        yield from _affine(f"{prefix}.projection", (tower.width, d), "embeddings", tower)


def _layer_slots(tower: TowerSpec, layer: int) -> Iterator[tuple[str, Slot]]:
    d, rows, prefix = tower.width, tower.heads * tower.head_width, f"{tower.name}.layers.{layer}"
    for part in ("q", "k", "v"):
        name = f"{prefix}.attention.{part}"
        yield f"{name}.weight", Slot((rows, d), "attention", tower.name, layer, 0)
        if tower.qkv_bias and f"attention.{part}" not in tower.unbiased:
            yield f"{name}.bias", Slot((rows,), "attention", tower.name, layer, 0)
    yield f"{prefix}.attention.o.weight", Slot((d, rows), "attention", tower.name, layer, 1)
    if "attention.o" not in tower.unbiased:
        yield f"{prefix}.attention.o.bias", Slot((d,), "attention", tower.name, layer)
    if layer or tower.first_norm:
        yield from _affine(f"{prefix}.attention_norm", (d,), "norm", tower, layer)
    if tower.layer_scale:
        # The attention is its member's own, and so is its scale.
        yield f"{prefix}.attention_scale", Slot((d,), "attention", tower.name, layer)
        yield f"{prefix}.mlp_scale", Slot((d,), "mlp", tower.name, layer)
    yield from _affine(f"{prefix}.mlp.fc1", (tower.mlp_width, d), "mlp", tower, layer)
    if tower.gated:
        yield from _affine(f"{prefix}.mlp.factor", (tower.mlp_width, d), "mlp", tower, layer)
    yield from _affine(f"{prefix}.mlp.fc2", (d, tower.mlp_width), "mlp", tower, layer)
    yield from _affine(f"{prefix}.mlp_norm", (d,), "norm", tower, layer)


def _affine(
    name: str, weight: tuple[int, ...], group: str, tower: TowerSpec, layer: int | None = None, part: str | None = None
) -> Iterator[tuple[str, Slot]]:
    """Yields a weight `[out]` or `[out,in]` and its bias `[out]`, if the tower's maps of that part have one.

    Args:
        part: default: the group.
    """
    yield f"{name}.weight", Slot(weight, group, tower.name, layer)
    if (part or group) not in tower.unbiased:
        yield f"{name}.bias", Slot(weight[:1], group, tower.name, layer)


def stored_shape(slot: Slot, spec: ModelSpec, kept: KeptHeads, shared: bool) -> tuple[int, ...]:
    """Returns the shape under which a slot is stored.

    Attention stores the kept heads of its members one after the other (of one member if shared), and its
    output bias and layer scale per member `[M, D]` (`[1, D]` if shared). Any other tensor gains a leading
    `[M, ...]` unless shared; what adapts attention has the heads that members share there.
    """
    members = len(next(iter(kept.values()))[0])
    copies = 1 if shared else members
    shape = list(slot.shape)
    if slot.head_axis is not None:
        assert slot.tower is not None and slot.layer is not None
        stored = kept[slot.tower][slot.layer][: copies if slot.is_attention else 1]
        shape[slot.head_axis] = sum(map(len, stored)) * spec.tower(slot.tower).head_width
        if slot.is_attention:
            return tuple(shape)
    elif slot.is_attention:
        return (copies, *shape)
    return tuple(shape) if shared else (members, *shape)


def kept_entries(slot: Slot, spec: ModelSpec, before: KeptHeads, after: KeptHeads) -> list[int] | None:
    """Returns the entries of a single member's tensor, along `head_axis`, that stay when heads go; None for all."""
    if slot.head_axis is None or slot.tower is None or slot.layer is None:
        return None
    old, new = before[slot.tower][slot.layer][0], after[slot.tower][slot.layer][0]
    width = spec.tower(slot.tower).head_width
    return None if old == new else [old.index(head) * width + i for head in new for i in range(width)]


def all_heads(spec: ModelSpec) -> KeptHeads:
    """Returns the kept heads of a dense network: one member, every head."""
    return {t.name: tuple((tuple(range(t.heads)),) for _ in range(t.layers)) for t in spec.towers}


def parameter_count(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Returns the count of numbers in the stored tensors, without the indices of kept features."""
    return sum(prod(shape) for name, shape in shapes.items() if not name.endswith(f".{KEPT}"))
