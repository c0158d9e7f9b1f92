"""LoRA adapters as the library peft saves them: folders with an adapter_config.json and no network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from hydractl.checkpoint.contents import Checkpoint, shorten, tensors_identity
from hydractl.checkpoint.disk import open_weights, read_json_object
from hydractl.checkpoint.slots import slots
from hydractl.checkpoint.tensors import LazyTensor, TensorMap, rounded
from hydractl.errors import CheckpointError, OptionError
from hydractl.families import FAMILIES
from hydractl.families.convert import Untrained
from hydractl.families.family import locate
from hydractl.schema import Checked, Origin, Schema, document

if TYPE_CHECKING:
    import torch

CONFIG, WEIGHTS, PICKLE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."
A, B = ".lora_A.weight", ".lora_B.weight"  # behind the name of a map
#: Fields that describe the training of an adapter and do not change what it computes.
DESCRIPTIVE = frozenset(
    {"task_type", "auto_mapping", "base_model_name_or_path", "revision", "inference_mode", "lora_dropout",
     "peft_version", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "modules_to_save",
     "loftq_config", "eva_config", "megatron_core", "qalora_group_size", "runtime_config"}
)  # fmt: skip


class _AdapterConfig(Schema, extra="ignore"):
    """The fields that decide what an adapter computes; any other must be descriptive or empty."""

    peft_type: Literal["LORA"]
    r: Annotated[int, Checked(ge=1, le=2**20)]
    lora_alpha: Annotated[float, Checked(ge=0, le=1e6)]
    use_rslora: bool = False
    bias: Literal["none"] = "none"
    # All other ways change the network's own weights by the initial factors.
    init_lora_weights: Literal[True, False, "gaussian", "orthogonal", "eva"] = True

    @property
    def scale(self) -> float:
        return self.lora_alpha / (self.r**0.5 if self.use_rslora else self.r)


@dataclass(frozen=True)
class _SavedAdapter:
    """The content of one folder.

    `parts` have our name of the tensor that they change, and the factor of its change that they are; "" stands for a
    tensor that was trained whole.
    """

    name: str
    config: _AdapterConfig
    parts: Mapping[tuple[str, str], LazyTensor]


def is_adapter(reference: object) -> bool:
    """Tells whether a reference names a folder that peft wrote."""
    return isinstance(reference, str | Path) and (Path(reference) / CONFIG).is_file()


def adapter_identity(folder: str | Path) -> str:
    """Returns the hash of an adapter's tensors, made as that of a model."""
    return tensors_identity(_weights(Path(folder)))


def with_adapter(base: Checkpoint, folder: str | Path) -> Checkpoint:
    """Returns the network with an adapter merged into its weights, `W + B A * scale` in float64, rounded once.

    A base network without a classifier takes the adapter's.

    Raises:
        CheckpointError: the folder cannot be read, its adapter is not LoRA or belongs to another network, or lacks
            what the network lacks.
        OptionError: the network has several members.
    """
    if base.members > 1:
        raise OptionError(f"{base.name}: has {base.members} members: give adapters a network with one member")
    adapter = _read_adapter(Path(folder), _our_names(base))
    base = _with_its_classes(base, adapter)
    tensors = dict(base.tensors)
    for name, factor in adapter.parts:
        tensors[name] = (_merged if factor else _replaced)(adapter, name, base.tensors[name])
    return replace(base.with_layout(base.layout, base.spec, tensors), name=adapter.name)


def _with_its_classes(base: Checkpoint, adapter: _SavedAdapter) -> Checkpoint:
    """Returns a base network that lacks a classifier with one as large as the adapter's; others as they are."""
    lacks = {name: tensor.load for name, tensor in base.tensors.items() if isinstance(tensor.load, Untrained)}
    if not lacks:
        return base
    if missing := sorted(lacks.keys() - {name for name, factor in adapter.parts if not factor}):
        raise CheckpointError(
            f"{adapter.name}: has no {missing[0]}, and neither has {base.name}: name the network it was trained on"
        )
    classes = adapter.parts["classifier.weight", ""].shape[0]
    spec, labels = replace(base.spec, classes=classes), tuple(f"LABEL_{i}" for i in range(classes))
    table = slots(spec)
    larger = {name: replace(load, slot=table[name]) for name, load in lacks.items()}
    grown = {name: LazyTensor(load.slot.shape, load.kind, load) for name, load in larger.items()}
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
    allowed = DESCRIPTIVE | vars(config).keys()
    if other := sorted(name for name, value in settings.fields.items() if value and name not in allowed):
        raise origin.refusal(f"{other[0]} is set, which changes what the adapter computes and is not supported")
    parts: dict[tuple[str, str], LazyTensor] = {}
    unknown = []
    for key, tensor in _weights(folder).items():
        factor = next((ending for ending in (A, B) if key.endswith(ending)), "")
        theirs = f"{key.removesuffix(factor)}.weight" if factor else key
        ours = our_names.get(theirs.removeprefix(PREFIX)) if key.startswith(PREFIX) else None
        if ours is None or (ours, factor) in parts:
            unknown.append(key)
        else:
            parts[ours, factor] = tensor
    if unknown:
        raise CheckpointError(f"{folder}: tensors that no map of this network claims: {shorten(sorted(unknown))}")
    if not any(factor for _, factor in parts):
        raise CheckpointError(f"{folder}: holds no LoRA factors: name a LoRA adapter")
    return _SavedAdapter(str(folder), config, parts)


def _weights(folder: Path) -> TensorMap:
    file = next((folder / name for name in (WEIGHTS, PICKLE) if (folder / name).is_file()), None)
    if file is None:
        raise CheckpointError(f"{folder}: has no {WEIGHTS}: save the adapter again")
    return open_weights(file)[0]


def _replaced(adapter: _SavedAdapter, name: str, stored: LazyTensor) -> LazyTensor:
    """Returns a tensor that was trained whole, as the network stores it: an output bias with an axis of one member."""
    tensor = adapter.parts[name, ""]
    _require(adapter, name, tensor, stored.shape[1:] if stored.shape == (1, *tensor.shape) else stored.shape)
    return replace(stored, load=lambda: rounded(tensor.load().reshape(stored.shape), stored.dtype))


def _merged(adapter: _SavedAdapter, name: str, weight: LazyTensor) -> LazyTensor:
    """Returns a weight `[out,in]` with the product of its factors B `[out,r]` and A `[r,in]` added."""
    rows, columns, rank = weight.shape[0], prod(weight.shape[1:]), adapter.config.r
    factors = {}
    for factor, shape in ((A, (rank, columns)), (B, (rows, rank))):
        if (name, factor) not in adapter.parts:
            raise CheckpointError(f"{adapter.name}: {name} has no {factor[1:]}: save the adapter again")
        factors[factor] = adapter.parts[name, factor]
        _require(adapter, f"{factor[1:]} of {name}", factors[factor], shape)

    def load() -> torch.Tensor:
        change = factors[B].load().double() @ factors[A].load().double() * adapter.config.scale
        return rounded(weight.load().double() + change.reshape(weight.shape), weight.dtype)

    return replace(weight, load=load)


def _require(adapter: _SavedAdapter, name: str, tensor: LazyTensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape or not tensor.dtype.is_floating_point:
        raise CheckpointError(
            f"{adapter.name}: {name} is {list(tensor.shape)} of {tensor.dtype}, expected floating-point numbers "
            f"{list(shape)}: is it an adapter of this network?"
        )
