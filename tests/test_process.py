import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hydractl
from hydractl.process import OFF, TF32
from tests.cli.conftest import save_vit

PAGES = """
import resource, sys, torch, hydractl
{call}
for _ in range(20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(call: str, *arguments: Path) -> int:
    script = [sys.executable, "-c", PAGES.format(call=call), *map(str, arguments)]
    return int(subprocess.run(script, capture_output=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="tells glibc to keep memory")
def test_freed_memory_serves_the_next_activation_where_that_is_asked_for(tmp_path: Path) -> None:
    assert faults("hydractl.process.prepare()") < 10 < faults("hydractl.load(sys.argv[1])", save_vit(tmp_path))


@pytest.mark.parametrize("prepared", [True, False])
def test_only_a_prepared_process_computes_without_tf32(
    prepared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TF32, raising=False)
    backends = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = True
    if prepared:
        monkeypatch.setenv(TF32, OFF)
    hydractl.load(save_vit(tmp_path))(torch.zeros(1, 3, 8, 8))
    found = [backend.allow_tf32 for backend in backends]
    for backend, allowed in zip(backends, before, strict=True):
        backend.allow_tf32 = allowed
    assert found == [not prepared] * 2
