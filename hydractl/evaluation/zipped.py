"""Arrays in an .npz file, known by their headers before any is read: a small file may promise any amount."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

LARGEST = 2**31  # bytes of an array; it is read whole
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


@dataclass(frozen=True, eq=False)
class ZippedArray:
    """An array of a file, read when it is first asked for."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @cached_property
    def values(self) -> NDArray[Any]:
        """The whole array, in this machine's order of bytes."""
        with np.load(self.path, allow_pickle=False) as file:
            return np.ascontiguousarray(file[self.name], dtype=self.dtype.newbyteorder("="))

    def __getitem__(self, at: Any) -> NDArray[Any]:
        return self.values[at]


def zipped_arrays(path: Path, names: Collection[str]) -> dict[str, ZippedArray]:
    """Those arrays of a file that have one of the names; none is read.

    Raises:
        ValueError, BadZipFile: it is damaged, an array is there twice, of objects, or larger than LARGEST or the file.
    """
    with ZipFile(path) as file:
        wanted = [entry for entry in file.infolist() if entry.filename.removesuffix(".npy") in names]
        if len({entry.filename for entry in wanted}) < len(wanted):
            raise ValueError("holds an array twice")
        return {array.name: array for array in (_header(path, file, entry) for entry in wanted)}


def _header(path: Path, file: ZipFile, entry: ZipInfo) -> ZippedArray:
    name = entry.filename.removesuffix(".npy")
    with file.open(entry) as content:
        version = npy.read_magic(content)
        if version not in HEADERS:
            raise ValueError(f"{name} is of an unknown version of the format")
        shape, _, dtype = HEADERS[version](content)
        start = content.tell()
    if dtype.hasobject:
        raise ValueError(f"{name} holds objects, which may run anything when they are read: save numbers")
    size = prod(shape) * dtype.itemsize
    if max(size, entry.file_size) > LARGEST:
        raise ValueError(f"{name} is larger than the {LARGEST} bytes that are read of it: save it as .safetensors")
    if start + size > entry.file_size or min(shape, default=0) < 0:
        raise ValueError(f"{name} of shape {list(shape)} is not all there")
    return ZippedArray(path, name, shape, dtype)
