"""Makes the automatic classes of transformers find exported folders, once they are used at all.

`import hydractl` must not wait for transformers, and transformers must not be changed: its own `register` is called
when its table of models has been imported, now or later.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

TABLE = "transformers.models.auto.modeling_auto"


def register() -> None:
    """Tells transformers of the model classes."""
    import transformers

    from hydractl.export.configuration import HydraConfig
    from hydractl.export.folder import CLASSES

    transformers.AutoConfig.register(HydraConfig.model_type, HydraConfig, exist_ok=True)
    from hydractl.export import modeling

    for model, automatic in CLASSES.values():
        getattr(transformers, automatic).register(HydraConfig, getattr(modeling, model), exist_ok=True)


def register_when_needed() -> None:
    """Registers now if transformers' table of models is there already, else as soon as it is imported."""
    if TABLE in sys.modules:
        register()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != TABLE:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        register()
