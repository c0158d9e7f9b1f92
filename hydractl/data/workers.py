"""Processes that make batches while this one computes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

#: What every worker needs, loaded by the process that workers come from; of these, what is not installed is left out.
LOADED_ONCE = (
    "hydractl.training.batches",
    "torchvision.transforms.v2",
    "transformers.image_processing_backends",
    "transformers.image_processing_utils",
)


def made_by_workers(batches: Dataset[Any], workers: int, order: Sequence[int] | None = None) -> Iterator[Any]:
    """What the data set gives, in its order, made by that many processes.

    Args:
        workers: one or more.
        order: the indices wanted, all of them in turn if None.
    """
    where: dict[str, Any] = {}
    if dist.is_available() and dist.is_initialized() and "forkserver" in multiprocessing.get_all_start_methods():
        where = {"multiprocessing_context": _without_threads(), "worker_init_fn": _follow_rank}
    return iter(DataLoader(batches, batch_size=None, sampler=order, num_workers=workers, **where))


def _without_threads() -> Any:
    """Where workers come from beside ranks: a process of its own, which has no threads.

    A process whose ranks talk to each other has threads that take the interpreter's own locks. A fork while one of them
    holds such a lock makes a worker that waits for it for ever (CPython 3.11; once in a few hundred forks).
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(LOADED_ONCE))
    resource_tracker.ensure_running()  # which else is started below, and heeds Ctrl-C again
    # What comes from it inherits that it heeds no Ctrl-C: the rank does, and they end with it.
    heeded = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heeded)
    return context


def _follow_rank(_worker: int) -> None:
    """Ends a worker whose rank was killed. torch asks whether the process it comes from lives, which waits for it."""
    # Where the server was there before, it heeds Ctrl-C, and so would what comes from it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    threading.Thread(target=_outlive, args=(multiprocessing.parent_process(),), daemon=True).start()


def _outlive(parent: BaseProcess) -> NoReturn:
    parent.join()
    os._exit(1)
