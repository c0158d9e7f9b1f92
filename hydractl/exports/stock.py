"""Folders of the library that a model came from: a member with zeros for what it lacks."""

from collections.abc import Sequence
from math import log
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.output import write_bytes
from hydractl.checkpoint.sentences import sentence_files
from hydractl.checkpoint.tensors import LazyTensor, write_safetensors
from hydractl.checkpoint.tower_spec import ImageEmbeddings
from hydractl.data.preprocess import for_transformers
from hydractl.errors import CheckpointError, OptionError
from hydractl.families import FAMILIES, Family
from hydractl.families.config import ClassNames, read_config
from hydractl.families.convert import model_spec
from hydractl.families.family import Source, bare, locate
from hydractl.surgery.slicing import dense
from hydractl.text import distinct, printable_json


def write_stock(checkpoint: Checkpoint, folder: Path, force: bool = False) -> None:
    """Writes a checkpoint of one member as transformers (timm, OpenCLIP) would, to be loaded by it as any other.

    A head or unit that was dropped contributes nothing there because its columns of the output projection are zero. A
    calibrated temperature is divided out of the classifier, because such a folder has no field for it.

    Raises:
        CheckpointError: the config it holds is damaged, or of a family that is not known.
        OptionError: the checkpoint has several members, or positions that its library would interpolate again.
        OutputError: a file exists and `force` is not set, or the disk refuses it.
    """
    if checkpoint.members > 1:
        raise OptionError(
            f"{checkpoint.name}: has {checkpoint.members} members, which no other library supports: export it as a "
            "hydra"
        )
    # So far only the manifest's own spec was checked, not the config that it carries.
    family = next((family for family in FAMILIES if family.name == checkpoint.family), None)
    if family is None:
        raise CheckpointError(f"{checkpoint.name}: its family {checkpoint.family!r} is unknown: update hydractl")
    model_spec(checkpoint.name, family, checkpoint.config)
    _refuse_interpolated(family, checkpoint)
    if checkpoint.spec.classes is None and family.base is not None:
        family = bare(family, family.base)
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / family.config_file, to_json(source_config(family, checkpoint)), force)
    for name, content in _preprocessing(family, checkpoint).items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_bytes(folder / name, content.encode() if isinstance(content, str) else to_json(content), force)
    write_safetensors(folder / family.weights_file, their_tensors(family, checkpoint), {"format": "pt"}, force)


def _refuse_interpolated(family: Family, checkpoint: Checkpoint) -> None:
    """Raises OptionError if its library, which takes a table of positions for one of a square, would interpolate it."""
    embeddings = checkpoint.spec.towers[0].embeddings
    if family.interpolation is None or not isinstance(embeddings, ImageEmbeddings) or not embeddings.learned:
        return
    if embeddings.grid[0] != embeddings.grid[1]:
        rows, columns = embeddings.grid
        raise OptionError(
            f"{checkpoint.name}: has positions for {rows} x {columns} patches, which transformers takes for those of a "
            "square: export it as a hydra, with `as_hydra`"
        )


def to_json(value: object) -> bytes:
    """Returns the bytes of a JSON file that a person can read."""
    return (printable_json(value) + "\n").encode()


def source_config(family: Family, checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the config of the library that a checkpoint came from, with its present labels."""
    labels = library_labels(checkpoint)
    if family.to_source is not None:
        return family.to_source(checkpoint.config, labels)
    dtype = str(checkpoint.dtype).removeprefix("torch.")
    architectures = {"architectures": list(family.architectures[:1])} if family.architectures else {}
    config = {**checkpoint.config, **architectures, "dtype": dtype}
    return config | (label_fields(labels) if labels is not None else {})


def library_labels(checkpoint: Checkpoint) -> tuple[str, ...] | None:
    """Returns the names of its classes as the config has them, where two may be equal, unless it has others."""
    names = read_config(checkpoint.name, checkpoint.config, ClassNames).labels
    return names if checkpoint.labels == distinct(names) else checkpoint.labels


def label_fields(labels: Sequence[str]) -> dict[str, Any]:
    """Returns the fields by which a config.json names its classes."""
    id2label = {str(i): label for i, label in enumerate(labels)}
    return {"id2label": id2label, "label2id": {label: i for i, label in enumerate(labels)}}


def _preprocessing(family: Family, checkpoint: Checkpoint) -> dict[str, Any]:
    # timm and OpenCLIP keep what their image transforms need in the config.
    kept_elsewhere = {"preprocessor_config.json"} if family.to_source is not None else set()
    files = {name: content for name, content in for_transformers(checkpoint).items() if name not in kept_elsewhere}
    return files | sentence_files(checkpoint.spec, files.get("tokenizer_config.json", {}).get("model_max_length"))


def their_tensors(family: Family, checkpoint: Checkpoint) -> dict[str, LazyTensor]:
    """Returns the tensors of a dense network under the names of the library it came from, still unread."""
    spelling = family.names(checkpoint.config)[family.saved_as(checkpoint.config)]
    pieces: dict[str, dict[int, tuple[Source, LazyTensor]]] = {}
    for name, slot in checkpoint.slots().items():
        source = locate(spelling, name)
        tensor = _calibrated(checkpoint, name, dense(checkpoint, slot, checkpoint.tensors[name]))
        if source.part in (pieces.setdefault(source.name, {})):
            tensor = _agreed(checkpoint, source.name, pieces[source.name][source.part][1], tensor)
        pieces[source.name][source.part] = (source, tensor)
    return {name: _joined([parts[i] for i in sorted(parts)]) for name, parts in pieces.items()}


def _calibrated(checkpoint: Checkpoint, name: str, tensor: LazyTensor) -> LazyTensor:
    temperature = checkpoint.calibration.divisor
    if temperature == 1.0:
        return tensor
    if name == "logit_scale":  # its exponential multiplies
        return LazyTensor(tensor.shape, tensor.kind, lambda: tensor.load() - log(temperature))
    if "classifier." in name or name == "logit_bias":
        return LazyTensor(tensor.shape, tensor.kind, lambda: tensor.load() / temperature)
    return tensor


def _agreed(checkpoint: Checkpoint, name: str, first: LazyTensor, second: LazyTensor) -> LazyTensor:
    """Returns a table that two layers share there: heads that one of them lacks, which are zeros, from the other.

    Raises:
        OptionError: the layers' own tables differ, since they were trained.
    """

    def load() -> Tensor:
        left, right = first.load(), second.load()
        dropped = [(table == 0).all(1, keepdim=True) for table in (left, right)]
        if not (dropped[0] | dropped[1] | (left == right).all(1, keepdim=True)).all():
            raise OptionError(
                f"{checkpoint.name}: its layers differ in {name}, which its library stores once for all layers: export "
                "it as a hydra"
            )
        return torch.where(dropped[0], right, left)

    return LazyTensor(first.shape, first.kind, load)


def _joined(parts: Sequence[tuple[Source, LazyTensor]]) -> LazyTensor:
    """Returns one tensor of theirs, made of our parts of it."""
    source, first = parts[0]
    if source.parts > 1:
        shape = (sum(tensor.shape[0] for _, tensor in parts), *first.shape[1:])
        return LazyTensor(shape, first.kind, lambda: torch.cat([tensor.load() for _, tensor in parts]))
    if source.transposed:
        return LazyTensor(first.shape[::-1], first.kind, lambda: first.load().T.contiguous())
    shape = (1,) * (source.axes - len(first.shape)) + first.shape
    return LazyTensor(shape, first.kind, lambda: first.load().reshape(shape))
