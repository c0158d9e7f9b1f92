"""Fixtures of many folders. Only what a test needs is imported: transformers alone takes seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import hydractl  # noqa: F401 (first: it turns off what other libraries send home)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from hydractl.checkpoint.contents import Checkpoint
    from tests.references import Reference

# Read when transformers and huggingface_hub are imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

# A shell starts background jobs deaf to SIGINT, nohup to SIGHUP, and so would be every command a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# How long a case takes, and how long it is to make, is a matter of what else the machine does.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

#: Set in the process of a test that is marked `apart`.
APART = "HYDRACTL_TEST_APART"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is marked `apart` in a process of its own.

    A worker of xdist has threads, and a fork while one of them holds a lock of the interpreter may wait forever.
    """
    if APART in os.environ or pyfuncitem.get_closest_marker("apart") is None:
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", pyfuncitem.nodeid]
    environment, root = {**os.environ, APART: "1"}, pyfuncitem.config.rootpath
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return True


@pytest.fixture(autouse=True)
def children() -> Iterator[None]:
    """Removes the handler that torch leaves behind when it has started processes: it would hear of those of others."""
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, before)


def build_reference(name: str, seed: int = 0, dtype: torch.dtype | None = None) -> Reference:
    """A reference model whose every tensor is random: no bias at zero, no norm at one, no two layers alike."""
    from tests.references import drawn

    return drawn(name, seed, dtype)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests of `reference` on each variant of each family, and of `family_reference` on one of each family."""
    for fixture in {"reference", "family_reference"} & set(metafunc.fixturenames):
        from tests.references import family_variants, variants

        names = variants() if fixture == "reference" else family_variants()
        metafunc.parametrize(fixture, names, indirect=True)


@pytest.fixture
def reference(request: pytest.FixtureRequest) -> Reference:
    """Each variant of each family in turn, in float64."""
    return build_reference(request.param)


@pytest.fixture
def family_reference(request: pytest.FixtureRequest) -> Reference:
    """One variant of each family, in float64."""
    return build_reference(request.param)


@pytest.fixture(scope="session")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A ViT of three layers of four heads, in float64."""
    from hydractl.families.load import read_checkpoint

    return read_checkpoint(build_reference("vit").save(tmp_path_factory.mktemp("dense")))


@pytest.fixture(params=[False, True], ids=["alone", "beside_ranks"])
def beside_ranks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Starts workers as where ranks talk to each other, which is from a process without threads."""
    talking = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: request.param)
    monkeypatch.setattr("hydractl.data.batching.dist", talking)
    return bool(request.param)
