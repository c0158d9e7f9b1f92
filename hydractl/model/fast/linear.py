"""What the linear maps and the MLP of a model compute, by the fastest products."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hydractl.model.adapters import KeptFeatures, LowRank, RankOne
from hydractl.model.fast.products import activated_product, grouped, product
from hydractl.model.layer import Mlp
from hydractl.model.linear import Linear, per_member

#: Activations over their argument: nothing needs it again, and a second buffer costs time to touch.
IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": torch.ops.aten.gelu_,
    "gelu_python": torch.ops.aten.gelu_,
    "gelu_new": lambda x: torch.ops.aten.gelu_(x, approximate="tanh"),
    "gelu_fast": lambda x: torch.ops.aten.gelu_(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: torch.ops.aten.gelu_(x, approximate="tanh"),
    "quick_gelu": lambda x: x.mul_((1.702 * x).sigmoid_()),
    "relu": F.relu_,
    "silu": lambda x: F.silu(x, inplace=True),
    "swish": lambda x: F.silu(x, inplace=True),
    "tanh": torch.tanh_,
}


def fast_linear(linear: Linear) -> Linear:
    """The same map by the fastest products; it uses the parameters of the one given."""
    if isinstance(linear, LowRank):
        return FastLowRank(linear)
    if isinstance(linear, RankOne):
        return FastRankOne(linear)
    return linear if isinstance(linear, KeptFeatures) else FastLinear(linear)


def fast_mlp(mlp: Mlp) -> Mlp:
    """The same MLP by the fastest products; it uses the parameters of the one given."""
    return FastKeptMlp(mlp, mlp.fc2) if isinstance(mlp.fc2, KeptFeatures) else FastMlp(mlp)


class FastLinear(Linear):
    """`Linear` by the fastest products."""

    def __init__(self, linear: Linear) -> None:
        nn.Module.__init__(self)
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """`[G,...,in]` to `[G,...,out]`; G becomes M where weight or bias are per member."""
        if self.serves_all:
            return product(x, self.weight, self.bias.flatten() if self.bias is not None else None)
        weight = self.weight if self.weight.ndim == 3 else self.weight[None]
        return grouped(x.flatten(1, -2), weight, self.bias).unflatten(1, x.shape[1:-1])


class FastLowRank(LowRank):
    """`LowRank` with the product of all members' rows with W in one piece, and the changes added in place."""

    def __init__(self, linear: LowRank) -> None:
        nn.Module.__init__(self)
        self.weight, self.bias, self.scale = linear.weight, linear.bias, linear.scale
        self.lora_a, self.lora_b = linear.lora_a, linear.lora_b

    def forward(self, x: Tensor) -> Tensor:
        """`[G,...,in]` to `[M,...,out]`; members whose inputs agree, G being 1, have the product with W in common."""
        members, shape = len(self.lora_a), x.shape[1:-1]
        y = product(x, self.weight, self.bias.flatten() if self.bias is not None else None).flatten(1, -2)
        within = torch.bmm(x.flatten(1, -2).expand(members, -1, -1), self.lora_a.mT)  # [M,N,r]
        add = torch.baddbmm if len(x) < members else Tensor.baddbmm_
        return add(y.expand(members, -1, -1), within, self.lora_b.mT, alpha=self.scale).unflatten(1, shape)


class FastRankOne(RankOne):
    """`RankOne` by the fastest products."""

    def __init__(self, linear: RankOne) -> None:
        nn.Module.__init__(self)
        self.weight, self.bias, self.r, self.s = linear.weight, linear.bias, linear.r, linear.s

    def forward(self, x: Tensor) -> Tensor:
        """`[G,...,in]` to `[M,...,out]`."""
        y = product(x * per_member(self.r, x), self.weight, None).mul_(per_member(self.s, x))
        return y if self.bias is None else y.add_(per_member(self.bias, x))


class FastMlp(Mlp):
    """`Mlp` by the fastest products, its activation computed with the first of them or in place."""

    def __init__(self, mlp: Mlp) -> None:
        nn.Module.__init__(self)
        self.fc1, self.fc2, self.activation = fast_linear(mlp.fc1), fast_linear(mlp.fc2), mlp.activation

    def forward(self, x: Tensor) -> Tensor:
        """`[G,...,D]` to `[G,...,D]`."""
        return self.fc2(self._activated(x))

    def _activated(self, x: Tensor) -> Tensor:
        if self.fc1.serves_all:
            fused = activated_product(x, self.fc1.weight, self.fc1.bias, self.activation)
            if fused is not None:
                return fused
        return IN_PLACE[self.activation](self.fc1(x))


class FastKeptMlp(Mlp):
    """An MLP of which members keep some features, the weights of those laid out for each."""

    def __init__(self, mlp: Mlp, fc2: KeptFeatures) -> None:
        nn.Module.__init__(self)
        self.fc1, self.fc2, self.activation = mlp.fc1, fc2, mlp.activation
        assert mlp.fc1.bias is not None
        self.register_buffer("own_fc1", mlp.fc1.weight[fc2.kept], persistent=False)  # [M,k,D]
        self.register_buffer("own_bias", mlp.fc1.bias[fc2.kept], persistent=False)  # [M,k]
        self.register_buffer("own_fc2", fc2.weight.T[fc2.kept].mT.contiguous(), persistent=False)  # [M,D,k]

    def forward(self, x: Tensor) -> Tensor:
        """`[G,...,D]` to `[M,...,D]`."""
        made = grouped(x.flatten(1, -2), self.get_buffer("own_fc1"), self.get_buffer("own_bias"))
        y = grouped(IN_PLACE[self.activation](made), self.get_buffer("own_fc2"), self.fc2.bias)
        return y.unflatten(1, x.shape[1:-1])
