"""LoRA adapters as the library peft saves them: folders with an adapter_config.json and no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

from hydractl.checkpoint.contents import Checkpoint, shorten, tensors_identity
from hydractl.checkpoint.disk import open_weights, read_json_object
from hydractl.checkpoint.slots import Slot, slots
from hydractl.checkpoint.spec import AdaptedPart, Adapter, ModelSpec
from hydractl.checkpoint.tensors import LazyTensor, TensorMap
from hydractl.checkpoint.tower_spec import RANGES
from hydractl.errors import CheckpointError, OptionError
from hydractl.families import FAMILIES
from hydractl.families.convert import Untrained
from hydractl.families.family import locate
from hydractl.schema import Checked, Origin, Schema, document

if TYPE_CHECKING:
    import torch

CONFIG, WEIGHTS, PICKLE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."
FACTORS = {"lora_A.weight": "lora_a", "lora_B.weight": "lora_b"}
#: Fields that describe the training of an adapter and do not change what it computes.
DESCRIPTIVE = frozenset(
    {"task_type", "auto_mapping", "base_model_name_or_path", "revision", "inference_mode", "lora_dropout",
     "peft_version", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "modules_to_save",
     "loftq_config", "eva_config", "megatron_core", "qalora_group_size", "runtime_config"}
)  # fmt: skip


class _AdapterConfig(Schema, extra="ignore"):
    """The fields that decide what an adapter computes; any other must be descriptive or empty."""

    peft_type: Literal["LORA"]
    r: Annotated[int, Checked(ge=1, le=int(RANGES["size"][1]))]
    lora_alpha: Annotated[float, Checked(ge=0, le=RANGES["scale"][1])]
    use_rslora: bool = False
    bias: Literal["none"] = "none"
    # All other ways change the network's own weights by the initial factors.
    init_lora_weights: Literal[True, False, "gaussian", "orthogonal", "eva"] = True

    @property
    def scale(self) -> float:
        return self.lora_alpha / (self.r**0.5 if self.use_rslora else self.r)


@dataclass(frozen=True)
class _SavedAdapter:
    """The content of one folder, its tensors by our names."""

    name: str
    config: _AdapterConfig
    tensors: TensorMap


def is_adapter(reference: object) -> bool:
    """Tells whether a reference names a folder that peft wrote."""
    return isinstance(reference, str | Path) and (Path(reference) / CONFIG).is_file()


def adapter_identity(folder: str | Path) -> str:
    """Returns the hash of an adapter's tensors, made as that of a model."""
    return tensors_identity(_weights(Path(folder)))


def with_adapters(base: Checkpoint, folders: Sequence[str | Path]) -> Checkpoint:
    """Returns a LoRA-Ensemble: the network with one member per adapter, in the order given.

    Raises:
        CheckpointError: a folder cannot be read, or its adapter is not LoRA, belongs to another network, or differs
            from the first in maps, rank or scale.
        OptionError: the network already has members or adapters.
    """
    if base.members > 1 or base.spec.adapter is not None:
        raise OptionError(f"{base.name}: has {base.members} members: give adapters a network with one member")
    our_names = _our_names(base)
    read = [_read_adapter(Path(folder), our_names) for folder in folders]
    spec = replace(base.spec, adapter=_agreed(read, base.spec))
    table, tensors, adapted = slots(spec), dict(base.tensors), set[str]()
    for name in sorted({name for adapter in read for name in adapter.tensors}):
        if name not in table:
            raise CheckpointError(f"{read[0].name}: {name} belongs to a map that not all adapters change")
        adapted.add(name)
        tensors[name] = _stacked(name, table[name], base, read)
    layout = replace(base.layout.pick(spec, [0] * len(read)), shared=frozenset(table) - adapted)
    ensemble = base.with_layout(layout, spec, tensors)
    ensemble.verify()
    return ensemble


def base_for_adapters(base: Checkpoint, folders: Sequence[str | Path]) -> Checkpoint:
    """Returns a base network with a classifier as large as that which adapters bring.

    Raises:
        CheckpointError: an adapter lacks what the network lacks, or cannot be read.
    """
    our_names = _our_names(base)
    read = [_read_adapter(Path(folder), our_names) for folder in folders]
    lacks = {name: tensor.load for name, tensor in base.tensors.items() if isinstance(tensor.load, Untrained)}
    for adapter in read:
        if missing := sorted(lacks.keys() - adapter.tensors.keys()):
            raise CheckpointError(
                f"{adapter.name}: has no {missing[0]}, and neither has {base.name}: name the network it was trained on"
            )
    classes = read[0].tensors["classifier.weight"].shape[0]
    spec, labels = replace(base.spec, classes=classes), tuple(f"LABEL_{i}" for i in range(classes))
    grown = {
        name: LazyTensor(slot.shape, lacks[name].dtype, Untrained(name, slot, lacks[name].dtype))
        for name, slot in slots(spec).items()
        if name in lacks
    }
    names = {str(i): label for i, label in enumerate(labels)}
    config = {**base.config, "id2label": names, "label2id": {label: i for i, label in enumerate(labels)}}
    labelled = base if base.spec.classes == classes else replace(base, labels=labels, config=config)
    return replace(labelled, spec=spec, tensors={**base.tensors, **grown})


def _our_names(base: Checkpoint) -> dict[str, str]:
    """Maps their tensor names to ours, in each spelling that a release of the library has used."""
    family = next(each for each in FAMILIES if each.name == base.family)
    spellings = family.names(base.config)
    places = [(name, locate(spelling, name)) for spelling in spellings for name in slots(base.spec)]
    # A tensor of theirs that holds several maps of ours, or one transposed, takes no factors.
    return {place.name: name for name, place in places if place.parts == 1 and not place.transposed}


def _read_adapter(folder: Path, our_names: Mapping[str, str]) -> _SavedAdapter:
    origin = Origin(str(folder / CONFIG), CheckpointError, "merge it into its network by peft")
    settings = document(read_json_object(folder / CONFIG), origin)
    config = settings.read(_AdapterConfig)
    other = sorted(
        name for name, value in settings.fields.items() if value and name not in DESCRIPTIVE | vars(config).keys()
    )
    if other:
        raise origin.refusal(f"{other[0]} is set, which changes what the adapter computes and is not supported")
    tensors, unknown = {}, []
    for key, tensor in _weights(folder).items():
        ours = _our_name(key, our_names)
        unknown += [key] if ours is None or ours in tensors else []
        if ours is not None:
            tensors[ours] = tensor
    if unknown:
        raise CheckpointError(f"{folder}: tensors that no map of this network claims: {shorten(sorted(unknown))}")
    return _SavedAdapter(str(folder), config, tensors)


def _weights(folder: Path) -> TensorMap:
    file = next((folder / name for name in (WEIGHTS, PICKLE) if (folder / name).is_file()), None)
    if file is None:
        raise CheckpointError(f"{folder}: has no {WEIGHTS}: save the adapter again")
    return open_weights(file)[0]


def _our_name(key: str, our_names: Mapping[str, str]) -> str | None:
    """Returns our name of an adapter's tensor: a factor beside a weight, or a tensor that was trained whole."""
    if not key.startswith(PREFIX):
        return None
    theirs = key.removeprefix(PREFIX)
    for ending, factor in FACTORS.items():
        if theirs.endswith(f".{ending}"):
            weight = our_names.get(f"{theirs.removesuffix(ending)}weight")
            return None if weight is None else f"{weight.removesuffix('weight')}{factor}"
    return our_names.get(theirs)


def _agreed(adapters: Sequence[_SavedAdapter], spec: ModelSpec) -> Adapter:
    """Describes the change that all adapters make to the network."""
    first = adapters[0]
    for other in adapters[1:]:
        for what, a, b in (("r", first.config.r, other.config.r), ("scale", first.config.scale, other.config.scale)):
            if a != b:
                raise CheckpointError(f"{other.name}: {what} is {b:g}, but {a:g} in {first.name}: members must agree")
        if missing := _factors(other) ^ _factors(first):
            raise CheckpointError(
                f"{other.name}: does not change the same maps as {first.name}: {shorten(sorted(missing))}"
            )
    if not _factors(first):
        raise CheckpointError(f"{first.name}: holds no LoRA factors: name a LoRA adapter")
    plain = slots(spec)
    linear = {name.rpartition(".")[0]: plain[f"{name.rpartition('.')[0]}.weight"] for name in _factors(first)}
    layers = [slot.layer for slot in linear.values() if slot.layer is not None]
    parts = {name.removeprefix(f"{s.tower}.").removeprefix(f"layers.{s.layer}.") for name, s in linear.items()}
    adapted = tuple(part for part in get_args(AdaptedPart) if part in parts)
    adapter = Adapter("low-rank", cast(tuple[AdaptedPart, ...], adapted), min(layers, default=0), first.config.r,
                      first.config.scale)  # fmt: skip
    expected = {name for name in slots(replace(spec, adapter=adapter)) if name.endswith((".lora_a", ".lora_b"))}
    if uneven := expected ^ _factors(first):
        raise CheckpointError(
            f"{first.name}: does not change the same maps in every layer from {adapter.first} on: "
            f"{shorten(sorted(uneven))}: train it on all of them"
        )
    return adapter


def _factors(adapter: _SavedAdapter) -> set[str]:
    return {name for name in adapter.tensors if name.endswith((".lora_a", ".lora_b"))}


def _stacked(name: str, slot: Slot, base: Checkpoint, adapters: Sequence[_SavedAdapter]) -> LazyTensor:
    """Stacks a tensor of all members, `[M,...]`; members without their own have the network's."""
    if slot.is_attention:
        raise CheckpointError(f"{adapters[0].name}: {name} was trained in full: attention supports LoRA factors only")
    each = [adapter.tensors.get(name) or base.tensors[name] for adapter in adapters]
    weight = base.tensors[name if name in base.tensors else f"{name.rpartition('.')[0]}.weight"]
    rank = adapters[0].config.r
    factors = {"lora_a": (rank, weight.shape[-1]), "lora_b": (weight.shape[0], rank)}
    shape = factors.get(name.rpartition(".")[2], weight.shape)
    for adapter, tensor in zip(adapters, each, strict=True):
        if tuple(tensor.shape) != tuple(shape) or not tensor.dtype.is_floating_point:
            raise CheckpointError(
                f"{adapter.name}: {name} is {list(tensor.shape)} of {tensor.dtype}, expected floating-point numbers "
                f"{list(shape)}: is it an adapter of this network?"
            )

    def load() -> torch.Tensor:
        import torch

        return torch.stack([tensor.load().to(weight.dtype) for tensor in each])

    return LazyTensor((len(each), *each[0].shape), weight.dtype, load)
