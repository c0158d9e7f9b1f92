"""The greedy search of Algorithm 1: drop the head that the network does best without, and again.

Each round is an ablation: the network is measured with each head turned off.

Source: [HE] D.1.2.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydractl.checkpoint.heads import Head, member_heads
from hydractl.circuit.objective import Measure, Measures, Objective, ScoringData, SearchData, mean_over_tasks, measure
from hydractl.circuit.ranking import DroppedHead, Progress, Ranking, Search
from hydractl.circuit.replay import Replay
from hydractl.circuit.saliency import required_labels
from hydractl.data.batching import Batch
from hydractl.data.ranks import Ranks, batch_workers
from hydractl.errors import DataError
from hydractl.model.hydra import Hydra, without_heads
from hydractl.tasks.task import Judged

Places = NDArray[np.int64]


def ablation_scores(
    model: Hydra, data: ScoringData, objective: Objective, progress: Progress = lambda group, samples: None
) -> dict[Head, float]:
    """Returns the objective of the model minus that of the model with each head off, higher = keep."""
    heads = member_heads(model.heads, 0)
    measures = ablate(model, [data], heads, progress)
    intact = measures[None].score(objective)
    return {head: intact - measures[head].score(objective) for head in heads}


@dataclass(frozen=True, eq=False)
class _Answers:
    """Answers of each of G networks for each sample; zeros for the samples of other ranks."""

    quality: NDArray[np.float64]  # [G,N]
    loss: NDArray[np.float64]  # [G,N]
    confidence: NDArray[np.float64]  # [G,N+N'], the ID samples first

    @classmethod
    def none(cls, networks: int, data: ScoringData) -> _Answers:
        """Room for the answers of so many networks."""
        quality, loss = (np.zeros((networks, data.id_samples)) for _ in range(2))
        return cls(quality, loss, np.zeros((networks, data.id_samples + data.ood_samples)))

    def note(self, row: int, columns: Places, judged: Judged) -> None:
        """Notes how good a network's answers for some samples are."""
        for name, values in judged._asdict().items():
            if values is not None:
                getattr(self, name)[row, columns] = values

    def total(self, ranks: Ranks) -> _Answers:
        """Returns the answers of all ranks."""
        return _Answers(**{name: ranks.total(torch.from_numpy(part)).numpy() for name, part in vars(self).items()})


def ablate(
    model: Hydra, data: SearchData, heads: Sequence[Head], progress: Progress = lambda group, samples: None
) -> dict[Head | None, Measure]:
    """Returns the measure of the network with each head off in turn, and under None with all of them on.

    Of several tasks it is the mean over them.

    Samples are put in order before anything is summed: the ranks and threads at work do not show in the result.

    Args:
        model: of one member, with all `heads`.
        progress: receives each group of heads that was replayed, and the number of samples.

    Raises:
        DataError: a logit is not finite, or the ID samples have no labels.
    """
    each = [_ablate(model, task, heads, progress) for task in data]
    return {head: mean_over_tasks([measures[head] for measures in each]) for head in each[0]}


def _ablate(model: Hydra, data: ScoringData, heads: Sequence[Head], progress: Progress) -> dict[Head | None, Measure]:
    rows = {head: number for number, head in enumerate([None, *heads])}
    device = next(model.parameters()).device
    with torch.inference_mode():
        network = Replay(model, heads, data.prompts)
    answers = _Answers.none(len(rows), data)
    stop = threading.Event()

    def answer(job: tuple[Sequence[Batch], int, int]) -> None:
        batches, number, offset = job
        unsplit = batches[number]
        for batch in unsplit.parts(network.at_once(unsplit.inputs)):
            columns, labels = batch.positions.numpy() + offset, None if offset else required_labels(batch).numpy()
            counts = batch.word_counts()
            with torch.inference_mode():
                for group, logits in network.logits({n: t.to(device) for n, t in batch.inputs.items()}):
                    if stop.is_set():
                        return
                    scaled = _wide(batch.answered(logits)).astype(np.float64) / model.temperature
                    for head, head_logits in zip(group or (None,), scaled, strict=True):
                        judged = model.task.judge(head_logits[None], labels, data.variance)
                        answers.note(rows[head], columns, judged if counts is None else judged.of_sentences(counts))
                    progress(group, len(columns))

    jobs = [(data.id, n, 0) for n in range(len(data.id))]
    jobs += [(data.ood, n, data.id_samples) for n in range(len(data.ood))]
    with batch_workers(device) as in_parallel:
        try:
            deque(in_parallel(answer, jobs[data.ranks.rank :: data.ranks.size]), maxlen=0)
        finally:
            stop.set()
    return _measures(answers.total(data.ranks), rows, data, model.task.parts)


def _wide(values: Tensor) -> NDArray[Any]:
    # Half precision ends here: decisions are made in float64 of float32.
    wide: NDArray[Any] = values.to("cpu", torch.promote_types(values.dtype, torch.float32)).numpy()
    if not np.isfinite(wide).all():
        raise DataError("the model's logits are not finite on this data: try `dtype` float32")
    return wide


def _measures(
    answers: _Answers, rows: Mapping[Head | None, int], data: ScoringData, parts: int
) -> dict[Head | None, Measure]:
    # What comes before each OOD set: the ID samples, and the sets before it.
    sets = data.ood_sets or ((data.ood_samples,) if data.ood_samples else ())
    starts = list(accumulate(sets, initial=data.id_samples))[:-1]
    rated = {}
    for head, row in rows.items():
        id_scores, *ood_scores = np.split(answers.confidence[row], starts)
        rated[head] = measure(answers.quality[row], id_scores, ood_scores, float(answers.loss[row].mean()), parts=parts)
    return rated


def extract_circuits(
    model: Hydra,
    data: SearchData,
    search: Search,
    rankings: Sequence[Ranking],
    on_round: Callable[[Sequence[Ranking]], Progress] = lambda growing: lambda group, samples: None,
    on_step: Callable[[Sequence[Ranking], Ranking], None] = lambda rankings, grown: None,
) -> list[Ranking]:
    """Returns the rankings grown to the search's budget, each the same as if it were grown alone.

    Objectives that have dropped the same heads so far share a round: always the first, often more.

    Args:
        model: of one member.
        rankings: one for each objective, empty or from an earlier run.
        on_round: receives the rankings that grow in a round; returns a function that receives its progress.
        on_step: receives all rankings and the one of them that has just grown.

    Raises:
        DataError: a logit is not finite, or ID samples have no labels.
    """
    current = list(rankings)
    while unfinished := [ranking for ranking in current if len(ranking.steps) < search.budget]:
        dropped = min(unfinished, key=lambda ranking: len(ranking.steps)).dropped
        network = without_heads(model, dropped)
        growing = [ranking for ranking in current if ranking.dropped == dropped]
        measures = ablate(network, data, search.left(dropped), on_round(growing))
        for ranking in growing:
            grown = _grown(ranking, measures, search)
            current[current.index(ranking)] = grown
            on_step(current, grown)
    return current


def _grown(ranking: Ranking, measures: Measures, search: Search) -> Ranking:
    """Returns the ranking with the best of a round dropped, the first in candidate order among equals."""
    choice = [head for head in search.candidates if head in measures]
    best = max(choice, key=lambda head: measures[head].rank(ranking.objective))
    step = DroppedHead(best, measures[best])
    return replace(ranking, baseline=ranking.baseline or measures[None], steps=(*ranking.steps, step))
