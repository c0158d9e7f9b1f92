"""What lies beside a network in its file: fitted to it, of another shape than its tensors, and read by predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tensors import LazyTensor, TensorMap
from hydractl.errors import CheckpointError

Shapes = dict[str, tuple[int, ...]]
Positive = Annotated[float, Field(gt=0)]
WIDE = (torch.float32, torch.float64)  # what is fitted is kept in
ROUNDING = 1e-4  # of a covariance's largest entry


@dataclass(frozen=True)
class BayesVlm:
    """Gaussian posteriors of a zero-shot model's projections: one covariance of inputs, variances of outputs.

    Attributes:
        pseudo_count: the samples that the data count as.
        precision: of the prior of each tower's projection.
        pairs: how many images and texts were fitted on.

    Source: Baumann et al. 2024, arXiv 2412.06014.
    """

    kind: Literal["bayesvlm"]
    pseudo_count: Positive
    precision: dict[Literal["vision", "text"], Positive]
    pairs: Annotated[int, Field(ge=2)]

    def fault(self, name: str, numbers: Tensor) -> str | None:
        """What one of its tensors holds that it cannot; None where nothing is wrong."""
        if name.endswith(".output_variance"):
            return "a negative variance" if (numbers < 0).any() else None
        return None if _is_covariance(numbers) else "what is no covariance"

    def shapes(self, spec: ModelSpec, members: int) -> Shapes:
        """The tensors that belong to it."""
        assert spec.projection is not None
        found: Shapes = {}
        for tower in spec.towers:
            found[f"{tower.name}.input_covariance"] = (members, tower.width, tower.width)
            found[f"{tower.name}.output_variance"] = (members, spec.projection)
        return found


def _is_covariance(numbers: Tensor) -> bool:
    """Whether each of `[M,D,D]` is symmetric and positive, but for rounding."""
    wide = numbers.double()
    slack = ROUNDING * wide.abs().amax((-2, -1), keepdim=True)
    padded = wide + slack * torch.eye(wide.shape[-1], dtype=wide.dtype)
    return bool(((wide - wide.mT).abs() <= slack).all() and (torch.linalg.cholesky_ex(padded)[1] == 0).all())


def layer_shapes(projection: int, width: int) -> Shapes:
    """The weights of an error predictor that reads embeddings of a width, each bias after its weight."""
    attention: Shapes = {f"attention.{part}": (projection, projection) for part in "qkv"}
    sizes = (3 * projection, width, width, 1)
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        attention |= {f"mlp.{layer}.weight": (outputs, inputs), f"mlp.{layer}.bias": (outputs,)}
    return attention


@dataclass(frozen=True)
class Vilu:
    """A network that predicts the errors of a zero-shot model from its embeddings.

    Attributes:
        width: of its hidden layers.

    Source: Lafon et al. 2025, arXiv 2507.07620.
    """

    kind: Literal["vilu"]
    width: Annotated[int, Field(ge=1, le=2**16)]

    def fault(self, name: str, numbers: Tensor) -> None:
        """As `BayesVlm.fault`: of weights any number will do."""

    def shapes(self, spec: ModelSpec, members: int) -> Shapes:
        """The tensors that belong to it; all members have one together."""
        assert spec.projection is not None and members
        return layer_shapes(spec.projection, self.width)


Form = Annotated[BayesVlm | Vilu, Field(discriminator="kind")]


@dataclass(frozen=True)
class Attached:
    """What is attached to a network, and its tensors by their names without the kind's."""

    form: BayesVlm | Vilu
    tensors: TensorMap

    def stored(self) -> TensorMap:
        """The tensors by the names they have in a file."""
        return {f"{self.form.kind}.{name}": tensor for name, tensor in self.tensors.items()}


def detached(
    name: str, form: BayesVlm | Vilu | None, tensors: TensorMap, spec: ModelSpec, members: int
) -> tuple[TensorMap, Attached | None]:
    """A file's tensors divided into those of the network and those attached to it.

    Args:
        name: what messages call the file.

    Raises:
        CheckpointError: the network is no zero-shot model, or what is attached is not all there, of another shape or
            type. To load one of the tensors raises it as well where its numbers cannot be what they are to be.
    """
    if form is None:
        return tensors, None
    if spec.task != "zero-shot":
        raise CheckpointError(f"{name}: {form.kind} belongs to a zero-shot model, this is of {spec.task}")
    prefix = f"{form.kind}."
    own = {key: tensor for key, tensor in tensors.items() if not key.startswith(prefix)}
    found = {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
    wanted: Mapping[str, tuple[int, ...]] = form.shapes(spec, members)
    for key in sorted(wanted.keys() | found.keys()):
        has = found[key].shape if key in found else None
        if has != wanted.get(key):
            said = "is missing" if has is None else f"has shape {list(has)}"
            should = f"expected {list(wanted[key])}" if key in wanted else "nothing claims it"
            raise CheckpointError(f"{name}: {prefix}{key} {said}, {should}: write the file again")
    kinds = {tensor.dtype: key for key, tensor in found.items()}
    if len(kinds) > 1 or not kinds.keys() <= {*WIDE}:
        said = " and ".join(f"{prefix}{key} is of {str(kind).removeprefix('torch.')}" for kind, key in kinds.items())
        raise CheckpointError(f"{name}: {said}, expected float32 or float64, one for all: write the file again")
    return own, Attached(form, {key: _checked(name, form, key, tensor) for key, tensor in found.items()})


def _checked(file: str, form: BayesVlm | Vilu, name: str, tensor: LazyTensor) -> LazyTensor:
    """The tensor, which is looked through when it is loaded."""

    def load() -> Tensor:
        numbers = tensor.load()
        if (fault := form.fault(name, numbers)) is not None:
            raise CheckpointError(f"{file}: {form.kind}.{name} holds {fault}: calibrate the model again")
        return numbers

    return LazyTensor(tensor.shape, tensor.dtype, load)
