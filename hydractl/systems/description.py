"""Descriptions of systems as a report has them: networks, their heads, cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from hydractl.artifacts import Size, TowerName
from hydractl.schema import Checked, Items

if TYPE_CHECKING:
    Number = int
else:  # a whole number stays whole in JSON; a mean over seeds need not be whole
    Number = Annotated[int | float, Checked(ge=0)]
Positive = Annotated[float, Checked(ge=0)]
Share = Annotated[float, Checked(ge=0, le=1)]
Count = Annotated[int, Checked(ge=0)]
NULL = {"null": True}  # marks a field that JSON writes as null


@dataclass(frozen=True)
class Model:
    """The reference and identity of a system."""

    reference: str
    sha256: str | None = None


@dataclass(frozen=True)
class Heads:
    """The heads that each member keeps in each layer, and how many there are."""

    of: Size
    kept: Items[Items[Items[int]]]

    def __post_init__(self) -> None:
        if len({len(members) for members in self.kept}) > 1:
            raise ValueError("layers differ in how many members they have")


@dataclass(frozen=True)
class Network:
    """One of the networks of a system, and the heads it keeps."""

    reference: str
    sha256: str
    heads: Mapping[TowerName, Heads]


@dataclass(frozen=True)
class Dropout:
    """Dropout that stays on at test time: how often each network answers, and the rate; None for the model's own."""

    passes: int
    rate: float | None = field(default=None, metadata=NULL)


@dataclass(frozen=True)
class KnownLeak:
    """Samples of a set that made the system or fitted something in it; `used_as` says for what."""

    set: str
    name: str
    samples: Count
    overlap: Count
    used_as: Items[str]


@dataclass(frozen=True)
class Description:
    """The networks that a system is made of, and the samples of the evaluation that it was made with."""

    model: Model
    networks: Items[Network] = ()
    dropout: Dropout | None = None
    leaks: Items[KnownLeak] | None = None
    exposed: Items[str] | None = None  # OOD sets of the kind that its training saw


@dataclass(frozen=True)
class Cost:
    """Members, parameters stored, and multiply-adds of matrix products for one sample of `tokens` tokens.

    `multiply_adds` are those of the network as it is published, every token through every layer; `performed` are those
    of this very model, fewer once it is optimised for inference. A zero-shot model's class prompts are encoded once for
    all samples and not counted.
    """

    members: Number
    parameters: Number
    multiply_adds: Number
    performed: Number = 0
    tokens: Number = 0


def plain(value: Any) -> Any:
    """Returns a value as plain JSON; NaN becomes null."""
    if is_dataclass(value):
        pairs = ((entry, getattr(value, entry.name)) for entry in fields(value))
        return {entry.name: plain(inner) for entry, inner in pairs if inner is not None or entry.metadata}
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if hasattr(value, "_asdict"):  # a named tuple
        return plain(value._asdict())
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and value != value else value
