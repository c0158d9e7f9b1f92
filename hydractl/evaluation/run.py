"""One model over the data of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hydractl.data.batches import make_batches
from hydractl.data.labels import match_labels
from hydractl.data.preprocessing import Preprocessor
from hydractl.data.sources import Samples
from hydractl.data.spec import Group
from hydractl.errors import DataError
from hydractl.evaluation.cost import cost
from hydractl.evaluation.results import ModelResult, OodTable, measure
from hydractl.inference import collect_logits
from hydractl.model.hydra import Hydra
from hydractl.uncertainty.table import PredictionTable, tabulate


@dataclass(frozen=True, eq=False)
class OodSamples:
    """An OOD set and the group it counts to in the means."""

    samples: Samples
    group: Group | None = None


@dataclass(frozen=True, eq=False)
class EvaluationData:
    """What models are evaluated on: labelled ID samples, and OOD sets by name."""

    id: Samples
    ood: Mapping[str, OodSamples]
    match: Literal["name", "index"] = "name"

    @property
    def size(self) -> int:
        """How many samples a model sees."""
        return len(self.id) + sum(len(entry.samples) for entry in self.ood.values())

    @property
    def every(self) -> Sequence[Samples]:
        """All sets, the ID set first."""
        return [self.id, *(entry.samples for entry in self.ood.values())]


def evaluate_model(
    model: Hydra,
    preprocessor: Preprocessor,
    data: EvaluationData,
    batch_size: int,
    on_batch: Callable[[int], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> ModelResult:
    """Every metric of one model on the data.

    Args:
        model: in eval mode, with classes set if it is zero-shot.
        preprocessor: the model's own.
        batch_size: fixes the batches, and so the result to the last bit.
        on_batch: told the size of each finished batch.
        on_note: told what a reader of the numbers should know.

    Raises:
        DataError: the ID labels are not the model's, or a sample cannot be read.
    """
    if model.labels is None:
        raise DataError(f"{data.id.name}: the model's classes have no names to match its labels with")
    labelled = match_labels(data.id, model.labels, data.match)
    id_table = predict_table(model, preprocessor, labelled, batch_size, on_batch, on_note)
    ood_tables = {
        # Whatever labels an OOD set has, they are not of the model's classes.
        name: OodTable(
            predict_table(model, preprocessor, replace(entry.samples, labels=None), batch_size, on_batch, on_note),
            entry.group,
        )
        for name, entry in data.ood.items()
    }
    return measure(id_table, ood_tables, cost(model))


def predict_table(
    model: Hydra,
    preprocessor: Preprocessor,
    samples: Samples,
    batch_size: int,
    on_batch: Callable[[int], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> PredictionTable:
    """The per-sample quantities of a model's predictions, at the model's own temperature."""
    batches = make_batches(samples, preprocessor, batch_size)
    if batches.truncated and on_note is not None:
        on_note(
            f"{samples.name}: {batches.truncated} of {len(samples)} texts are too long for the model and lost their end"
        )
    logits = collect_logits(model, batches, on_batch)
    labels = None if logits.labels is None else logits.labels.numpy()
    return tabulate(logits.member_logits.numpy(), labels, model.temperature)
