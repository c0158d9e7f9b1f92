"""Tensors of a file that torch.save wrote, read by torch's unpickler of tensors and plain containers alone."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.checkpoint.tensors import DTYPES, LazyTensor, is_finite
from hydractl.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

REMEDY = "load the model with the library that wrote it and save it as safetensors"


def open_pickle(path: Path) -> dict[str, LazyTensor]:
    """Returns the tensors of a file that holds a state dict, by name; those of a zip archive are mapped.

    Raises:
        CheckpointError: the file is damaged, or holds anything but tensors by name; nothing of it is run.
    """
    import torch

    is_archive = _is_plain_archive(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
    except Exception as error:  # torch raises any kind of error on a damaged file, with advice to run its code
        raise CheckpointError(f"{path}: is a pickle of more than tensors, or damaged: {REMEDY}") from error
    if not isinstance(content, Mapping) or not content:
        raise CheckpointError(f"{path}: holds no tensors by name: {REMEDY}")
    return {_name(path, key): _lazy(path, str(key), value) for key, value in content.items()}


def _is_plain_archive(path: Path) -> bool:
    """Tells archives from the pickles of torch before 1.6, and refuses compressed ones, which may be of any size."""
    if not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError(f"{path}: is damaged: fetch or write it again") from error
    if any(entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size for entry in entries):
        raise CheckpointError(f"{path}: is compressed, as torch.save writes no file: {REMEDY}")
    return True


def _name(path: Path, key: object) -> str:
    if not isinstance(key, str):
        raise CheckpointError(f"{path}: names a tensor by a {type(key).__name__}: {REMEDY}")
    return key


def _lazy(path: Path, name: str, value: Any) -> LazyTensor:
    import torch

    if not isinstance(value, torch.Tensor):
        raise CheckpointError(f"{path}: {name} is no tensor but a {type(value).__name__}: {REMEDY}")
    kind = next((kind for kind, dtype in DTYPES.items() if value.dtype == getattr(torch, dtype)), None)
    if kind is None or value.layout != torch.strided or value.device.type != "cpu":
        raise CheckpointError(f"{path}: {name} is a {value.dtype} tensor of another kind: convert it to float32")
    # Strides may repeat a few numbers any number of times.
    if value.numel() * value.itemsize > value.untyped_storage().nbytes():
        raise CheckpointError(f"{path}: {name} has more numbers than the file holds: {REMEDY}")
    tensor = value.detach()

    def load() -> Tensor:
        if not is_finite(tensor):
            raise CheckpointError(f"{path}: {name} holds NaN or infinite numbers: the checkpoint is damaged")
        return tensor.contiguous()

    return LazyTensor(tuple(tensor.shape), kind, load)
