"""A LoRA-Ensemble as the library peft reads it: the network by itself, and a folder with an adapter for each member."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hydractl.checkpoint.atomic import write_bytes
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.slots import slots
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.checkpoint.writer import write_safetensors
from hydractl.errors import OptionError
from hydractl.families.peft import CONFIG, WEIGHTS, adapter_files
from hydractl.formats.stock import to_json, write_stock

BASE = "network"


def write_adapters(checkpoint: Checkpoint, folder: Path) -> None:
    """Writes the network that members share, for transformers, and `member0`, `member1` ... beside it.

    The network has the classifier of the first member; each adapter brings its own.

    Raises:
        OptionError: no LoRA-Ensemble, or calibrated: an adapter cannot name a temperature.
        OutputError: the disk refuses it.
    """
    if checkpoint.temperature not in (None, 1.0):
        raise OptionError(f"{checkpoint.name}: is calibrated, of which adapters can tell nothing: export it as hf")
    members = adapter_files(checkpoint)
    write_stock(_network(checkpoint), folder / BASE)
    for number, (config, tensors) in enumerate(members):
        place = folder / f"member{number}"
        place.mkdir()
        write_bytes(place / CONFIG, to_json(config), force=False)
        write_safetensors(place / WEIGHTS, tensors, {"format": "pt"}, force=False)


def _network(checkpoint: Checkpoint) -> Checkpoint:
    """The one network without what members change of it."""
    plain = checkpoint.spec.plain
    table = slots(plain)
    first = {name: tuple((members[0],) for members in layers) for name, layers in checkpoint.heads.items()}

    def of_first(name: str) -> LazyTensor:
        tensor = checkpoint.tensors[name]
        if name in checkpoint.shared:
            return tensor
        return LazyTensor(tensor.shape[1:], tensor.dtype, lambda: tensor.load()[0])

    tensors = {name: of_first(name) for name in table}
    return replace(checkpoint, spec=plain, heads=first, shared=frozenset(table), tensors=tensors)
