"""Affine maps and norms whose weights are either one for all members or one for each.

Activations are `[G,B,T,D]` throughout the model: G is 1 as long as all members have seen the same numbers, and M
from the first weight on in which they differ. Weights with a leading `[M,...]` make that step.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def empty(shape: tuple[int, ...]) -> nn.Parameter:
    """A parameter without numbers yet: a checkpoint's tensors are assigned to it."""
    return nn.Parameter(torch.empty(shape, device="meta"))


class Linear(nn.Module):
    """`x W^T + b`, with W `[out,in]` and b `[out]`, each shared or with a leading `[M,...]` one per member."""

    bias: Tensor | None

    def __init__(self, weight: tuple[int, ...], bias: tuple[int, ...] | None) -> None:
        super().__init__()
        self.weight = empty(weight)
        self.register_parameter("bias", empty(bias) if bias is not None else None)

    @property
    def serves_all(self) -> bool:
        """Whether all members share both weight and bias."""
        return self.weight.ndim == 2 and (self.bias is None or self.bias.numel() == len(self.weight))

    @property
    def effective(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias, each shared or with a leading `[M,...]`, whatever they are made of."""
        return self.weight, self.bias

    def forward(self, x: Tensor) -> Tensor:
        """`[G,...,in]` to `[G,...,out]`; G becomes M where weight or bias are per member."""
        if self.serves_all:
            return F.linear(x, self.weight, self.bias.flatten() if self.bias is not None else None)
        y = x.flatten(1, -2) @ self.weight.mT  # [G,N,out]
        if self.bias is not None:
            y = y + self.bias.view(-1, 1, self.bias.shape[-1])
        return y.unflatten(1, x.shape[1:-1])


class LayerNorm(nn.Module):
    """Layer norm over the last axis, with scale and shift `[D]` shared or `[M,D]` per member."""

    def __init__(self, weight: tuple[int, ...], bias: tuple[int, ...], eps: float) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = empty(weight), empty(bias), eps

    def forward(self, x: Tensor) -> Tensor:
        """`[G,...,D]` to the same shape; G becomes M where scale or shift are per member."""
        if self.weight.ndim == 1 and self.bias.ndim == 1:
            return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)
        y = F.layer_norm(x, x.shape[-1:], eps=self.eps)
        return y * per_member(self.weight, x) + per_member(self.bias, x)


def per_member(parameter: Tensor, x: Tensor) -> Tensor:
    """A parameter `[D]`, or `[M,D]` of each member, as it meets `[G,...,D]`."""
    if parameter.ndim == 1:
        return parameter
    return parameter.view(len(parameter), *(1,) * (x.ndim - 2), parameter.shape[-1])  # [M,1,...,D]
