"""What models find set in their process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PAGES = """
import resource, torch
from hydractl.process import prepare_process
{call}
for _ in range(20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(call: str) -> int:
    return int(subprocess.run([sys.executable, "-c", PAGES.format(call=call)], capture_output=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="tells glibc to keep memory")
def test_freed_memory_serves_the_next_activation() -> None:
    assert faults("prepare_process()") < 10 < faults("")
