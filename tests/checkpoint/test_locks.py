"""One output belongs to one run, as long as it lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hydractl.checkpoint.locks import claim, lock, remove_if_abandoned
from hydractl.errors import OutputError

HOLDER = """
import sys, time
from pathlib import Path
from hydractl.checkpoint.locks import claim
with claim(Path(sys.argv[1])):
    print("holding", flush=True)
    time.sleep(60)
"""


def test_a_second_run_is_told_who_holds_the_output_until_that_one_is_killed(tmp_path: Path) -> None:
    output = tmp_path / "out"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, output], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "holding\n"
    with pytest.raises(OutputError, match=f"process {holder.pid} is writing it"), claim(output):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with claim(output):
        assert [path.name for path in tmp_path.iterdir()] == [".out.lock"]
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_removed_once_nobody_holds_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "part"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    assert lock(descriptor)
    remove_if_abandoned(path)
    assert path.exists()
    os.close(descriptor)
    remove_if_abandoned(path)
    assert not path.exists()
