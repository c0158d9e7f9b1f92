"""The processes that train together, by accelerate: one, or as many as torchrun starts."""

from __future__ import annotations

import os
from typing import Literal

import torch
from accelerate import Accelerator

from hydractl.errors import OptionError

Precision = Literal["no", "bf16", "fp16"]


def start_accelerator(device: torch.device, precision: Precision = "no") -> Accelerator:
    """What moves tensors, averages gradients over processes and scales losses.

    Args:
        device: of a single process; under torchrun on GPUs each process takes its own.

    Raises:
        OptionError: the device cannot compute in that precision.
    """
    if "LOCAL_RANK" not in os.environ and device.type != "cpu":
        os.environ["ACCELERATE_TORCH_DEVICE"] = str(device)
    try:
        return Accelerator(cpu=device.type == "cpu", mixed_precision=precision)
    except ValueError as error:
        raise OptionError(f"--precision {precision}: {' '.join(str(error).split())}") from error
