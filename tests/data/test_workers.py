"""Where workers come from."""

from __future__ import annotations

import os

from torch.utils.data import Dataset

from hydractl.data.workers import made_by_workers


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


def test_the_order_that_is_asked_for() -> None:
    assert list(made_by_workers(range(10), 2, [7, 1, 5])) == [7, 1, 5]  # type: ignore[arg-type]
