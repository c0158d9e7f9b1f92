"""Measures a network at every budget by every method of pruning, in one pass over the data.

Source: arXiv 2510.18358, B.3.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from hydractl.checkpoint.heads import Head
from hydractl.data.batching import Batch
from hydractl.errors import DataError, OptionError
from hydractl.metrics.ood_detection import OodMetrics, ood_metrics
from hydractl.metrics.prediction_table import PredictionTable, in_order, tabulate
from hydractl.selection.answers import Answering, logits_of
from hydractl.selection.candidates import counts
from hydractl.surgery.choose import Scope, by_scores

PER_LAYER = "/layer"


@dataclass(frozen=True)
class Budgets:
    """Budgets: `numbers` of heads to drop over the whole network, or in each layer."""

    numbers: tuple[int, ...] = ()
    per_layer: bool = False


@dataclass(frozen=True)
class Cut:
    """A network without some heads, and the method that chose them."""

    method: str
    dropped: frozenset[Head]


@dataclass(frozen=True)
class PrunedQuality:
    """Quality of a network: accuracy 0..1 and NLL in nats on ID data, detection of each OOD set by MSP."""

    accuracy: float
    nll: float
    ood: Mapping[str, OodMetrics] = field(default_factory=dict)

    def mean(self, name: str) -> float | None:
        """Returns the mean of an OOD metric over the OOD sets; None without OOD sets."""
        values = [getattr(found, name) for found in self.ood.values()]
        return sum(values) / len(values) if values else None


def parse_budgets(text: str, heads: Iterable[Head]) -> Budgets:
    """Returns the budgets in a text: numbers of heads or shares of all, as `12,24,33%`, or per layer, as `2,4,6/layer`.

    Args:
        heads: all of the network.

    Raises:
        OptionError: no budgets, or more heads than there are.
    """
    layers = Counter((head.tower, head.layer) for head in heads)
    per_layer = text.endswith(PER_LAYER)
    most = min(layers.values()) if per_layer else layers.total()
    numbers = counts("budgets", text.removesuffix(PER_LAYER), most)
    if not numbers:
        raise OptionError(f"`budgets` {text!r}: expected numbers, as in 12,24,48 or 2,4,6,8{PER_LAYER}")
    return Budgets(tuple(numbers), per_layer)


def cuts_of_ranking(method: str, ranking: Sequence[Head], budgets: Budgets, heads: Sequence[Head]) -> list[Cut]:
    """Returns the heads that a circuit drops first at each budget, over all layers or in each.

    Args:
        heads: all of the network.

    Raises:
        OptionError: the circuit ranks fewer heads, over all or in a layer.
    """
    groups = [ranking]
    if budgets.per_layer:
        layers = dict.fromkeys(head[:2] for head in heads)
        groups = [[head for head in ranking if head[:2] == layer] for layer in layers]
    most, fewest = max(budgets.numbers), min(map(len, groups))
    if fewest < most:
        where = " of some layer" if budgets.per_layer else ""
        raise OptionError(f"`budgets` {most}: {method} ranks {fewest} heads{where}: ask for fewer, or extract more")
    return [Cut(method, frozenset(head for group in groups for head in group[:n])) for n in budgets.numbers]


def cuts_of_scores(method: str, scores: Mapping[Head, float], budgets: Budgets) -> list[Cut]:
    """Returns the heads with the lowest scores at each budget, over all layers or in each.

    Raises:
        OptionError: fewer heads have scores.
    """
    layers = len({(head.tower, head.layer) for head in scores})
    scope: Scope = "layer" if budgets.per_layer else "global"
    totals = (number * layers if budgets.per_layer else number for number in budgets.numbers)
    return [Cut(method, frozenset(by_scores(scores, total, scope))) for total in totals]


def measure_all(
    networks: Sequence[Answering],
    inside: Sequence[Batch],
    outside: Mapping[str, Sequence[Batch]],
    device: torch.device,
    on_batch: Callable[[int], object] = lambda samples: None,
) -> list[PrunedQuality]:
    """Measures every network, in order; each batch is read once for all, and no logits are kept.

    Args:
        inside: batches of the ID samples, with labels.
        outside: batches of each OOD set.
        on_batch: receives the size of each finished batch.

    Raises:
        DataError: a sample cannot be read, ID samples have no labels, or a logit is not finite.
    """

    def tables(batches: Sequence[Batch], labelled: bool) -> list[PredictionTable]:
        parts: list[list[PredictionTable]] = []
        temperatures = [network.temperature for network in networks for _ in range(network.size)]
        for batch in batches:
            if labelled and batch.labels is None:
                raise DataError("the ID samples have no labels: accuracy needs them")
            labels = batch.labels.numpy() if labelled and batch.labels is not None else None
            logits = logits_of(networks, batch, device)
            parts.append([tabulate(own[None], labels, t) for own, t in zip(logits, temperatures, strict=True)])
            on_batch(len(batch.positions))
        order = np.concatenate([batch.positions.numpy() for batch in batches])
        return [in_order(own, order) for own in zip(*parts, strict=True)]

    of_id = tables(inside, labelled=True)
    of_ood = {name: tables(batches, labelled=False) for name, batches in outside.items()}
    return [
        PrunedQuality(
            float(table.labelled().correct.mean()),
            float(table.labelled().nll.mean()),
            {name: ood_metrics(table.doubt, found[number].doubt) for name, found in of_ood.items()},
        )
        for number, table in enumerate(of_id)
    ]
