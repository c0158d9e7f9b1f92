"""Our file and what it holds, whatever the architecture.

checkpoint = hydractl.checkpoint.read("hydra.safetensors")
hydractl.checkpoint.write(checkpoint, "copy.safetensors")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hydractl.checkpoint.manifest import read, write

__all__ = ["read", "write"]


def __getattr__(name: str) -> Any:
    # The command line imports modules of this package that must not wait for torch.
    if name in __all__:
        from hydractl.checkpoint import manifest

        return getattr(manifest, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
