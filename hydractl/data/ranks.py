"""Several processes on one job, as torchrun starts them, and several threads in each, with unchanged results."""

import importlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from hydractl.errors import HydractlError

# A rank may wait long for another with more work; a rank that dies ends the job by closing its connections.
PATIENCE = timedelta(days=1)
END = "end"
#: A map, results in order.
InParallel: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


@dataclass(frozen=True)
class Ranks:
    """This process is number `rank` of `size`; without torchrun the only one."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"  # where tensors must lie to be exchanged

    @property
    def leads(self) -> bool:
        """True if this process prints and writes."""
        return self.rank == 0

    def total(self, tensor: Tensor) -> Tensor:
        """Returns the sum over ranks, on every rank; exact where all ranks but one hold zeros."""
        return self._exchanged(tensor, dist.all_reduce)

    def in_turn(self, parts: Iterator[Tensor], total: Tensor, count: int) -> Tensor:
        """Returns the sum of `count` parts of all ranks in their order, so that it rounds as on one rank.

        Args:
            parts: this rank's parts, number `rank`, `rank + size`, ...
            total: the start of the sum, the same on every rank.
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
        return self._exchanged(tensor, partial(dist.broadcast, src=rank))

    def _exchanged(self, tensor: Tensor, exchange: Callable[[Tensor], object]) -> Tensor:
        if self.size == 1:
            return tensor
        copy = tensor.to(self.device, copy=True)
        exchange(copy)
        return copy.to(tensor.device)

    def ask(self, what: object, local: Any = None) -> list[Any]:
        """Returns the answer of every rank, in order. The leading rank calls it while the others `hear` and `reply`.

        Args:
            what: the question that the others hear.
            local: this rank's own answer, the first of the list.

        Raises:
            HydractlError: a rank replied with an error, or ended.
        """
        if self.size == 1:
            return [local]
        answers: list[Any] = [None] * self.size
        try:
            dist.broadcast_object_list([what])
            dist.all_gather_object(answers, local)
        except RuntimeError as error:
            raise HydractlError("a process of this job ended too early: see its own error") from error
        for answer in answers:
            if isinstance(answer, HydractlError):
                raise answer
        return answers

    def hear(self) -> Any:
        """Returns the question of the leading rank; ends this process silently if that rank failed and printed why."""
        heard: list[Any] = [None]
        try:
            dist.broadcast_object_list(heard)
        except RuntimeError as error:
            raise SystemExit(1) from error
        if heard[0] == END:
            self.reply(None)
            raise SystemExit(1)
        return heard[0]

    def reply(self, answer: object) -> None:
        """Answers the leading rank, which raises an answer that is an error, once for all ranks."""
        try:
            everyone: list[Any] = [None] * self.size
            dist.all_gather_object(everyone, answer)
        except RuntimeError as error:
            raise SystemExit(1) from error

    @contextmanager
    def leading(self) -> Iterator[None]:
        """Ends the other ranks if the leading one fails while it asks."""
        try:
            yield
        except BaseException:
            with suppress(HydractlError):
                self.ask(END)
            raise

    @contextmanager
    def following(self) -> Iterator[None]:
        """Passes an error of this rank to the leading one, which raises it when it asks next."""
        try:
            yield
        except HydractlError as error:
            self.hear()
            self.reply(error)
            self.hear()  # the end, once the leading rank has printed the error


@contextmanager
def join_ranks(device: torch.device) -> Iterator[Ranks]:
    """Joins the ranks that torchrun started, by gloo between CPUs and nccl between GPUs; one rank without torchrun."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or not dist.is_torchelastic_launched():
        yield Ranks()
        return
    # The functions of this module keep the group that exists at its import. An import after the start, such as that by
    # torch._dynamo, would keep our group, whose threads then outlive the interpreter and abort the process.
    importlib.import_module("torch.distributed.nn.functional")
    gpu = device.type == "cuda"
    if gpu:
        torch.cuda.set_device(local_device(device))
    store, rank, size = next(rendezvous("env://"))
    dist.init_process_group("nccl" if gpu else "gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)
    try:
        yield Ranks(rank, size, "cuda" if gpu else "cpu")
        # Ranks leave together: gloo aborts a rank whose peer closes the connection while its threads still read. A peer
        # may still be reading from the barrier; the launcher's store needs no connection between ranks.
        dist.barrier()
        store.set(f"left/{rank}", "yes")
        store.wait([f"left/{number}" for number in range(size)], PATIENCE)
    finally:
        dist.destroy_process_group()


def local_device(device: torch.device) -> torch.device:
    """Returns the device of this process; under torchrun each process has its own GPU."""
    index: int | None = device.index
    if device.type != "cuda" or index is not None or "LOCAL_RANK" not in os.environ:
        return device
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


@contextmanager
def batch_workers(device: torch.device) -> Iterator[InParallel]:
    """Yields a map that computes whole batches in parallel, one per core on a CPU, with results in order.

    Each batch runs on one thread: a matrix product shared by several threads may round differently, and threads that
    need not wait for each other are faster. The map takes only one item ahead of those in work.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    workers = threads if device.type == "cpu" else 1
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))

    def in_parallel(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        begun: deque[Future[Any]] = deque()
        for item in items:
            begun.append(pool.submit(function, item))
            if len(begun) == workers + 1:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()

    try:
        yield in_parallel
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
