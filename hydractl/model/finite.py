"""Checks that what a network gives is finite."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hydractl.errors import NotFiniteError


def finite_on_cpu(tensor: Tensor, what: str, places: Sequence[int] | None = None) -> Tensor:
    """Returns the tensor `[M,B,...]` on the CPU, at least in float32, as metrics and decisions need it.

    Args:
        what: its name, for the message.
        places: the numbers of the B samples among all, if the error should name the first bad one.

    Raises:
        NotFiniteError: a number of it is NaN or infinite.
    """
    held = tensor.to("cpu", torch.promote_types(tensor.dtype, torch.float32))
    if not (good := torch.isfinite(held)).all():
        error = NotFiniteError(f"the model's {what} are not finite on this data: try `dtype` float32")
        if places is not None:
            error.sample = min(places[at] for at in (~good).transpose(0, 1).flatten(1).any(-1).nonzero().flatten())
        raise error
    return held
