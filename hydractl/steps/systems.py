"""Systems as a user names them: texts of the command line, models, models that make a Deep Ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hydractl.evaluation.systems import SystemSpec
    from hydractl.steps.inputs import ModelLike

    #: A system as a text, a model, or models that make a Deep Ensemble.
    SystemLike = ModelLike | Sequence[ModelLike] | SystemSpec
    Systems = SystemLike | Sequence[SystemLike] | Mapping[str, SystemLike]
else:  # what the command line derives a flag from
    Systems = Sequence[Any]


def named_systems(systems: Systems) -> list[tuple[str, SystemSpec]]:
    """The systems by name.

    Args:
        systems: one or several, or several by name: a text as the command line takes it, a model, models that make a
            Deep Ensemble.

    Raises:
        OptionError: none at all, or a text that spells no system.
    """
    if isinstance(systems, Mapping):
        return [(name, _spec(system)[1]) for name, system in systems.items()]
    if isinstance(systems, Sequence) and not isinstance(systems, str):
        return [_spec(system) for system in systems]
    return [_spec(systems)]


def _spec(system: Any) -> tuple[str, SystemSpec]:
    from hydractl.evaluation.checkpoints import NetworkSpec
    from hydractl.evaluation.systems import parse_system
    from hydractl.model.hydra import Hydra
    from hydractl.steps.inputs import as_checkpoint

    if isinstance(system, str):
        return parse_system(system)
    if hasattr(system, "open") and not isinstance(system, Path):
        return system.name, system
    networks = system if isinstance(system, list | tuple) else [system]
    kept = (network if isinstance(network, str | Path | Hydra) else as_checkpoint(network) for network in networks)
    spec = NetworkSpec(tuple(kept))
    return spec.name, spec
