"""Processes that make batches while this one computes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from typing import Any

import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

#: What every worker needs, loaded by the process that workers come from; of these, what is not installed is left out.
LOADED_ONCE = (
    "hydractl.data.batches",
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
    context = _beside_threads() if dist.is_available() and dist.is_initialized() else None
    return iter(
        DataLoader(batches, batch_size=None, sampler=order, num_workers=workers, multiprocessing_context=context)
    )


def _beside_threads() -> Any:
    """Workers that come from a process without threads, where there is such a process.

    Once ranks talk to each other a process has threads that take the interpreter's own locks. A fork while one of them
    holds such a lock makes a worker that waits for it for ever (CPython up to 3.12; seen once in a few hundred forks).
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return None
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(LOADED_ONCE))
    return context
