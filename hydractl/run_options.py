"""Options that commands share: where and how precisely to compute, and what to write."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydractl import bounds
from hydractl.errors import OptionError
from hydractl.options import Option, option
from hydractl.process import settle_precision

if TYPE_CHECKING:
    import torch

DtypeLike = Any  #: a name, or torch's own
DeviceLike = Any  #: a name, or torch's own

DEFAULT_BATCH_SIZE = 64
NO_DEVICE = "no such device: choose auto, cpu, cuda, cuda:N or mps"

#: Every spelling of a precision, and what this project calls it.
DTYPES = {
    **dict.fromkeys(("float64", "fp64", "f64", "double"), "float64"),
    **dict.fromkeys(("float32", "fp32", "f32", "float", "single"), "float32"),
    **dict.fromkeys(("bfloat16", "bf16"), "bfloat16"),
    **dict.fromkeys(("float16", "fp16", "f16", "half"), "float16"),
}


def dtype_name(dtype: Any) -> str | None:
    """Returns the project's name of a dtype: `float32` for `fp32` and for `torch.float32`; None for None.

    Raises:
        OptionError: not a floating-point dtype of models.
    """
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.").lower()
    if name not in DTYPES:
        raise OptionError(f"`dtype` {dtype}: expected fp64, fp32, bf16 or fp16")
    return DTYPES[name]


def choose_dtype(dtype: Any) -> torch.dtype | None:
    """Returns the torch dtype of a name in any spelling, or None for the checkpoint's own; see `dtype_name`."""
    import torch

    name = dtype_name(dtype)
    return None if name is None else getattr(torch, name)


def choose_device(device: Any) -> torch.device:
    """Returns the device of a name; `auto` takes a GPU if there is one.

    Raises:
        OptionError: no such device, or not on this machine.
    """
    import torch

    settle_precision()
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.mps.is_available() else "cpu")
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise OptionError(f"`device` {device}: {NO_DEVICE}") from error
    here = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.mps.is_available())}.get(place.type, 0)
    if (place.index or 0) >= here:
        raise OptionError(f"`device` {device}: this machine has {here} such devices: choose another, or auto")
    return place


def _device_name(name: str, device: Any) -> Any:
    """Returns a device as given; a name that no device has is refused before torch is imported."""
    if isinstance(device, str) and re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", device) is None:
        raise OptionError(f"`{name}` {device}: {NO_DEVICE}")
    return device


Device = Annotated[
    DeviceLike,
    Option(
        "Where to compute; auto takes a GPU if there is one.",
        "Compute",
        "auto|cpu|cuda[:N]|mps",
        parse=_device_name,
        remembered=False,
    ),
]
Dtype = Annotated[
    DtypeLike | None,
    Option(
        "Precision. Default: the checkpoint's own; a CPU computes half precision in float32.",
        "Compute",
        "fp32|bf16|fp16|fp64",
        parse=lambda name, value: dtype_name(value),
        plain=dtype_name,
        rare=True,
    ),
]

Precision = Annotated[
    Literal["no", "bf16", "fp16"], Option("Precision of matrix products; weights stay float32.", "Compute", rare=True)
]
Workers = Annotated[
    int,
    Option(
        "Processes that decode images; they do not change the result.",
        "Compute",
        rare=True,
        within=(0, 1024),
        remembered=False,
    ),
]
Seed = Annotated[int, Option("Seed of all random draws.", "Compute", within=(0, bounds.SEED))]
OUTPUT_FLAGS = ("--output", "-o")
Output = Annotated[str | Path | None, Option("File to write.", "Output", flags=OUTPUT_FLAGS, remembered=False)]
Force = Annotated[bool, Option("Replace an output that exists.", "Output", flags=("--force", "-f"), remembered=False)]
Resume = Annotated[bool, Option("Continue an interrupted run, if there is one.", "Output", remembered=False)]


def output_option(about: str, metavar: str | None = None) -> str | Path | None:
    """Declares a file or folder to write, which has something special about it."""
    return option(None, about, "Output", metavar, flags=OUTPUT_FLAGS, remembered=False)


def ratio_option(about: str, metavar: str) -> float | None:
    """Declares a multiple of the network's cost, which a user gives as a number or as text, such as 1.3x."""
    return option(
        None,
        about,
        metavar=metavar,
        within=(bounds.CHEAPEST, bounds.DEAREST),
        parse=bounds.parse_ratio,
        plain=bounds.ratio_text,
    )


@dataclass(frozen=True)
class Compute:
    """Device, precision and batch size of a network."""

    device: Device = "auto"
    dtype: Dtype = None
    batch_size: int = option(
        DEFAULT_BATCH_SIZE,
        "Samples per forward pass; it determines the batches, and so the exact result.",
        "Compute",
        within=(1, bounds.BATCH),
        rare=True,
    )

    @property
    def torch_device(self) -> torch.device:
        """The device."""
        return choose_device(self.device)

    @property
    def torch_dtype(self) -> torch.dtype | None:
        """The precision; None for the checkpoint's own."""
        return choose_dtype(self.dtype)
