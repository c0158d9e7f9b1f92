"""Parts of a file as tensors that are mapped, not read: opening a model takes no memory until it is run."""

from __future__ import annotations

import mmap
from math import prod
from typing import BinaryIO

import torch
from torch import Tensor

SMALL = 2**16  # bytes; a mapping costs a page or two, so that what is smaller is copied


def map_tensor(file: BinaryIO, start: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """The tensor that lies in `file` from byte `start` on; to write to it leaves the file as it is.

    The file may be replaced meanwhile, as every writer of this project does, but not written to in place.

    Every tensor has a mapping of its own, which goes when the tensor goes.

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
    # NaN and infinity pass through a sum, the fastest of all passes. The sum of finite numbers may be infinite too,
    # as in float16; what they pass through then is extremes.
    return bool(tensor.sum().isfinite()) or all(bool(extreme.isfinite()) for extreme in tensor.aminmax())
