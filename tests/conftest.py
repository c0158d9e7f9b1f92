"""Reference models of every variant of every architecture, and where real data lies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
import transformers

from hydractl import families
from hydractl.families import Family
from tests import hostile
from tests.references import Architecture, Built, Reference, randomised

# A shell starts background jobs deaf to SIGINT, nohup to SIGHUP, and so would be every command a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

#: The modules that families lie in, each with one of the same name beside the tests of families.
MODULES = [
    module
    for module in (import_module(f"hydractl.families.{name}") for _, name, _ in iter_modules(families.__path__))
    if any(isinstance(value, Family) for value in vars(module).values())
]
ARCHITECTURES: list[Architecture] = [
    import_module(f"tests.families.{module.__name__.rpartition('.')[2]}").ARCHITECTURE for module in MODULES
]
VARIANTS: dict[str, Callable[[], Built]] = {
    name: build for architecture in ARCHITECTURES for name, build in architecture.variants.items()
}
FAMILY_VARIANTS = tuple(name for architecture in ARCHITECTURES for name in architecture.typical)


def build_reference(name: str, seed: int = 0, dtype: torch.dtype = torch.float64) -> Reference:
    """A reference model whose every tensor is random: no bias at zero, no norm at one, no two layers alike."""
    torch.manual_seed(seed)
    return randomised(name, *VARIANTS[name](), dtype)


@pytest.fixture(params=[False, True], ids=["alone", "beside_ranks"])
def beside_ranks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether workers are started as where ranks talk to each other, which is from a process without threads."""
    talking = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: request.param)
    monkeypatch.setattr("hydractl.data.workers.dist", talking)
    return bool(request.param)


_cases_of_workers: list[int] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many generated cases there were: those of this process and of its workers."""
    total = hostile.cases + sum(_cases_of_workers)
    if total:
        terminalreporter.write_line(f"{total:,} generated cases, each within the limits of tests/hostile.py")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist tells whoever started it how many cases were its own."""
    if output := getattr(session.config, "workeroutput", None):
        output["cases"] = hostile.cases


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any) -> None:
    """Hears that from a worker that has ended; one that crashed says nothing."""
    _cases_of_workers.append(getattr(node, "workeroutput", {}).get("cases", 0))


@pytest.fixture(params=VARIANTS)
def reference(request: pytest.FixtureRequest) -> Reference:
    """Each variant of each family in turn, in float64."""
    return build_reference(request.param)


@pytest.fixture(params=FAMILY_VARIANTS)
def family_reference(request: pytest.FixtureRequest) -> Reference:
    """One variant of each family, in float64."""
    return build_reference(request.param)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data."""
    folder = Path(os.environ.get("HYDRACTL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at HYDRACTL_DATA ({folder})")
    return folder


@pytest.fixture
def tf32() -> Iterator[Callable[[], set[bool]]]:
    """TF32 allowed, as a user may have it; called, it says whether it still is, for products and convolutions."""
    backends = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = True
    yield lambda: {backend.allow_tf32 for backend in backends}
    for backend, allowed in zip(backends, before, strict=True):
        backend.allow_tf32 = allowed
