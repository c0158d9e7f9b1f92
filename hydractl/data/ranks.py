"""Several processes on one job, as torchrun starts them, and several threads in each: results do not show them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True)
class Ranks:
    """This process is number `rank` of `size`; without torchrun the only one."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"  # where tensors must lie to be exchanged

    @property
    def leads(self) -> bool:
        """Whether this process is the one that prints and writes."""
        return self.rank == 0

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, on each of them; exact where all ranks but one hold zeros."""
        if self.size == 1:
            return tensor
        held = tensor.to(self.device)
        dist.all_reduce(held)
        return held.to(tensor.device)

    def in_turn(self, parts: Iterator[Tensor], total: Tensor, count: int) -> Tensor:
        """The sum of `count` parts in their order, whichever rank has them, so that it rounds as on one rank.

        Args:
            parts: this rank's, number `rank`, `rank + size`, ...
            total: where the sum starts from, the same on every rank.
        """
        for number in range(self.rank, count, self.size):
            part = next(parts)
            if self.size > 1 and number > 0:
                total = total.to(self.device)
                dist.recv(total, (number - 1) % self.size)
                total = total.to(part.device)
            total = total + part
            if self.size > 1 and number < count - 1:
                dist.send(total.to(self.device), (number + 1) % self.size)
        return self.from_rank(total, (count - 1) % self.size)

    def from_rank(self, tensor: Tensor, rank: int) -> Tensor:
        """What `rank` holds, on every rank."""
        if self.size == 1:
            return tensor
        held = tensor.to(self.device)
        dist.broadcast(held, rank)
        return held.to(tensor.device)


@contextmanager
def join_ranks(device: torch.device) -> Iterator[Ranks]:
    """The ranks torchrun started, gloo between CPUs and nccl between GPUs; one rank without torchrun."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or not dist.is_torchelastic_launched():
        yield Ranks()
        return
    gpu = device.type == "cuda"
    if gpu:
        torch.cuda.set_device(local_device(device))
    dist.init_process_group("nccl" if gpu else "gloo")
    try:
        yield Ranks(dist.get_rank(), size, "cuda" if gpu else "cpu")
        # Ranks leave together: gloo aborts one whose peer closes the connection while its threads still read.
        dist.barrier()
    finally:
        dist.destroy_process_group()


def local_device(device: torch.device) -> torch.device:
    """The device of this process: under torchrun each has a GPU of its own."""
    named: int | None = device.index
    if device.type != "cuda" or named is not None or "LOCAL_RANK" not in os.environ:
        return device
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


@contextmanager
def batch_workers(device: torch.device) -> Iterator[Callable[[Callable[[In], Out], Iterable[In]], Iterator[Out]]]:
    """A map that runs whole batches side by side, on a CPU one to a core, and gives results in order.

    A matrix product shared by several threads may round otherwise than by one; a batch on one thread is the same
    number whatever the machine has, and threads that need not wait for each other are faster.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    workers = threads if device.type == "cpu" else 1
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
