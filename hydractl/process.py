"""Settings of the whole process in which models run. They are made by the command line, or by a user who asks."""

from __future__ import annotations

import ctypes
import platform

# Of glibc's <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def prepare() -> None:
    """Makes a process fit for comparing and timing models; neither importing hydractl nor loading a model does so.

    TF32 is turned off, as equality and calibration want full float32 products and TF32 keeps ten bits of each factor.
    On Linux, freed memory stays with the process for the next activation of that size.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    _keep_memory()


def _keep_memory() -> None:
    # Otherwise glibc hands a large block back as soon as it is free and takes fresh pages, cleared by the system, for
    # the next layer. Measured on ViT-B/16, a Hydra of three members on a batch of 4: 15,000 to 92,000 page faults and
    # .04 to .2 of .95 s a forward pass, against none.
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(M_MMAP_MAX, 0)
