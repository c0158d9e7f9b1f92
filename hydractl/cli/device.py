"""From the options `--device` and `--dtype` to what torch calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hydractl.cli.options import DtypeName
from hydractl.errors import OptionError

if TYPE_CHECKING:
    import torch


def choose_device(name: str) -> torch.device:
    """The device that `--device` names, in a process prepared for models to run on it.

    Raises:
        OptionError: no such device, or not on this machine.
    """
    import torch

    from hydractl.process import prepare

    prepare()
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise OptionError(f"--device {name}: no such device: choose auto, cpu, cuda, cuda:N or mps") from error
    found = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.mps.is_available())}.get(device.type, 0)
    if (device.index or 0) >= found:
        raise OptionError(f"--device {name}: this machine has {found} of them: choose another device, or auto")
    return device


def choose_dtype(name: DtypeName | None) -> torch.dtype | None:
    """The dtype that `--dtype` names, or None to keep the checkpoint's own."""
    import torch

    dtypes: dict[DtypeName, torch.dtype] = {
        "float64": torch.float64,
        "float32": torch.float32,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
    }
    return None if name is None else dtypes[name]
