"""Where workers come from."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from torch.utils.data import Dataset

from hydractl.data.batching import made_by_workers


class Parents(Dataset[int]):
    """Which process started the one that asks."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return os.getppid()


def test_no_worker_is_a_fork_of_a_process_with_threads_of_ranks(beside_ranks: bool) -> None:
    [first, second] = made_by_workers(Parents(), 1)
    assert first == second
    assert (first != os.getpid()) == beside_ranks


class Deaf(Parents):
    """Whether the one that asks heeds no Ctrl-C."""

    def __getitem__(self, index: int) -> int:
        return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_workers_beside_ranks_leave_ctrl_c_to_them(beside_ranks: bool) -> None:
    assert list(made_by_workers(Deaf(), 1)) == [beside_ranks] * 2
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


STARTED_BEFORE = """
from multiprocessing import forkserver
from types import SimpleNamespace
from hydractl.data import batching as workers
from tests.data.test_workers import Deaf

workers.dist = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True)
if __name__ == "__main__":
    forkserver.ensure_running()
    print(list(workers.made_by_workers(Deaf(), 1)))
"""


def test_workers_leave_it_where_another_started_their_server(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(STARTED_BEFORE)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, tmp_path / "rank.py"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": root}
    )
    assert done.stdout == "[True, True]\n", done.stderr


class Own(Parents):
    """Which process asks."""

    def __getitem__(self, index: int) -> int:
        return os.getpid()


KILLED = """
import os, signal
from types import SimpleNamespace
from hydractl.data import batching as workers
from tests.data.test_workers import Own

workers.dist = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True)
if __name__ == "__main__":
    made = workers.made_by_workers(Own(), 1)
    print(next(made), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_a_rank_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(KILLED)
    root = str(Path(__file__).parents[2])
    with (tmp_path / "said").open("w+") as said:
        rank = subprocess.Popen(
            [sys.executable, tmp_path / "rank.py"], stdout=said, env={**os.environ, "PYTHONPATH": root}
        )
        assert rank.wait(120) == -signal.SIGKILL
    worker = Path("/proc", (tmp_path / "said").read_text().strip())
    end = time.monotonic() + 60
    while worker.exists() and time.monotonic() < end:
        time.sleep(0.1)
    assert not worker.exists()


def test_the_order_that_is_asked_for() -> None:
    assert list(made_by_workers(range(10), 2, [7, 1, 5])) == [7, 1, 5]  # type: ignore[arg-type]
