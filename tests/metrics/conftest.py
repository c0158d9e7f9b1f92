"""The metric classes of torch-uncertainty, as oracles, without the trainer its package imports on the way."""

import importlib
import importlib.util
import sys
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="session")
def torch_uncertainty():
    # Its packages import lightning when they are initialised; the metrics themselves need only torchmetrics.
    spec = importlib.util.find_spec("torch_uncertainty")
    if spec is None:
        pytest.skip("torch-uncertainty is not installed")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("torch_uncertainty", "torch_uncertainty.metrics"):
            module = ModuleType(name)
            module.__path__ = [spec.submodule_search_locations[0] + name.removeprefix(spec.name).replace(".", "/")]
            patch.setitem(sys.modules, name, module)
        yield importlib.import_module("torch_uncertainty.metrics.classification")


@pytest.fixture
def generator():
    return np.random.default_rng(0)


@pytest.fixture
def ensemble(generator):
    """Logits [3,400,10] float32 of members that often agree, and labels they are often right about."""
    labels = generator.integers(10, size=400)
    shared = generator.normal(size=(400, 10))
    shared[np.arange(400), labels] += 2
    logits = 2 * shared + generator.normal(size=(3, 400, 10))
    return logits.astype(np.float32), labels
