"""Measures of networks for searches, in whole numbers, and the samples that they are taken on.

Equal networks compare equal on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import lcm
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head
from hydractl.data.reading import Reading
from hydractl.errors import OptionError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from hydractl.data.batching import Batch, CachedBatches
    from hydractl.data.ranks import Ranks
    from hydractl.data.samples import Labels, Samples
    from hydractl.model.hydra import Hydra
    from hydractl.tasks.task import Task

Objective = Literal["acc", "ood", "avg"]
OBJECTIVES: tuple[Objective, ...] = ("acc", "ood", "avg")


def parse_objectives(text: str) -> list[Objective]:
    """Returns the objectives that are named with commas between, in the order of `OBJECTIVES`."""
    names = [name.strip() for name in text.split(",")]
    objectives = [name for name in OBJECTIVES if name in names]
    if len(objectives) != len(names):
        raise OptionError(f"`objective` {text}: expected acc, ood, avg, or several with commas between them")
    return objectives


def settle_objectives(text: str | None, task: Task, ood_data: Sequence[object]) -> list[Objective]:
    """Returns the objectives that are named; by default avg, or acc where answers have no confidence.

    Args:
        ood_data: the OOD data of each set of ID data, None for none.

    Raises:
        OptionError: see `parse_objectives` and `require_confidence`, or an objective without the OOD data it needs.
    """
    objectives = parse_objectives(text or task.objective)
    comparing = [name for name in objectives if name != "acc"]
    for ood in ood_data:
        require_confidence(task, objectives, ood)
        if comparing and ood is None:
            raise OptionError(f"`objective` {comparing[0]} needs `ood_data`: give it, or choose acc")
    return objectives


def require_confidence(task: Task, objectives: Sequence[str], ood: object) -> None:
    """Raises OptionError for what needs a confidence, if answers of the task have none."""
    if task.objective == "avg":
        return
    for objective in objectives:
        if objective in ("ood", "avg"):
            raise OptionError(
                f"`objective` {objective} needs a confidence, which {task.name} does not have: choose acc"
            )
    if ood is not None:
        raise OptionError(f"detecting `ood_data` needs a confidence, which {task.name} does not have: leave it out")


class Measure(NamedTuple):
    """Counts and losses of one network on the search's samples."""

    # The quality of all ID samples, and how many they are: 1 for each, or as many as the parts that a task counts.
    correct: int
    id_samples: int
    ordered: int  # twice the pairs of an ID and an OOD sample whose scores stand in the right order, a tie counting one
    # Where there are several OOD sets, they count as if each were repeated until all are of one size: the AUROC is the
    # mean over sets, whatever their sizes. Of several tasks see `mean_over_tasks`.
    ood_samples: int
    nll: float  # mean loss of the ID samples: for classes the negative log-likelihood, nats

    @property
    def accuracy(self) -> float:
        """The mean quality, whatever the task measures."""
        return self.correct / self.id_samples

    @property
    def auroc(self) -> float | None:
        """The AUROC of the MSP with OOD positive; None without OOD samples."""
        return self.ordered / (2 * self.id_samples * self.ood_samples) if self.ood_samples else None

    def score(self, objective: Objective) -> float:
        """Returns the objective, 0..1, higher = better; `ood` and `avg` need OOD samples.

        Source: [HE] D.1.2.
        """
        if objective == "acc":
            return self.accuracy
        assert self.auroc is not None
        return self.auroc if objective == "ood" else (self.accuracy + self.auroc) / 2

    def rank(self, objective: Objective) -> int:
        """Returns a whole number in proportion to the objective on given data: what decisions compare."""
        if objective == "avg":
            return 2 * self.ood_samples * self.correct + self.ordered
        return self.correct if objective == "acc" else self.ordered


#: How a network does with each of some heads off, and under None with all of them on.
Measures = Mapping[Head | None, Measure]


def measure(
    quality: NDArray[np.float64],
    id_scores: NDArray[np.float64],
    ood_scores: Sequence[NDArray[np.float64]],
    nll: float,
    *,
    parts: int = 1,
) -> Measure:
    """Returns the measure of a network from its answers for each sample.

    Args:
        quality: [N] of the answers for ID samples.
        id_scores: [N] MSP of ID samples, or minus another OOD score.
        ood_scores: [N'] of the samples of each OOD set.
        nll: the mean over ID samples.
        parts: how many a quality is counted in: each ID sample counts as so many.
    """
    ordered, ood_samples = detection(id_scores, ood_scores)
    correct = int((quality * parts).round().sum())
    return Measure(correct, len(quality) * parts, ordered * parts, ood_samples=ood_samples, nll=nll)


def detection(id_scores: NDArray[np.float64], ood_scores: Sequence[NDArray[np.float64]]) -> tuple[int, int]:
    """Returns the ordered pairs and OOD samples of a measure; see `measure`."""
    size = lcm(*map(len, ood_scores))
    return sum(_ordered(id_scores, scores) * (size // len(scores)) for scores in ood_scores), size * len(ood_scores)


def mean_over_tasks(measures: Sequence[Measure]) -> Measure:
    """Returns the measure whose accuracy, AUROC, objectives and loss are the means of those of several tasks.

    In whole numbers still: tasks count as if the samples of each were repeated until all tasks have equally many.

    Source: [HE] E.3.2.

    >>> mean_over_tasks([Measure(1, 2, 3, 4, 0.5), Measure(2, 3, 6, 2, 1.5)])._asdict()
    {'correct': 7, 'id_samples': 12, 'ordered': 33, 'ood_samples': 4, 'nll': 1.0}
    """
    id_all = lcm(*(row.id_samples for row in measures))
    ood_all = lcm(*(row.ood_samples for row in measures))  # 0 where a task has none: there is no AUROC then
    times = [id_all // row.id_samples for row in measures]
    pairs = [time * (ood_all // row.ood_samples) if ood_all else 0 for time, row in zip(times, measures, strict=True)]
    return Measure(
        sum(row.correct * time for row, time in zip(measures, times, strict=True)),
        id_all * len(measures),
        sum(row.ordered * time for row, time in zip(measures, pairs, strict=True)),
        ood_samples=ood_all,
        nll=fmean(row.nll for row in measures),
    )


def _ordered(id_scores: NDArray[np.float64], ood_scores: NDArray[np.float64]) -> int:
    from hydractl.metrics.detection import count_scores, ordered_pairs

    id_counts, ood_counts = count_scores(-id_scores, -ood_scores)
    return ordered_pairs(id_counts, ood_counts)


def _alone() -> Ranks:
    from hydractl.data.ranks import Ranks  # loads torch, which a circuit's file does not need

    return Ranks()


@dataclass(frozen=True, eq=False)
class ScoringData:
    """Labelled ID samples and, for what compares the two, OOD ones; in batches that are the same on every rank."""

    id: Sequence[Batch]  # batches of the ID samples, in any order; a search asks for them in every round
    id_samples: int  # N, how many samples they hold
    ood: Sequence[Batch] = ()  # batches of the OOD samples, which need no labels
    ood_samples: int = 0  # N'
    prompts: Sequence[Mapping[str, Tensor]] = ()  # batches of a zero-shot model's class prompts
    ranks: Ranks = field(default_factory=_alone)
    # How many samples each OOD set holds, in the order of their positions; one set of all where empty.
    ood_sets: tuple[int, ...] = ()
    variance: NDArray[np.float64] | None = None  # [C] of the labels of ID samples that are numbers

    @property
    def all_prompts(self) -> dict[str, Tensor]:
        """The class prompts in one batch, `[C,T]`; nothing for a model that has none."""
        import torch

        return {name: torch.cat([batch[name] for batch in self.prompts]) for name in next(iter(self.prompts), ())}


#: The samples of each task, one or several: a network is measured on their mean.
SearchData = Sequence[ScoringData]


def prompt_batches(prompts: Mapping[str, Tensor] | None, batch_size: int) -> list[dict[str, Tensor]]:
    """Returns the class prompts `[C,T]` of a zero-shot model in batches; an empty list for other models."""
    tensors = prompts or {}
    count = len(next(iter(tensors.values()), ()))
    return [
        {name: tensor[start : start + batch_size] for name, tensor in tensors.items()}
        for start in range(0, count, batch_size)
    ]


@dataclass(frozen=True, eq=False)
class Material:
    """A network of one member and the samples to run it on: labelled ID ones, and OOD sets by name, perhaps none.

    `labels` and `prompts` are those of the ID data: a zero-shot network may get other classes later. `targets` `[N,P]`
    take the place of labels where the network embeds: no identity depends on them, as they follow from both.
    """

    checkpoint: Checkpoint
    model: Hydra
    id: Samples
    ood: Mapping[str, Samples]
    reading: Reading
    labels: tuple[str, ...] | None
    prompts: Mapping[str, Tensor]
    targets: Labels | None = None

    def with_targets(self, batch_size: int) -> Material:
        """Returns the same with the network's own embeddings of the ID samples as targets."""
        from hydractl.inference import collect_logits

        outputs = collect_logits(self.model, self.batches(self.id, batch_size))
        return replace(self, targets=outputs.member_logits[0].numpy())

    def scoring_data(
        self, batch_size: int, ranks: Ranks, share: int = 1, advance: Callable[[float], None] = lambda samples: None
    ) -> ScoringData:
        """Returns the samples as head scores and searches take them.

        Args:
            share: the number of data sets that share the memory for cached batches.
            advance: receives the number of samples of each batch that is read.
        """
        from hydractl.data.batching import JoinedBatches

        sizes = tuple(map(len, self.ood.values()))
        id_samples = self.id if self.targets is None else replace(self.id, labels=self.targets)
        id_batches = JoinedBatches([self.batches(id_samples, batch_size, share)], [len(id_samples)], advance)
        # Of texts whose words are labelled, those with a label would count alone.
        sets = [self.batches(replace(samples, labels=None), batch_size, share) for samples in self.ood.values()]
        ood_batches = JoinedBatches(sets, sizes, advance)
        prompts = prompt_batches(self.prompts, batch_size)
        return ScoringData(
            id_batches,
            len(id_samples),
            ood_batches,
            sum(sizes),
            prompts=prompts,
            ranks=ranks,
            ood_sets=sizes,
            variance=None if id_samples.labels is None else self.model.task.variance(id_samples.labels),
        )

    @property
    def samples(self) -> int:
        """The number of samples, ID and OOD."""
        return len(self.id) + sum(map(len, self.ood.values()))

    def batches(self, samples: Samples, batch_size: int, share: int = 1) -> CachedBatches:
        """Returns the samples as the network's inputs, the same batches on every rank."""
        from hydractl.data.batching import CACHED_BYTES, CachedBatches, make_batches
        from hydractl.data.preprocess import preprocessor_from_json

        files, spec, name = self.checkpoint.preprocessing, self.checkpoint.spec, self.checkpoint.name
        preprocessor = preprocessor_from_json(files, spec, name, self.checkpoint.config)
        return CachedBatches(make_batches(samples, preprocessor, batch_size), CACHED_BYTES // share)

    @property
    def template(self) -> str | None:
        """The prompt of a zero-shot model's classes; None for other models."""
        return self.model.task.template(self.reading.template)

    @property
    def device(self) -> torch.device:
        """The device that the network computes on."""
        return next(self.model.parameters()).device

    def used(self, id_name: str, ood_name: str) -> dict[str, Samples]:
        """Returns all samples by use; several OOD sets have their own names behind it.

        The name of a single set does not matter: no result depends on it.
        """
        alone = len(self.ood) == 1
        return {id_name: self.id} | {
            ood_name if alone else f"{ood_name} {name}": samples for name, samples in self.ood.items()
        }

    def data_identity(self) -> dict[str, Any]:
        """Returns the data that results depend on besides the model and the options, as plain JSON."""
        classes = {} if self.template is None else {"classes": list(self.labels or ())}
        return {name: samples.identity() for name, samples in self.used("ID data", "OOD data").items()} | classes
