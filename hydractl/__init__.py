"""Post-hoc Hydra ensembles: a trained transformer classifier becomes one network that knows when it is wrong.

import hydractl

model = hydractl.load("hydra.safetensors")
model.predict(images)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hydractl.export.registration import register_when_needed

if TYPE_CHECKING:
    from hydractl.inference import load, save

__all__ = ["load", "save"]


def __getattr__(name: str) -> Any:
    # `hydractl --help` imports this package too, and must not wait for torch.
    if name in __all__:
        from hydractl import inference

        return getattr(inference, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# AutoModel and pipelines find exported folders once this package has been imported.
register_when_needed()
