"""Tensors that stay on disk until somebody asks, and a file's bytes: mapped when read, streamed when written.

torch is imported only where numbers are read, so that `inspect` of a file starts at once.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from hydractl.checkpoint.output import write_atomically
from hydractl.errors import CheckpointError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

SMALL = 2**16  # bytes; a mapping costs a page or two, so smaller tensors are copied
LINE = 64  # bytes of a cache line

#: What a file calls a dtype, and what torch calls it.
DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
ITEM_BYTES = {kind: int(kind.lstrip("BFIUOL") or 8) // 8 for kind in DTYPES}
_KINDS = {name: kind for kind, name in DTYPES.items()}


@dataclass(frozen=True)
class LazyTensor:
    """A tensor whose numbers are read when `load` is called, at each call again."""

    shape: tuple[int, ...]
    kind: str  # what a file calls its dtype, such as F32
    load: Callable[[], Tensor]

    @property
    def dtype(self) -> torch.dtype:
        """Its dtype; loads torch."""
        return torch_dtype(self.kind)


@dataclass(frozen=True)
class StoredNumbers:
    """The numbers of a tensor that lies in a file as it is; called, it returns the tensor."""

    name: str  # of the file and the tensor, for messages
    file: BinaryIO
    start: int  # the first byte in the file
    kind: str  # what the file calls the dtype
    shape: tuple[int, ...]

    def __call__(self) -> Tensor:
        path, _, tensor = self.name.rpartition(": ")
        try:
            return map_tensor(self.file, self.start, torch_dtype(self.kind), self.shape)
        except ValueError as error:
            raise CheckpointError(f"{self.name} {error}: the checkpoint is damaged") from error
        except OSError as error:
            raise CheckpointError(f"{path}: cannot read {tensor} ({error}): fetch or write the file again") from error

    def rows(self, start: int, end: int) -> StoredNumbers:
        """Returns some of its rows, which can be read alone."""
        row = prod(self.shape[1:]) * ITEM_BYTES[self.kind]
        return replace(self, start=self.start + start * row, shape=(end - start, *self.shape[1:]))

    def raw(self) -> memoryview:
        """Returns its bytes."""
        size = prod(self.shape) * ITEM_BYTES[self.kind]
        return _mapped(self.file, self.start, size)[0] if size else memoryview(b"")


TensorMap = Mapping[str, LazyTensor]


def in_memory(tensor: Tensor) -> LazyTensor:
    """Returns a tensor that lies in memory as one that `load` returns."""
    return LazyTensor(tuple(tensor.shape), kind_of(tensor.dtype), lambda: tensor)


def selected(tensor: LazyTensor, axis: int, entries: Sequence[int]) -> LazyTensor:
    """Returns some entries of a tensor along an axis."""
    shape = tuple(len(entries) if i == axis else n for i, n in enumerate(tensor.shape))

    def load() -> Tensor:
        import torch

        return tensor.load().index_select(axis, torch.tensor(entries, dtype=torch.long))

    return LazyTensor(shape, tensor.kind, load)


def kind_of(dtype: torch.dtype) -> str:
    """Returns what a file calls a dtype."""
    return _KINDS[str(dtype).removeprefix("torch.")]


def torch_dtype(kind: str) -> torch.dtype:
    """Returns the dtype that a file calls by this name."""
    import torch

    return getattr(torch, DTYPES[kind])


def float32_numbers(tensor: LazyTensor) -> NDArray[np.float32]:
    """Returns the numbers of a tensor of float32; those of a file without torch."""
    import numpy as np

    load = tensor.load
    if isinstance(load, StoredNumbers):
        return np.frombuffer(load.raw(), np.float32).reshape(tensor.shape)
    return load().numpy()


def map_tensor(file: BinaryIO, start: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Returns the tensor that lies in `file` from byte `start` on; writing to it leaves the file as it is.

    The file may be replaced meanwhile, as every writer of this project does, but not written to in place. Every tensor
    has a mapping of its own, which goes when the tensor goes.

    Raises:
        ValueError: it holds NaN or infinite numbers.
        OSError: the file cannot be mapped.
    """
    import torch

    size = prod(shape) * dtype.itemsize
    if not size:
        return torch.empty(shape, dtype=dtype)
    content, mapping = _mapped(file, start, size)
    raw = torch.frombuffer(content, dtype=torch.uint8)
    # Products of float64 round by where their factors lie.
    copied = size < SMALL or start % (16 if dtype == torch.float64 else dtype.itemsize)
    tensor = (raw.clone() if copied else raw).view(dtype).view(shape)
    if not is_finite(tensor):
        raise ValueError("holds NaN or infinite numbers")
    if not copied and hasattr(mmap, "MADV_DONTNEED"):
        # The pages just looked through stay in the system's cache; this process takes up those it computes with.
        mapping.madvise(mmap.MADV_DONTNEED)
    return tensor


def _mapped(file: BinaryIO, start: int, size: int) -> tuple[memoryview, mmap.mmap]:
    first = start // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    mapping = mmap.mmap(file.fileno(), start - first + size, access=mmap.ACCESS_COPY, offset=first)
    return memoryview(mapping)[start - first :], mapping


def rounded(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the tensor in `dtype`, each number rounded once, to the nearest."""
    import torch

    if tensor.dtype != torch.float64 or dtype.itemsize > 2:
        return tensor.to(dtype)
    # torch converts float64 to a two-byte type through float32 and so rounds twice. Instead of rounding to float32,
    # digits are cut off, and the last bit is set where any were: the number then lies on the same side of every
    # midpoint between two-byte numbers as before, so the conversion that follows is the only rounding.
    single = tensor.float()
    bits = single.view(torch.int32) - (single.double().abs() > tensor.abs()).int()
    return (bits | (single.double() != tensor).int()).view(torch.float32).to(dtype)


def is_finite(tensor: Tensor) -> bool:
    """Tells whether all numbers of a tensor are finite."""
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
    import torch

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
        header[name] = {"dtype": kind_of(dtype), "shape": list(shape), "data_offsets": [starts[name], end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % LINE)
    prefix = len(text).to_bytes(8, "little") + text
    return prefix, {name: len(prefix) + start for name, start in starts.items()}
