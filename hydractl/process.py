"""Settings of the whole process in which models run: `hydractl.process` in Python, set by every command."""

import ctypes
import os
import platform
import sys

#: The variable by which NVIDIA's libraries turn TF32 off.
TF32, OFF = "NVIDIA_TF32_OVERRIDE", "0"
# Of glibc's <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def prepare() -> None:
    """Prepares a process for comparing and timing models; importing hydractl or loading a model does not.

    Turns TF32 off: equality and calibration need full float32 products, and TF32 keeps ten bits of each factor.
    On Linux, keeps freed memory in the process for the next activation of that size.
    """
    os.environ[TF32] = OFF
    if "torch" in sys.modules:  # its import takes seconds: whoever chooses a device turns TF32 off later
        settle_precision()
    _keep_memory()


def settle_precision() -> None:
    """Turns TF32 off in torch if `prepare` has done so for NVIDIA's libraries."""
    import torch

    if os.environ.get(TF32) == OFF:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False


def _keep_memory() -> None:
    # Otherwise glibc returns a large block as soon as it is free, and the next layer takes fresh pages that the system
    # must clear: 15,000 to 92,000 page faults and 0.04 to 0.2 of 0.95 s in a forward pass of ViT-B/16.
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(M_MMAP_MAX, 0)
