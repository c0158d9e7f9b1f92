"""Settings of the whole process in which models run."""

from __future__ import annotations

import ctypes
import platform

import torch

# Of glibc's <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def prepare_process() -> None:
    """Sets precision and memory for models of the float32 and the speed that a comparison wants."""
    # Equality and calibration want full float32 products; TF32 keeps ten bits of each factor.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    _keep_memory()


def _keep_memory() -> None:
    """Has freed memory stay with the process, for the next activation of that size."""
    # Otherwise glibc hands a large block back as soon as it is free and takes fresh pages, cleared by the system, for
    # the next layer. Measured on ViT-B/16, a Hydra of three members on a batch of 4: 15,000 to 92,000 page faults and
    # .04 to .2 of .95 s a forward pass, against none.
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(M_MMAP_MAX, 0)
