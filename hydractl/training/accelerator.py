"""The processes that train together, by accelerate: one, or as many as torchrun starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from hydractl.errors import OptionError
from hydractl.training.request import Execution, Precision

DEVICE = "ACCELERATE_TORCH_DEVICE"


@dataclass(frozen=True, eq=False)
class Workplace:
    """A place to train: the folder of the run's log and states, the processes beside this one, and how to run."""

    folder: Path
    accelerator: Accelerator
    execution: Execution = Execution()


@contextmanager
def training_process(device: torch.device, precision: Precision = "no") -> Iterator[Accelerator]:
    """Yields an accelerator; when the block ends, random states and accelerate's settings are as before.

    Args:
        device: of a single process; under torchrun on GPUs each process takes its own.

    Raises:
        OptionError: the device cannot compute in that precision.
    """
    alone = "LOCAL_RANK" not in os.environ
    # Accelerate keeps one device and one precision for the whole process: the next run may want others.
    temporary = alone and not AcceleratorState._shared_state
    before = os.environ.get(DEVICE)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            yield start_accelerator(device, precision)
        finally:
            if temporary:
                AcceleratorState._reset_state(reset_partial_state=True)
            if before is None:
                os.environ.pop(DEVICE, None)
            else:
                os.environ[DEVICE] = before


def start_accelerator(device: torch.device, precision: Precision = "no") -> Accelerator:
    """Returns what moves tensors, averages gradients over processes and scales losses.

    Raises:
        OptionError: the device cannot compute in that precision.
    """
    if "LOCAL_RANK" not in os.environ and device.type != "cpu":
        os.environ[DEVICE] = str(device)
    try:
        return Accelerator(cpu=device.type == "cpu", mixed_precision=precision)
    except ValueError as error:
        raise OptionError(f"`precision` {precision}: {' '.join(str(error).split())}") from error
