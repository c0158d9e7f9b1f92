"""Tensors that stay on disk until somebody asks, and a file's bytes: mapped when read, streamed when written."""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from hydractl.checkpoint.output import write_atomically

SMALL = 2**16  # bytes; a mapping costs a page or two, so smaller tensors are copied
LINE = 64  # bytes of a cache line

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class LazyTensor:
    """A tensor whose numbers are read when `load` is called, at each call again."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    load: Callable[[], Tensor]


@dataclass(frozen=True)
class StoredTensor(LazyTensor):
    """A lazy tensor that lies in a file as it is, so that some of its rows can be read alone."""

    rows: Callable[[int, int], Tensor]


TensorMap = Mapping[str, LazyTensor]


def map_tensor(file: BinaryIO, start: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Returns the tensor that lies in `file` from byte `start` on; writing to it leaves the file as it is.

    The file may be replaced meanwhile, as every writer of this project does, but not written to in place. Every tensor
    has a mapping of its own, which goes when the tensor goes.

    Raises:
        ValueError: it holds NaN or infinite numbers.
        OSError: the file cannot be mapped.
    """
    size = prod(shape) * dtype.itemsize
    if not size:
        return torch.empty(shape, dtype=dtype)
    first = start // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    mapping = mmap.mmap(file.fileno(), start - first + size, access=mmap.ACCESS_COPY, offset=first)
    raw = torch.frombuffer(mapping, dtype=torch.uint8, offset=start - first)
    # Products of float64 round by where their factors lie.
    copied = size < SMALL or start % (16 if dtype == torch.float64 else dtype.itemsize)
    tensor = (raw.clone() if copied else raw).view(dtype).view(shape)
    if not _finite(tensor):
        raise ValueError("holds NaN or infinite numbers")
    if not copied and hasattr(mmap, "MADV_DONTNEED"):
        # The pages just looked through stay in the system's cache; this process takes up those it computes with.
        mapping.madvise(mmap.MADV_DONTNEED)
    return tensor


def _finite(tensor: Tensor) -> bool:
    # NaN and infinity pass through a sum, the fastest of all passes. The sum of finite numbers may overflow, as in
    # float16; then the extremes decide.
    return bool(tensor.sum().isfinite()) or all(bool(extreme.isfinite()) for extreme in tensor.aminmax())


def write_safetensors(path: Path, tensors: TensorMap, metadata: dict[str, str], force: bool = False) -> None:
    """Writes `tensors` to `path` atomically, with one of them in memory at a time; the same bytes for the same input.

    The library's own writer wants all tensors in memory at once and writes the header's metadata in random order.

    Raises:
        OutputError: see `write_atomically`.
    """
    header, starts = layout({name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}, metadata)
    with write_atomically(path, force) as file:
        file.write(header)
        for name in starts:
            file.write(tensor_bytes(tensors[name].load()))


def tensor_bytes(tensor: Tensor) -> memoryview:
    """Returns the little-endian bytes of a tensor in row-major order, without a copy if possible."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy().data) if flat.numel() else memoryview(b"")


def layout(
    tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], metadata: dict[str, str]
) -> tuple[bytes, dict[str, int]]:
    """Returns the header of a file of these tensors, and the byte at which each starts, in the file's order.

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
        header[name] = {"dtype": DTYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [starts[name], end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % LINE)
    prefix = len(text).to_bytes(8, "little") + text
    return prefix, {name: len(prefix) + start for name, start in starts.items()}
