"""The processes that train together, by accelerate: one, or as many as torchrun starts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from hydractl.errors import OptionError
from hydractl.run_options import Precision
from hydractl.training.request import Execution

DEVICE = "ACCELERATE_TORCH_DEVICE"


@dataclass(frozen=True, eq=False)
class Workplace:
    """A place to train: the folder of the run's log and states, the processes beside this one, and how to run."""

    folder: Path
    accelerator: Accelerator
    execution: Execution = Execution()


@contextmanager
def training_process(device: torch.device, precision: Precision = "no") -> Iterator[Accelerator]:
    """Yields an accelerator; when the block ends, random states are as before.

    Args:
        device: of a single process; under torchrun on GPUs each process takes its own.

    Raises:
        OptionError: the device cannot compute in that precision.
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), _fresh_settings(device):
        try:
            accelerator = Accelerator(cpu=device.type == "cpu", mixed_precision=precision)
        except ValueError as error:
            raise OptionError(f"`precision` {precision}: {error}") from error
        yield accelerator


@contextmanager
def _fresh_settings(device: torch.device) -> Iterator[None]:
    """Lets one process choose its device and precision, which accelerate keeps for the whole process."""
    if "LOCAL_RANK" in os.environ:
        yield
        return
    AcceleratorState._reset_state(reset_partial_state=True)
    os.environ[DEVICE] = str(device)
    try:
        yield
    finally:
        os.environ.pop(DEVICE, None)
        AcceleratorState._reset_state(reset_partial_state=True)
