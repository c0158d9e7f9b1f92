"""Options and data of a refit: inputs without labels, on which maps of pruned networks are fitted again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.layout import every_unit
from hydractl.circuit.objective import Material
from hydractl.data.reading import SOURCE, DataLike, Reading
from hydractl.errors import OptionError
from hydractl.inputs.search_data import tell_oddities
from hydractl.options import option
from hydractl.run_options import Compute
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    from hydractl.data.batching import Batch
    from hydractl.data.ranks import Ranks
    from hydractl.data.samples import Samples

#: Inputs of which a refit has enough: more hardly change it, and take as much longer.
ENOUGH = 2500


@dataclass(frozen=True)
class RefitOptions:
    """Names the inputs on which maps are refitted; without any, no map is.

    Raises:
        OptionError: texts without other inputs.
    """

    refit: DataLike | None = option(
        None,
        "Inputs without labels, on which the remaining maps are fitted to the unpruned network's states. This restores "
        f"most of the accuracy that pruning takes. {ENOUGH:,} are enough: see --limit.",
        "Data",
        SOURCE,
        remembered=False,
    )
    refit_texts: DataLike | None = option(
        None,
        "Texts for the text tower of a zero-shot model, such as captions. Default: the prompts of its classes.",
        "Data",
        SOURCE,
        remembered=False,
        rare=True,
    )

    def __post_init__(self) -> None:
        if self.refit_texts is not None and self.refit is None:
            raise OptionError("`refit_texts` needs `refit`: give both, or leave it out")

    @contextmanager
    def opened(
        self, network: Checkpoint, reading: Reading, compute: Compute, watch: Watcher
    ) -> Iterator[Refitter | None]:
        """Opens the network and the inputs, under torchrun on every rank; yields None without inputs.

        Raises:
            CheckpointError: the network cannot be read.
            DataError: the inputs cannot be read, or are not what the network takes.
            OptionError: texts for a network that takes none beside its inputs.
        """
        if self.refit is None:
            yield None
            return
        from hydractl.data.labels import set_classes
        from hydractl.data.open import open_samples
        from hydractl.data.ranks import join_ranks, local_device
        from hydractl.inference import load_to_compute

        if self.refit_texts is not None and len(network.spec.towers) < 2:
            raise OptionError(f"`refit_texts`: {network.name} has no text tower beside another one: leave it out")
        samples = {"refit": open_samples(self.refit, network.spec.modality, reading, strict=False, name="refit data")}
        if self.refit_texts is not None:
            samples["refit texts"] = open_samples(self.refit_texts, "text", reading, strict=False, name="refit texts")
        tell_oddities(samples.values(), watch)
        if len(samples["refit"]) > 2 * ENOUGH:
            watch.note(f"note: {len(samples['refit']):,} inputs to refit on: {ENOUGH:,} are enough, see --limit")
        model = load_to_compute(network, local_device(compute.torch_device), None)
        # A text tower that lost no head needs no prompts.
        if self.refit_texts is None and (reading.classes is not None or samples["refit"].label_names is not None):
            set_classes(model, reading.classes, reading.template, samples["refit"])
        unlabelled = {name: replace(each, labels=None) for name, each in samples.items()}
        prompts = model.class_prompts or {}
        material = Material(
            network, model, unlabelled["refit"], {}, reading=reading, labels=model.labels, prompts=prompts
        )
        with join_ranks(material.device) as ranks:
            noted = watch if ranks.leads else LOG
            yield Refitter(material, unlabelled.get("refit texts"), compute.batch_size, ranks, watch=noted)


@dataclass(frozen=True)
class Refitter:
    """A network as it was before surgery, and the inputs on which what comes of it is refitted."""

    material: Material
    texts: Samples | None  # for the second tower; None for the prompts of the classes
    batch_size: int
    ranks: Ranks
    watch: Watcher

    @property
    def origin(self) -> dict[str, Any]:
        """The options of the result beside those of its step."""
        return {"refit": len(self.material.id), "template": None if self.texts else self.material.template}

    @property
    def used(self) -> dict[str, Any]:
        """Sketches of the samples by use, for a provenance: an evaluation refuses them."""
        texts = {} if self.texts is None else {"refit texts": self.texts.sketch()}
        return {"refit": self.material.id.sketch(), **texts}

    def refitted(self, changed: Checkpoint) -> Checkpoint:
        """Returns what surgery left of the network, refitted; see `hydractl.surgery.refit`."""
        from hydractl.surgery.refit import Refitting, refit

        inputs = self._inputs()
        with self.watch.progress("refit", self._passes(changed, inputs)) as advance:
            how = Refitting(ranks=self.ranks, advance=lambda: advance(self.ranks.size))
            return refit(self.material.model, changed, inputs, how)

    def _passes(self, changed: Checkpoint, inputs: Mapping[str, Sequence[Batch]]) -> int:
        """Returns how often a batch passes a layer that is refitted, in all."""
        passes = 0
        for tower in self.material.checkpoint.spec.towers:
            heads, units = (
                [layer for layer, (old, new) in enumerate(zip(*kept, strict=True)) if old != new]
                for kept in (
                    [each.heads[tower.name] for each in (self.material.checkpoint, changed)],
                    [every_unit(each.layout, each.spec, tower.name) for each in (self.material.checkpoint, changed)],
                )
            )
            first = min([*heads, *units], default=tower.layers)
            passes += len(inputs[tower.name]) * (tower.layers - first + len(units))
        return passes

    def _inputs(self) -> dict[str, Sequence[Batch]]:
        """Returns batches by the tower that reads them."""
        import torch

        from hydractl.data.batching import Batch

        first, *others = (tower.name for tower in self.material.checkpoint.spec.towers)
        inputs: dict[str, Sequence[Batch]] = {first: self.material.batches(self.material.id, self.batch_size)}
        prompts = self.material.prompts
        classes = torch.arange(len(next(iter(prompts.values()), ())))
        for tower in others:
            if self.texts is None:
                inputs[tower] = list(Batch(dict(prompts), None, classes).parts(self.batch_size))
            else:
                inputs[tower] = self.material.batches(self.texts, self.batch_size)
        return inputs
