"""Settings of the whole process in which models run: `hydractl.process` in Python, set by every command."""

import ctypes
import platform

# Of glibc's <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def prepare() -> None:
    """Prepares a process for comparing and timing models; importing hydractl or loading a model does not.

    Turns TF32 off: equality and calibration need full float32 products, and TF32 keeps ten bits of each factor.
    On Linux, keeps freed memory in the process for the next activation of that size.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    _keep_memory()


def _keep_memory() -> None:
    # Otherwise glibc returns a large block as soon as it is free, and the next layer takes fresh pages that the system
    # must clear: 15,000 to 92,000 page faults and 0.04 to 0.2 of 0.95 s in a forward pass of ViT-B/16.
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(M_MMAP_MAX, 0)
