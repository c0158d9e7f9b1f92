"""Several processes on one job, as torchrun starts them, and several threads in each: results do not show them.

What processes tell each other goes through accelerate, but for sums that must round as on one rank.
"""

from __future__ import annotations

import importlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from hydractl.errors import HydractlError

In = TypeVar("In")
Out = TypeVar("Out")
# One rank may wait long for another that has more to do; one that died ends the job by closing its connections.
PATIENCE = timedelta(days=1)
END = "end"


class InParallel(Protocol):
    """A map, results in order."""

    def __call__(self, function: Callable[[In], Out], items: Iterable[In], /) -> Iterator[Out]: ...


@dataclass(frozen=True)
class Ranks:
    """This process is number `rank` of `size`; without torchrun the only one."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"  # where tensors must lie to be exchanged

    @property
    def leads(self) -> bool:
        """Says that this process is the one that prints and writes."""
        return self.rank == 0

    def total(self, tensor: Tensor) -> Tensor:
        """Returns the sum over ranks, on each of them; exact where all ranks but one hold zeros."""
        if self.size == 1:
            return tensor
        from accelerate.utils import reduce

        summed: Tensor = reduce(tensor.to(self.device), "sum")
        return summed.to(tensor.device)

    def in_turn(self, parts: Iterator[Tensor], total: Tensor, count: int) -> Tensor:
        """Returns the sum of `count` parts in their order, whichever rank has them, so that it rounds as on one rank.

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
        """Returns the tensor of `rank` on every rank."""
        if self.size == 1:
            return tensor
        from accelerate.utils import broadcast

        held: Tensor = broadcast(tensor.to(self.device), rank)
        return held.to(tensor.device)

    def ask(self, what: object, own: Any = None) -> list[Any]:
        """Returns the answer of every rank, in order; for the leading rank, while the others `hear` and `reply`.

        Args:
            what: they hear.
            own: this rank's own answer, the first of the list.

        Raises:
            HydractlError: what a rank replied in place of an answer, or a rank is gone.
        """
        if self.size == 1:
            return [own]
        from accelerate.utils import broadcast_object_list, gather_object

        try:
            broadcast_object_list([what])
            answers: list[Any] = gather_object([own])
        except RuntimeError as error:
            raise HydractlError("a process of this job ended before its time: see what it said") from error
        for answer in answers:
            if isinstance(answer, HydractlError):
                raise answer
        return answers

    def hear(self) -> Any:
        """Returns what the leading rank asks; this process ends silently where that one has failed and said why."""
        from accelerate.utils import broadcast_object_list

        try:
            [heard] = broadcast_object_list([None])
        except RuntimeError as error:
            raise SystemExit(1) from error
        if heard == END:
            self.reply(None)
            raise SystemExit(1)
        return heard

    def reply(self, answer: object) -> None:
        """Answers what was heard; an error is raised by the leading rank, which says it once for all."""
        from accelerate.utils import gather_object

        try:
            gather_object([answer])
        except RuntimeError as error:
            raise SystemExit(1) from error

    @contextmanager
    def leading(self) -> Iterator[None]:
        """Tells the other ranks where the leading one fails while it asks, after whatever it does on its way out."""
        try:
            yield
        except BaseException:
            with suppress(HydractlError):
                self.ask(END)
            raise

    @contextmanager
    def following(self) -> Iterator[None]:
        """Has the leading rank raise, when it asks next, what fails here while other ranks answer."""
        try:
            yield
        except HydractlError as error:
            self.hear()
            self.reply(error)
            self.hear()  # the end, which comes when the leading rank has said what happened


@contextmanager
def join_ranks(device: torch.device) -> Iterator[Ranks]:
    """Joins the ranks that torchrun started, gloo between CPUs and nccl between GPUs; one rank without torchrun."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or not dist.is_torchelastic_launched():
        yield Ranks()
        return
    # What this module's functions take for their default group is the one there is at its import. Imported later, by
    # torch._dynamo for one, it keeps the group, whose threads then outlive the interpreter and abort the process.
    importlib.import_module("torch.distributed.nn.functional")
    from accelerate import PartialState

    gpu = device.type == "cuda"
    if gpu:
        torch.cuda.set_device(local_device(device))
    store, rank, size = next(rendezvous("env://"))
    dist.init_process_group("nccl" if gpu else "gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)
    state = PartialState(cpu=not gpu)  # finds the group that there is
    try:
        yield Ranks(rank, size, "cuda" if gpu else "cpu")
        # Ranks leave together: gloo aborts one whose peer closes the connection while its threads still read. Past the
        # barrier a peer may still be reading of it; what they tell the launcher's store needs no connection of theirs.
        state.wait_for_everyone()
        store.set(f"left/{rank}", "yes")
        store.wait([f"left/{number}" for number in range(size)], PATIENCE)
    finally:
        state.destroy_process_group()
        PartialState._reset_state()  # it would take the group for one that still is


def local_device(device: torch.device) -> torch.device:
    """Returns the device of this process: under torchrun each has a GPU of its own."""
    named: int | None = device.index
    if device.type != "cuda" or named is not None or "LOCAL_RANK" not in os.environ:
        return device
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


@contextmanager
def batch_workers(device: torch.device, ahead: int | None = None) -> Iterator[InParallel]:
    """Yields a map that runs whole batches side by side, on a CPU one to a core, and gives results in order.

    A matrix product shared by several threads may round otherwise than by one; a batch on one thread is the same
    number whatever the machine has, and threads that need not wait for each other are faster.

    Args:
        ahead: how many batches beyond those at work are taken from the input, all of them where it is left out.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    workers = threads if device.type == "cpu" else 1
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))

    try:
        yield pool.map if ahead is None else partial(_few_at_a_time, pool, workers + ahead)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def _few_at_a_time(
    pool: ThreadPoolExecutor, most: int, function: Callable[[In], Out], items: Iterable[In]
) -> Iterator[Out]:
    begun: deque[Future[Out]] = deque()
    for item in items:
        begun.append(pool.submit(function, item))
        if len(begun) == most:
            yield begun.popleft().result()
    while begun:
        yield begun.popleft().result()
