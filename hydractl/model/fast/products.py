"""Matrix products by the fastest library, and the linear maps and MLPs made of them, without gradients.

They equal torch's own up to rounding.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hydractl.model.encoder import MemberMlp, Mlp
from hydractl.model.linear import Linear

# The operator is the one that torch.compile uses for such products.
ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def float32_by_onednn(capability: str, maker: str) -> bool:
    """Decides between oneDNN and MKL, which torch itself uses for float32 on a CPU.

    MKL uses AVX-512 on Intel's processors only. On an EPYC with AVX-512 oneDNN is 7 to 17 % faster, with AVX2 alone
    MKL is 6 to 11 % faster (`hydractl guide speed`). The rule is fixed, so that a machine always gives equal bytes.

    Args:
        capability: the widest instructions of the processor, as torch names them.
        maker: of the processor, as it names itself; empty if unknown.
    """
    return not torch.backends.mkl.is_available() or (capability.startswith("AVX512") and "Intel" not in maker)


def _maker() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2] for line in lines if line.startswith("vendor_id")), "")


def _dtypes() -> set[torch.dtype]:
    float32 = {torch.float32} if float32_by_onednn(torch.backends.cpu.get_cpu_capability(), _maker()) else set()
    # torch gives bfloat16 to oneDNN as well; the operator saves 5 % of the time around the product.
    return float32 | ({torch.bfloat16} if ONEDNN and torch.ops.mkldnn._is_mkldnn_bf16_supported() else set())


#: Products of these types go to oneDNN.
DTYPES = _dtypes()
#: Activations that oneDNN applies while a product is in registers, with its name for the algorithm.
# This saves 6 % of an MLP's time in bfloat16 and 2 % in float32.
FUSIBLE = {"gelu": "none", "gelu_python": "none", "gelu_new": "tanh", "gelu_fast": "tanh", "gelu_pytorch_tanh": "tanh"}
#: Multiply-adds of one member from which a loop over products beats a batched one, in half precision or on a GPU.
LARGE = 1_500_000_000

Each = Sequence[Tensor] | Tensor  # of each member
Biases = Each | None


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Computes `x W^T + b` of `[...,in]` and `[out,in]`."""
    return _by_onednn(x, weight, bias) if by_onednn(x, weight) else F.linear(x, weight, bias)


def activated_product(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor | None:
    """Returns the activation of `product`, or None where the two cannot be computed together."""
    if activation in FUSIBLE and by_onednn(x, weight):
        return _by_onednn(x, weight, bias, FUSIBLE[activation])
    return None


def by_onednn(x: Tensor, weight: Tensor) -> bool:
    """Tells whether oneDNN computes a product."""
    if not (x.is_cpu and x.dtype in DTYPES):  # first, since a GPU waits for whatever Python does before a product
        return False
    here = ONEDNN and weight.is_cpu and x.dtype == weight.dtype
    # Programs that run an exported graph do not know the operator.
    if not here or torch.compiler.is_exporting() or torch.is_autocast_enabled("cpu"):
        return False
    # oneDNN is a thousand times slower with weights that do not lie row by row.
    return weight.is_contiguous() and x.numel() > 0


def grouped(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiplies each member's rows by its own weights: `[G,N,in]` by `[G,out,in]` to `[G,N,out]`.

    Either G may be 1 and meets every member of the other; bias is `[out]`, `[G,out]` or None.
    """
    members = max(x.shape[0], weight.shape[0], bias.shape[0] if bias is not None and bias.ndim == 2 else 1)
    x, weight = _for_each(members, x), _for_each(members, weight)
    # In an exported graph onnxruntime packs each weight of a loop, 1 to 3 % faster, and can round it by channel.
    if torch.compiler.is_exporting() or better_one_by_one(x, weight):
        return one_above_another(x, weight, bias.expand(members, -1) if bias is not None else None)
    if bias is None:
        return torch.bmm(x, weight.mT)
    return torch.baddbmm(bias if bias.ndim == 1 else bias.unsqueeze(1), x, weight.mT)


def _for_each(members: int, x: Tensor) -> Tensor:
    return x if x.shape[0] == members else x.expand(members, -1, -1)


def better_one_by_one(x: Tensor, weight: Tensor) -> bool:
    """Tells whether a loop that writes each member's product into its place beats the batched product."""
    # Measured for three members at 50 to 4000 rows, 192 to 768 wide, 192 to 3072 outputs, two cores: in float32 the
    # loop takes .36 to .49 of the batched product's time by oneDNN, .75 to .91 by MKL; in bfloat16 .94 to .98 from
    # LARGE on, 1.00 to 1.25 below, and twice where products are tiny. On a GPU a batched product copies its biases to
    # where it writes, an eighth of a Hydra's time at 256 images.
    if torch.compiler.is_exporting():
        return False
    if x.is_cpu and x.dtype == torch.float32:
        return True
    # A compiled graph serves every batch size, so its choice must not depend on one.
    loops = not torch.compiler.is_compiling() and (x.is_cuda or (x.is_cpu and x.element_size() == 2))
    return loops and x[0].numel() * weight.shape[1] >= LARGE


def one_above_another(x: Each, weights: Each, biases: Biases) -> Tensor:
    """Computes members' products `[N,in_m]` by `[out,in_m]` in turn: `[M,N,out]`."""
    members = members_arguments(x, weights, biases)
    if not (into_places(x[0]) or better_one_by_one(x[0][None], weights[0])):
        return torch.stack([product(*member) for member in members])
    y = x[0].new_empty(len(x), len(x[0]), len(weights[0]))
    _write_each(y, members)
    return y


def members_side_by_side(x: Each, weights: Each, biases: Biases) -> Tensor:
    """Computes members' products `[N,in_m]` by `[out_m,in_m]` in turn: `[N,sum of out_m]`."""
    members = members_arguments(x, weights, biases)
    if not into_places(x[0]):
        return torch.cat([product(*member) for member in members], -1)
    outputs = [len(weight) for weight in weights]
    y = x[0].new_empty(len(x[0]), sum(outputs))
    _write_each(y.split(outputs, -1), members)
    return y


def members_arguments(x: Each, weights: Each, biases: Biases) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Yields each member's arguments of `product`."""
    return zip(x, weights, [None] * len(x) if biases is None else biases, strict=True)


def into_places(x: Tensor) -> bool:
    """Tells whether members' results are written into one tensor; a compiler joins them in its own way."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def _write_each(places: Iterable[Tensor], members: Iterable[tuple[Tensor, Tensor, Tensor | None]]) -> None:
    for place, (rows, weight, bias) in zip(places, members, strict=True):
        if bias is None or by_onednn(rows, weight) or not place.is_contiguous():
            place.copy_(product(rows, weight, bias))
        else:
            torch.addmm(bias, rows, weight.t(), out=place)


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None, gelu: str | None = None) -> Tensor:
    # A compiler requires the operator's weights to be constants, but not those of an opaque operator.
    return (_opaque if torch.compiler.is_compiling() else _linear)(x, weight, bias, gelu)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, gelu: str | None) -> Tensor:
    attribute, algorithm = ("gelu", gelu) if gelu else ("none", "")
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, attribute, scalars=[], algorithm=algorithm)


_opaque = torch.library.custom_op(
    "hydractl::linear", _linear, mutates_args=(), schema="(Tensor x, Tensor weight, Tensor? bias, str? gelu) -> Tensor"
)


@_opaque.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, gelu: str | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


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


class FastLinear(Linear):
    """`Linear` by the fastest products."""

    def __init__(self, linear: Linear) -> None:
        nn.Module.__init__(self)
        self.weight, self.bias = linear.weight, linear.bias
        self.together = linear.serves_all

    def forward(self, x: Tensor) -> Tensor:
        """Maps `[G,...,in]` to `[G,...,out]`; G becomes M if weight or bias are per member."""
        weight, bias = self.weight, self.bias
        if self.together:
            return product(x, weight, bias if bias is None or bias.ndim == 1 else bias.flatten())
        matrices = weight if weight.ndim == 3 else weight[None]
        return grouped(x.flatten(1, -2), matrices, bias).unflatten(1, x.shape[1:-1])


class FastMlp(Mlp):
    """`Mlp` by the fastest products, its activation computed with the first of them or in place."""

    def __init__(self, mlp: Mlp) -> None:
        nn.Module.__init__(self)
        self.fc1, self.fc2, self.activation = FastLinear(mlp.fc1), FastLinear(mlp.fc2), mlp.activation
        self.factor = FastLinear(mlp.factor) if mlp.factor is not None else None
        self.norm, self.normed = mlp.norm, not isinstance(mlp.norm, nn.Identity)
        self.fusible = mlp.activation in FUSIBLE and mlp.fc1.serves_all

    def forward(self, x: Tensor) -> Tensor:
        """Maps `[G,...,D]` to `[G,...,D]`."""
        activations = self._activated(x)
        if self.factor is not None:
            activations = activations * self.factor(x)
        return self.fc2(self.norm(activations) if self.normed else activations)

    def add_to(self, x: Tensor, read: Tensor) -> Tensor:
        """Computes `x` plus the MLP of `read`, perhaps in the place of x."""
        return x + self(read)

    def _activated(self, x: Tensor) -> Tensor:
        fc1 = self.fc1
        if self.fusible and x.is_cpu:
            fused = activated_product(x, fc1.weight, fc1.bias, self.activation)
            if fused is not None:
                return fused
        return IN_PLACE[self.activation](fc1(x))


class FastMemberMlp(Mlp):
    """`MemberMlp` with each member's rows and columns laid out once."""

    def __init__(self, mlp: MemberMlp) -> None:
        nn.Module.__init__(self)
        self.fc1, self.factor, self.fc2, self.activation = mlp.fc1, mlp.factor, mlp.fc2, mlp.activation
        self.members = mlp.members
        for member in range(self.members):
            for name, tensor in mlp.own(member).items():
                contiguous = tensor.detach().contiguous()
                self.register_buffer(_buffer(member, name.replace(".", "_")), contiguous, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `[G,...,D]` to `[M,...,D]`."""
        return torch.stack(list(self._each(x))).unflatten(1, x.shape[1:-1])

    def add_to(self, x: Tensor, read: Tensor) -> Tensor:
        """Computes `x` plus the MLP of `read`, in the place of x where members have one each."""
        if len(x) < self.members or not into_places(x):
            return x + self(read)
        for place, output in zip(x.flatten(1, -2), self._each(read), strict=True):
            place.add_(output)
        return x

    def _each(self, x: Tensor) -> Iterator[Tensor]:
        # Measured for three members with a third of the units each, 192 to 768 wide: this takes .99 to 1.05 of the
        # dense MLP's time where products are not tiny, batched products 1.07 to 2.2; one product of the units that
        # all keep saves nothing.
        rows = enumerate(x.flatten(1, -2).expand(self.members, -1, -1))
        return (product(self._activated_by(member, hidden), *self._own(member, "fc2")) for member, hidden in rows)

    def _own(self, member: int, part: str) -> tuple[Tensor, Tensor | None]:
        return getattr(self, _buffer(member, f"{part}_weight")), self._buffers.get(_buffer(member, f"{part}_bias"))

    def _activated_by(self, member: int, x: Tensor) -> Tensor:
        weight, bias = self._own(member, "fc1")
        activations = activated_product(x, weight, bias, self.activation)
        if activations is None:
            activations = IN_PLACE[self.activation](product(x, weight, bias))
        return activations if self.factor is None else activations * product(x, *self._own(member, "factor"))


def _buffer(member: int, name: str) -> str:
    return f"own{member}_{name}"


def fast_mlp(mlp: Mlp) -> FastMlp | FastMemberMlp:
    """Returns the same MLP by the fastest products, with the parameters of the one given."""
    return FastMemberMlp(mlp) if isinstance(mlp, MemberMlp) else FastMlp(mlp)
