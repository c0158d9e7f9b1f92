"""Matrix products, by the fastest library there is for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

# On a CPU torch multiplies float32 by MKL, which keeps its widest instructions for its maker's processors; oneDNN, in
# torch as well, does not. Measured on an EPYC with AVX-512, two cores, 197 to 3152 rows, 512 to 3072 wide: 77 to 109
# and 187 to 233 G multiply-adds a second. The operator is the one that torch.compile puts in the place of products.
ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
#: Rows from which, in half precision on a CPU, members' products one by one beat a batched one.
MANY_ROWS = 600


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`x W^T + b` of `[...,in]` and `[out,in]`: torch's own, in float32 inference on a CPU up to rounding."""
    if by_onednn(x, weight):
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return y
    return F.linear(x, weight, bias)


def by_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether `product` may leave torch's own for oneDNN: it has no gradient, and is in no graph that is traced."""
    plain = ONEDNN and x.dtype == weight.dtype == torch.float32 and x.device.type == weight.device.type == "cpu"
    # Of weights that do not lie row by row oneDNN makes a product a thousand times slower.
    return plain and _untraced() and weight.is_contiguous() and x.numel() > 0 and not torch.is_autocast_enabled("cpu")


def _untraced() -> bool:
    return not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def grouped(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Each member's rows times its own weights: `[G,N,in]` by `[G,out,in]` to `[G,N,out]`.

    Either G may be 1 and meets every member of the other; bias is `[out]`, `[G,out]` or None.
    """
    members = max(len(x), len(weight), len(bias) if bias is not None and bias.ndim == 2 else 1)
    x, weight = x.expand(members, -1, -1), weight.expand(members, -1, -1)
    biases = bias.expand(members, -1) if bias is not None else None
    if one_by_one(x):
        y = x.new_empty(members, x.shape[1], weight.shape[1])
        _write_each(y, x, weight, biases if biases is not None else [None] * members)
        return y
    if biases is None:
        return torch.bmm(x, weight.mT)
    return torch.baddbmm(biases[:, None], x, weight.mT)


def side_by_side(x: Tensor, weight: Tensor, bias: Tensor | None, outputs: list[int]) -> Tensor:
    """Uneven members' products one beside the other: `[M,N,in]` by `[sum(outputs),in]` to `[N,sum(outputs)]`."""
    weights = weight.split(outputs)
    biases = bias.split(outputs) if bias is not None else [None] * len(outputs)
    if not one_by_one(x):
        return torch.cat([product(*each) for each in zip(x, weights, biases, strict=True)], -1)
    y = x.new_empty(x.shape[1], len(weight))
    _write_each(y.split(outputs, -1), x, weights, biases)
    return y


def one_above_another(x: Tensor, weights: Sequence[Tensor], bias: Tensor) -> Tensor:
    """Products of uneven members whose rows lie side by side, `[N,sum_m in_m]` by M of `[out,in_m]`, to `[M,N,out]`."""
    rows = x.split([weight.shape[1] for weight in weights], -1)
    if not one_by_one(x[None]):
        return torch.stack(list(map(product, rows, weights, bias)))
    y = x.new_empty(len(weights), len(x), bias.shape[1])
    _write_each(y, rows, weights, bias)
    return y


def one_by_one(x: Tensor) -> bool:
    """Whether members' products of `[G,N,in]` are faster in a loop that writes each into its place than together."""
    # Measured for three members at 50 to 1970 rows, 512 and 768 wide, 768 to 3072 outputs, two cores: in float32 the
    # loop takes .36 to .49 of the batched product's time by oneDNN, .75 to .91 by MKL; in bfloat16 .94 to .98 from 788
    # rows on, 1.00 to 1.26 below 394. Writing into place has no gradient and breaks a graph.
    if x.device.type != "cpu" or not _untraced():
        return False
    return x.dtype == torch.float32 or (x.element_size() == 2 and x.shape[1] >= MANY_ROWS)


def _write_each(
    places: Iterable[Tensor], x: Iterable[Tensor], weights: Iterable[Tensor], biases: Iterable[Tensor | None]
) -> None:
    for place, rows, weight, bias in zip(places, x, weights, biases, strict=True):
        if bias is None or by_onednn(rows, weight) or not place.is_contiguous():
            place.copy_(product(rows, weight, bias))
        else:
            torch.addmm(bias, rows, weight.t(), out=place)
