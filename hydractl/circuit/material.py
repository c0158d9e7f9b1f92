"""A network of one member, ready to run, and the samples that scores and searches run it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hydractl.checkpoint.contents import Checkpoint
from hydractl.circuit.objective import ScoringData, prompt_batches
from hydractl.data.reading import Reading

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hydractl.data.batching import CachedBatches
    from hydractl.data.ranks import Ranks
    from hydractl.data.samples import Labels, Samples
    from hydractl.model.hydra import Hydra


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
        return self.reading.template if self.model.spec.prompted else None

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
        classes = {"classes": list(self.labels or ())} if self.model.spec.prompted else {}
        return {name: samples.identity() for name, samples in self.used("ID data", "OOD data").items()} | classes
