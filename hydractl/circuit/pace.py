"""How long scoring will take, by batches that are read and run beforehand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter

import torch

from hydractl.checkpoint.heads import Head
from hydractl.circuit.ablation import parts
from hydractl.circuit.data import ScoringData, SearchData
from hydractl.circuit.replay import Replay
from hydractl.data.batching import Batch
from hydractl.data.ranks import batch_workers
from hydractl.model.hydra import Hydra


def reading_seconds(data: SearchData, device: torch.device) -> float:
    """About how long a process takes to read and decode its samples, by batches that it reads and then keeps.

    Samples too many to be kept in memory are read in every round of a search; this counts them once.
    """
    sets = [own for task in data.tasks for own in ((task.id, task.id_samples), (task.ood, task.ood_samples))]
    return sum(_reading_pace(batches, device) * samples for batches, samples in sets) / data.ranks.size


def _reading_pace(batches: Sequence[Batch], device: torch.device) -> float:
    """How long a sample takes to read; 0 where one batch, by now read, is all that there is."""
    _in_parallel(batches.__getitem__, range(min(len(batches), 1)), device)  # the first one opens the files
    timed = range(1, min(1 + _workers(device), len(batches)))
    seconds = _in_parallel(batches.__getitem__, timed, device)
    return seconds / max(sum(len(batches[number].positions) for number in timed), 1)


def replay_seconds(model: Hydra, data: ScoringData, batches: Sequence[Batch], heads: Sequence[Head]) -> float:
    """How long a sample takes with each head off in turn and with none off, timed on a part of the middle batch.

    Args:
        batches: of the ID or of the OOD samples; 0 where there is none.
        heads: of the tower that reads the samples.
    """
    if not batches:
        return 0.0
    whole, device = batches[len(batches) // 2], next(model.parameters()).device
    with torch.inference_mode():
        network = Replay(model, heads, data.prompts)
    batch = next(parts(whole, network.at_once(whole.inputs)))

    def answer(_: int) -> None:
        with torch.inference_mode():
            for _group, logits in network.logits({name: tensor.to(device) for name, tensor in batch.inputs.items()}):
                logits.cpu()  # waits for the device

    count = _workers(device)
    _in_parallel(answer, range(count), device)  # the first time is slower
    seconds = _in_parallel(answer, range(count), device) / (count * len(batch.positions))
    return seconds * _mean_length(batches, batch)


def _mean_length(batches: Sequence[Batch], timed: Batch) -> float:
    """How long samples are on average, in multiples of those timed: texts are padded to the longest of their batch."""
    ids = timed.inputs.get("input_ids")
    if ids is None:
        return 1.0
    # Texts, unlike images, are quick to read.
    tokens = sum(batch.inputs["input_ids"].numel() for batch in batches)
    return tokens / sum(len(batch.positions) for batch in batches) / ids.shape[1]


def _workers(device: torch.device) -> int:
    """How many batches are at work at a time, see `hydractl.data.ranks.batch_workers`."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def _in_parallel(work: Callable[[int], object], items: Iterable[int], device: torch.device) -> float:
    """The seconds that it takes, on as many cores as a search has."""
    with batch_workers(device) as in_parallel:
        start = perf_counter()
        deque(in_parallel(work, items), maxlen=0)
        return perf_counter() - start
