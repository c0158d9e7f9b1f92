"""Linear maps that members share, each with a small change of its own: the rows of `Adapter.kind`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from hydractl.checkpoint.spec import Adapter
from hydractl.model.linear import Linear, empty, per_member

Shapes = Mapping[str, tuple[int, ...]]


class LowRank(Linear):
    """`x W^T + b + (x A^T) B^T * scale`, with A `[M,r,in]` and B `[M,out,r]` of the members.

    Source: Hu et al. 2022; of an ensemble Muehlematter et al. 2024.
    """

    serves_all = False

    def __init__(self, name: str, shapes: Shapes, scale: float) -> None:
        super().__init__(shapes[f"{name}.weight"], shapes.get(f"{name}.bias"))
        self.lora_a, self.lora_b = empty(shapes[f"{name}.lora_a"]), empty(shapes[f"{name}.lora_b"])
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        """`[G,...,in]` to `[M,...,out]`; members whose inputs agree, G being 1, have the product with W in common."""
        bias = self.bias.flatten() if self.bias is not None else None
        change = x.flatten(1, -2) @ self.lora_a.mT @ (self.lora_b.mT * self.scale)  # [M,N,out]
        return F.linear(x, self.weight, bias) + change.unflatten(1, x.shape[1:-1])

    @property
    def effective(self) -> tuple[Tensor, Tensor | None]:
        """The members' own maps, had they been stored: `[M,out,in]`, and the bias as it is."""
        return self.weight + self.lora_b @ self.lora_a * self.scale, self.bias


class RankOne(Linear):
    """`((x * r) W^T) * s + b`, with r `[M,in]`, s `[M,out]` and b `[M,out]` of the members.

    Source: Wen et al. 2020, eq. 5.
    """

    serves_all = False

    def __init__(self, name: str, shapes: Shapes) -> None:
        super().__init__(shapes[f"{name}.weight"], shapes.get(f"{name}.bias"))
        self.r, self.s = empty(shapes[f"{name}.r"]), empty(shapes[f"{name}.s"])

    def forward(self, x: Tensor) -> Tensor:
        """`[G,...,in]` to `[M,...,out]`."""
        y = F.linear(x * per_member(self.r, x), self.weight) * per_member(self.s, x)
        return y if self.bias is None else y + per_member(self.bias, x)

    @property
    def effective(self) -> tuple[Tensor, Tensor | None]:
        """The members' own maps, had they been stored: `[M,out,in]` and `[M,out]`."""
        return self.weight * self.s[:, :, None] * self.r[:, None], self.bias


class KeptFeatures(Linear):
    """A map from features of which each member keeps some, `kept` `[M,k]`: it takes those and no others.

    Source: Durasov et al. 2021.
    """

    kept: Tensor
    serves_all = False

    def __init__(self, name: str, shapes: Shapes) -> None:
        super().__init__(shapes[f"{name}.weight"], shapes[f"{name}.bias"])
        self.register_buffer("kept", torch.empty(shapes[f"{name}.kept"], dtype=torch.int32, device="meta"))

    def forward(self, x: Tensor) -> Tensor:
        """`[M,...,k]` to `[M,...,out]`."""
        assert self.bias is not None
        y = x.flatten(1, -2) @ self.weight.T[self.kept]  # [M,N,out]
        return y.unflatten(1, x.shape[1:-1]) + self.bias

    def features(self, making: Linear, x: Tensor) -> Tensor:
        """What a map `making` all features makes of `[G,...,in]`, of those alone that are kept: `[M,...,k]`."""
        assert making.bias is not None
        y = x.flatten(1, -2) @ making.weight[self.kept].mT + making.bias[self.kept][:, None]
        return y.unflatten(1, x.shape[1:-1])


def build_linear(name: str, shapes: Shapes, adapter: Adapter | None) -> Linear:
    """The map stored under a name, adapted where its members have something of their own there."""
    if f"{name}.lora_a" in shapes:
        assert adapter is not None
        return LowRank(name, shapes, adapter.scale)
    if f"{name}.r" in shapes:
        return RankOne(name, shapes)
    if f"{name}.kept" in shapes:
        return KeptFeatures(name, shapes)
    return Linear(shapes[f"{name}.weight"], shapes.get(f"{name}.bias"))
