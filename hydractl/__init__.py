"""Post-hoc Hydra ensembles: a trained transformer classifier becomes one network that knows when it is wrong.

import hydractl

model = hydractl.load("hydra.safetensors")
model.predict(images)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hydractl.inference import load, save

__all__ = ["load", "save"]


def __getattr__(name: str) -> Any:
    # `hydractl --help` imports this package too, and must not wait for torch.
    if name in __all__:
        from hydractl import inference

        return getattr(inference, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("hydractl")
    if name == "process":
        return import_module("hydractl.process")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
