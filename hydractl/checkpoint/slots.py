"""The tensor-name table: every tensor of a network, its shape, and how members store it.

Names are those of the file and of the module alike. A slot's shape is that of one dense network; `stored_shapes`
returns shapes for M members that keep some heads and units each.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import ImageEmbeddings, TextEmbeddings, TowerSpec

#: The groups for `fuse --separate`; attention always stays with its member.
GROUPS = ("attention", "mlp", "norm", "embeddings", "pooler", "projection", "classifier")


@dataclass(frozen=True)
class Slot:
    """One tensor of a dense network.

    `head_axis` is the axis along which heads lie, K or `per_head` entries each, `unit_axis` that of the MLP's units
    (None: not divided into them).
    """

    shape: tuple[int, ...]
    group: str
    tower: str | None = None
    layer: int | None = None
    head_axis: int | None = None
    unit_axis: int | None = None
    per_head: int | None = None

    @property
    def is_attention(self) -> bool:
        return self.group == "attention"


def slots(spec: ModelSpec) -> dict[str, Slot]:
    """Returns every tensor of a network of this spec by name, in forward order."""
    table = {name: slot for tower in spec.towers for name, slot in _tower_slots(tower)}
    if spec.projection is not None:
        for tower in spec.towers:
            shape = (spec.projection, tower.features)
            if tower.projected:
                table[f"{tower.name}.projection.weight"] = Slot(shape, "projection", tower.name)
            if tower.projected and tower.projection_bias:
                table[f"{tower.name}.projection.bias"] = Slot(shape[:1], "projection", tower.name)
    if spec.prompted:
        for name in ("logit_scale", "logit_bias") if spec.logit_bias else ("logit_scale",):
            table[name] = Slot((), "projection")
    if spec.classes is not None:
        features = spec.towers[0].width if spec.distilled else spec.towers[0].features
        for name in ("classifier", "distillation_classifier") if spec.distilled else ("classifier",):
            table[f"{name}.weight"] = Slot((spec.classes, features), "classifier")
            table[f"{name}.bias"] = Slot((spec.classes,), "classifier")
    return table


def _tower_slots(tower: TowerSpec) -> Iterator[tuple[str, Slot]]:
    yield from _embedding_slots(tower)
    yield from _distance_slots(tower)
    for layer in range(tower.layers):
        yield from _layer_slots(tower, layer)
    d, units = tower.width, tower.mlp_width
    if tower.final_norm:
        yield from _affine(f"{tower.name}.norm", (d,), "norm", tower)
    if tower.pool == "attention":
        yield f"{tower.name}.attention_pool.probe", Slot((d,), "pooler", tower.name)
        shapes = {**dict.fromkeys("qkvo", (d, d)), "norm": (d,), "mlp.fc1": (units, d), "mlp.fc2": (d, units)}
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
    position = (e.positions, d) if e.learned else None
    shapes: dict[str, tuple[int, ...] | None]
    if isinstance(e, ImageEmbeddings):
        shapes = {
            "patch.weight": (d, e.channels, *e.patch_size),
            "patch.bias": (d,) if e.patch_bias else None,
            "class_token": (d,) if e.class_token else None,
            "distillation_token": (d,) if e.distillation_token else None,
            "registers": (e.registers, d) if e.registers else None,
            "position": position,
        }
    else:
        types = (e.token_types, d) if e.token_types else None
        shapes = {"word": (e.vocabulary, d), "position": position, "token_type": types}
    for name, shape in shapes.items():
        if shape is not None:
            yield f"{prefix}.{name}", Slot(shape, "embeddings", tower.name)
    if e.norm:
        yield from _affine(f"{prefix}.norm", (d,), "norm", tower)
    if narrow is not None:
        yield from _affine(f"{prefix}.projection", (tower.width, d), "embeddings", tower)


def _distance_slots(tower: TowerSpec) -> Iterator[tuple[str, Slot]]:
    if (spec := tower.disentangled) is not None:
        prefix, shape = f"{tower.name}.embeddings.distance", (2 * spec.distances, tower.width)
        yield f"{prefix}s", Slot(shape, "embeddings", tower.name)
        if spec.norm:
            yield from _affine(f"{prefix}_norm", shape[1:], "norm", tower)


def _layer_slots(tower: TowerSpec, layer: int) -> Iterator[tuple[str, Slot]]:
    d, rows, prefix = tower.width, tower.heads * tower.head_width, f"{tower.name}.layers.{layer}"
    disentangled = tower.disentangled
    distances = [f"distance_{part}" for part in disentangled.parts if disentangled.own] if disentangled else []
    for part in ("q", "k", "v", *distances):
        name = f"{prefix}.attention.{part}"
        yield f"{name}.weight", Slot((rows, d), "attention", tower.name, layer, 0)
        if tower.qkv_bias and f"attention.{part}" not in tower.unbiased:
            yield f"{name}.bias", Slot((rows,), "attention", tower.name, layer, 0)
    yield f"{prefix}.attention.o.weight", Slot((d, rows), "attention", tower.name, layer, 1)
    if tower.head_norm:
        for norm in ("q_norm", "k_norm"):
            yield from _affine(f"{prefix}.attention.{norm}", (tower.head_width,), "attention", tower, layer)
    if tower.relative is not None:
        shape = (tower.heads, tower.distances)
        yield f"{prefix}.attention.relative", Slot(shape, "attention", tower.name, layer, 0, per_head=1)
    if "attention.o" not in tower.unbiased:
        yield f"{prefix}.attention.o.bias", Slot((d,), "attention", tower.name, layer)
    if layer or tower.first_norm:
        yield from _affine(f"{prefix}.attention_norm", (d,), "norm", tower, layer)
    if tower.layer_scale:
        # The attention is its member's own, and so is its scale.
        yield f"{prefix}.attention_scale", Slot((d,), "attention", tower.name, layer)
        yield f"{prefix}.mlp_scale", Slot((d,), "mlp", tower.name, layer)
    axes: tuple[int | None, int | None] = (None, None) if tower.unit_norm else (0, 1)
    for part in ("fc1", "factor") if tower.gated else ("fc1",):
        yield from _affine(f"{prefix}.mlp.{part}", (tower.mlp_width, d), "mlp", tower, layer, unit_axis=axes[0])
    if tower.unit_norm:
        yield from _affine(f"{prefix}.mlp.norm", (tower.mlp_width,), "norm", tower, layer)
    yield from _affine(f"{prefix}.mlp.fc2", (d, tower.mlp_width), "mlp", tower, layer, unit_axis=axes[1])
    yield from _affine(f"{prefix}.mlp_norm", (d,), "norm", tower, layer)


def _affine(
    name: str,
    weight: tuple[int, ...],
    group: str,
    tower: TowerSpec,
    layer: int | None = None,
    *,
    part: str | None = None,
    unit_axis: int | None = None,
) -> Iterator[tuple[str, Slot]]:
    """Yields a weight `[out]` or `[out,in]` and its bias `[out]`, if the tower's maps of that part have one.

    Args:
        part: default: the group.
        unit_axis: of the weight; units along its rows have a bias each.
    """
    yield f"{name}.weight", Slot(weight, group, tower.name, layer, unit_axis=unit_axis)
    if (part or group) not in tower.unbiased:
        yield f"{name}.bias", Slot(weight[:1], group, tower.name, layer, unit_axis=0 if unit_axis == 0 else None)


def all_heads(spec: ModelSpec) -> KeptHeads:
    """Returns the kept heads of a dense network: one member, every head."""
    return {t.name: tuple((tuple(range(t.heads)),) for _ in range(t.layers)) for t in spec.towers}


def parameter_count(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Returns the count of numbers in the stored tensors."""
    return sum(map(prod, shapes.values()))
