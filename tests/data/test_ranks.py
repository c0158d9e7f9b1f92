"""Processes that torchrun starts leave nothing behind when they part."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
import importlib, os, torch
from hydractl.data.ranks import join_ranks

def threads():
    return {task: open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")}

alone = threads()
with join_ranks(torch.device("cpu")) as ranks:
    # Which is how many threads the group has, whatever they are called: torch names them only from 2.11 on.
    started = threads().keys() - alone
    assert started
    assert ranks.total(torch.ones(3)).tolist() == [2, 2, 2]
    importlib.import_module("torch._dynamo")
left = {task: name for task, name in threads().items() if task in started}
assert not left, left
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads where Linux lists them")
def test_no_thread_of_the_group_outlives_it(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", tmp_path / "job.py"]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, env=quiet)
    assert done.returncode == 0, done.stderr
