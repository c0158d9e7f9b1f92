"""Streams tensors into a safetensors file one at a time, the same bytes for the same input.

The library's own writer wants all tensors in memory at once and writes the header's metadata in random order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from hydractl.checkpoint.output import write_atomically
from hydractl.checkpoint.tensors import DTYPES, TensorMap

LINE = 64  # bytes
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def write_safetensors(path: Path, tensors: TensorMap, metadata: dict[str, str], force: bool = False) -> None:
    """Writes `tensors` to `path` atomically, holding one of them in memory at a time.

    Raises:
        OutputError: see `write_atomically`.
    """
    header, starts = layout({name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}, metadata)
    with write_atomically(path, force) as file:
        file.write(header)
        for name in starts:
            file.write(tensor_bytes(tensors[name].load()))


def tensor_bytes(tensor: Tensor) -> memoryview:
    """The little-endian bytes of a tensor in row-major order, without a copy where it lies so already."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy().data) if flat.numel() else memoryview(b"")


def dtype_name(dtype: torch.dtype) -> str:
    """The format's name of a dtype, e.g. `F32`."""
    return _NAMES[dtype]


def layout(
    tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], metadata: dict[str, str]
) -> tuple[bytes, dict[str, int]]:
    """The header of a file of these tensors, and the byte of the file where each starts, in the file's order.

    Args:
        tensors: dtype and shape by name.
    """
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    starts: dict[str, int] = {}
    end = 0
    # The format wants each tensor aligned to its item size: wide items first keeps that true without gaps. Tensors of
    # whole cache lines before the others: mapped into memory, they lie where an allocator would put them.
    sizes = {name: prod(shape) * dtype.itemsize for name, (dtype, shape) in tensors.items()}
    for name in sorted(tensors, key=lambda name: (-tensors[name][0].itemsize, sizes[name] % LINE != 0, name)):
        dtype, shape = tensors[name]
        starts[name], end = end, end + sizes[name]
        header[name] = {"dtype": dtype_name(dtype), "shape": list(shape), "data_offsets": [starts[name], end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % LINE)
    prefix = len(text).to_bytes(8, "little") + text
    return prefix, {name: len(prefix) + start for name, start in starts.items()}
