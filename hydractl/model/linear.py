"""Affine maps and norms whose weights are one for all members, or one for each.

Activations are `[G,B,T,D]` throughout the model: G is 1 as long as all members have seen the same numbers, and M
from the first weight on in which they differ. Weights with a leading `[M,...]` make that step.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hydractl.checkpoint.layout import Kept, Layout


@dataclass(frozen=True)
class Stored:
    """Says how a checkpoint stores the network whose modules are built."""

    shapes: Mapping[str, tuple[int, ...]]  # the shape of every tensor, by name
    layout: Layout = Layout({}, frozenset())  # what members keep and share

    def heads_of(self, tower: str, layer: int) -> Kept:
        """Returns the kept heads of each member, or of one if members share the layer."""
        members = self.layout.heads[tower][layer]
        return members[:1] if f"{tower}.layers.{layer}.attention.q.weight" in self.layout.shared else members


def empty(shape: tuple[int, ...]) -> nn.Parameter:
    """Returns a parameter without numbers, to which a checkpoint's tensor is assigned later."""
    return nn.Parameter(torch.empty(shape, device="meta"))


class Linear(nn.Module):
    """`x W^T + b`, with W `[out,in]` and b `[out]`, each shared or with a leading `[M,...]` one per member."""

    bias: Tensor | None

    def __init__(self, name: str, stored: Stored) -> None:
        super().__init__()
        self.weight = empty(stored.shapes[f"{name}.weight"])
        bias = stored.shapes.get(f"{name}.bias")
        self.register_parameter("bias", empty(bias) if bias is not None else None)

    @property
    def serves_all(self) -> bool:
        """True if all members share both weight and bias."""
        return self.weight.ndim == 2 and (self.bias is None or self.bias.numel() == len(self.weight))

    def forward(self, x: Tensor) -> Tensor:
        """Maps `[G,...,in]` to `[G,...,out]`; G becomes M if weight or bias are per member."""
        if self.serves_all:
            return F.linear(x, self.weight, self.bias.flatten() if self.bias is not None else None)
        y = x.flatten(1, -2) @ self.weight.mT  # [G,N,out]
        if self.bias is not None:
            y = y + self.bias.view(-1, 1, self.bias.shape[-1])
        return y.unflatten(1, x.shape[1:-1])


class LayerNorm(nn.Module):
    """Layer norm over the last axis, with scale and shift, if any, `[D]` shared or `[M,D]` per member."""

    bias: Tensor | None

    def __init__(self, name: str, stored: Stored, eps: float) -> None:
        super().__init__()
        self.weight, bias = empty(stored.shapes[f"{name}.weight"]), stored.shapes.get(f"{name}.bias")
        self.register_parameter("bias", empty(bias) if bias is not None else None)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Maps `[G,...,D]` to the same shape; G becomes M if scale or shift are per member."""
        weight, bias = self.weight, self.bias
        if weight.ndim == 1 and (bias is None or bias.ndim == 1):
            return F.layer_norm(x, x.shape[-1:], weight, bias, eps=self.eps)
        y = F.layer_norm(x, x.shape[-1:], eps=self.eps)
        y = y * per_member(weight, x)
        return y if bias is None else y + per_member(bias, x)


def norm_or_nothing(name: str, stored: Stored, eps: float) -> nn.Module:
    """Returns the norm of this name; where the network has none, what passes its input on."""
    return LayerNorm(name, stored, eps) if f"{name}.weight" in stored.shapes else nn.Identity()


def per_member(parameter: Tensor, x: Tensor) -> Tensor:
    """Returns a parameter `[D]`, or `[M,D]` per member, in the shape that meets `[G,...,D]`."""
    if parameter.ndim == 1:
        return parameter
    return parameter.view(len(parameter), *(1,) * (x.ndim - 2), parameter.shape[-1])  # [M,1,...,D]
