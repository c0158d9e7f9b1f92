"""Networks in memory that answer the data sets of an evaluation, shared by the processes of a job."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hydractl.checkpoint.calibration import Calibration
from hydractl.checkpoint.spec import ModelSpec
from hydractl.data.batching import Batch, Batches, make_batches, no_word
from hydractl.data.labels import unnamed
from hydractl.data.number_labels import match_to_task
from hydractl.data.preprocess import Preprocessor
from hydractl.data.samples import Samples
from hydractl.errors import OptionError
from hydractl.evaluation.answer_kinds import AnswerKind, answer_kind
from hydractl.evaluation.cost import cost
from hydractl.evaluation.results import Cost, Dropout
from hydractl.evaluation.set_answers import Classifier, SetAnswers
from hydractl.evaluation.sets import EvaluationData, SetKey
from hydractl.evaluation.systems import OnBatch, Running
from hydractl.inference import MemberAnswers, member_answers
from hydractl.metrics.checks import FloatArray
from hydractl.model.attention import attend_by_products
from hydractl.model.fast.optimize import use_fast_products
from hydractl.model.hydra import Hydra
from hydractl.model.ood_head import OodHead
from hydractl.ood.score import Reads
from hydractl.tasks.all_tasks import find_task

SHARE = "share"  # asks each rank for its share of the answers


@dataclass(frozen=True, eq=False)
class Networks:
    """Networks that answer in turn on the same batches; their members together are the ensemble.

    The networks share preprocessing, classes and temperature (`checkpoints.check_together`). With dropout each answers
    `passes` times, with draws that depend on the seed and the batch alone.
    """

    models: Sequence[Hydra]
    preprocessor: Preprocessor
    data: EvaluationData
    running: Running  # with the ranks that share the batches; the leading one asks for `answers`, the others `serve`
    dropout: Dropout | None = None
    confident: ClassVar[bool] = False

    @property
    def passes(self) -> int:
        return self.dropout.passes if self.dropout else 1

    @property
    def labels(self) -> tuple[str, ...] | None:
        return self.models[0].labels

    @property
    def alone(self) -> bool:
        """True if one network answers as it was calibrated: neither several nor draws."""
        return len(self.models) == 1 and self.dropout is None

    @property
    def calibration(self) -> Calibration:
        """What was fitted to its answers; the temperature alone where several networks or draws answer."""
        fitted = self.models[0].calibration
        return fitted if self.alone else Calibration(fitted.temperature)

    @property
    def kind(self) -> AnswerKind:
        return answer_kind(self.models[0].task, self.calibration, names=self.labels)

    @property
    def temperature(self) -> float:
        return self.models[0].temperature

    @property
    def cost(self) -> Cost:
        parts = [cost(model) for model in self.models]
        return Cost(
            members=self.passes * sum(part.members for part in parts),
            parameters=sum(part.parameters for part in parts),
            multiply_adds=self.passes * sum(part.multiply_adds for part in parts),
            performed=self.passes * sum(part.performed for part in parts),
            tokens=parts[0].tokens,
        )

    @property
    def classifier(self) -> Classifier | None:
        if self.models[0].spec.embeds:
            return None
        maps = [model.classifier_weights() for model in self.models for _ in range(self.passes)]
        weight, bias = (torch.cat(parts).detach().cpu().double() for parts in zip(*maps, strict=True))
        return Classifier(weight, bias)

    @cached_property
    def ood_head(self) -> OodHead | None:
        first = self.models[0].ood_head
        if first is None or self.alone:
            return first
        self.running.on_note(
            "OOD scores, thresholds, intervals and sets were fitted to single networks: scored by the MSP, without them"
        )
        return None

    @property
    def scores_itself(self) -> bool:
        return self.ood_head is not None and self.ood_head.row.reads == "layers"

    def samples(self, key: SetKey) -> int:
        return len(self.data.sets[key])

    def answers(self, key: SetKey, reads: Reads, on_batch: OnBatch) -> SetAnswers:
        """Returns the answers to a set; other ranks must `serve` meanwhile."""
        labels = labels_of(key, self.data, self.labels, self.models[0].spec, running=self.running)
        self.running.ranks.ask((key, reads))
        own = []
        for positions, answers in self._batches(key, reads):
            own.append((positions, answers))
            on_batch(len(positions) * self.running.ranks.size)
        return answers_in_order([part for share in self.running.ranks.ask(SHARE, own) for part in share], labels)

    def profiles(self, samples: Samples) -> tuple[FloatArray, FloatArray] | None:
        """Returns the typicality of some samples `[N]`, and that by each layer `[N,L]`; None without a score for it."""
        if self.ood_head is None or self.ood_head.row.by_layer is None:
            return None
        found = self.models[0].predict(list(samples.inputs), self.running.batch_size)
        assert found.typicality is not None and found.profile is not None
        return found.typicality.double().numpy(), found.profile.double().numpy()

    def serve(self) -> None:
        """Answers what the leading rank asks of this system, until it calls `dismiss`."""
        while (asked := self.running.ranks.hear()) is not None:
            self.running.ranks.reply(None)
            share = list(self._batches(*asked))
            self.running.ranks.hear()
            self.running.ranks.reply(share)
        self.running.ranks.reply(None)

    def dismiss(self) -> None:
        """Tells the ranks that serve that this system is done."""
        self.running.ranks.ask(None)

    def _batches(self, key: SetKey, reads: Reads) -> Iterator[tuple[NDArray[np.int64], MemberAnswers]]:
        """Yields this rank's share of the answers, with the places of their samples in the set."""

        def answer(batch: Batch) -> tuple[NDArray[np.int64], MemberAnswers]:
            parts = [part for model in self.models for part in self._passes(model, batch, key, reads)]
            return batch.positions.numpy(), parts[0] if len(parts) == 1 else _side_by_side(parts)

        ranks = self.running.ranks
        batches = batches_of(self.data.sets[key], self.preprocessor, self.running, ranks.rank, of=ranks.size)
        yield from self.running.in_parallel(answer, batches)

    def _passes(self, model: Hydra, batch: Batch, key: SetKey, reads: Reads) -> Iterator[MemberAnswers]:
        if self.dropout is None:
            yield member_answers(model, batch, reads)
            return
        # A batch draws the same whichever process runs it and whatever ran before.
        generator = torch.Generator(next(model.parameters()).device)
        generator.manual_seed(_batch_seed(self.running.seed, key, int(batch.positions[0])))
        with SeededDropout(generator):
            for _ in range(self.dropout.passes):
                yield member_answers(model, batch, reads)


def labels_of(
    key: SetKey, data: EvaluationData, classes: Sequence[str] | None, spec: ModelSpec, *, running: Running
) -> NDArray[np.int64] | None:
    """Returns the labels of a set as a network's classes or numbers; None of a set that has no such labels.

    Numbers are float64, but int64 where a sigmoid answers and all of them are 0 or 1.
    """
    if not key.has_labels:
        return None
    samples = data.sets[key]
    task = find_task(spec.task)
    if not task.labelled:
        return None
    matched = match_to_task(samples, task, classes or unnamed(spec.classes), data.match)
    for note in matched.notes[len(samples.notes) :]:
        running.on_note(note)
    labels = matched.labels
    if labels is None or not (task.numbers and task.several and np.isin(labels, (0, 1)).all()):
        return labels
    return labels.astype(np.int64)  # answers that are right or wrong, not numbers to come near to


def batches_of(samples: Samples, preprocessor: Preprocessor, running: Running, rank: int = 0, of: int = 1) -> Batches:
    """Returns the batches of a process, one `of` several, and notes texts that are cut."""
    batches = make_batches(samples, preprocessor, running.batch_size, workers=running.workers, rank=rank, world_size=of)
    if batches.truncated:
        lost = f"{batches.truncated} of {len(samples)} texts are too long for the model and lost their end"
        running.on_note(f"{samples.name}: {lost}")
    return batches


def answers_in_order(
    parts: Sequence[tuple[NDArray[np.int64], MemberAnswers]], labels: NDArray[np.int64] | None
) -> SetAnswers:
    """Returns the answers to a set from those to batches of it, each with its samples' places in the set."""
    order = np.argsort(np.concatenate([positions for positions, _ in parts]))

    def joined(tensors: Sequence[Tensor | None]) -> Any:
        known = [tensor for tensor in tensors if tensor is not None]
        return torch.cat(known, -2)[..., order, :].numpy() if known else None

    each = [answers for _, answers in parts]
    logits, places = [one.logits for one in each], None
    if each[0].places is not None:
        places = torch.cat([one.places for one in each if one.places is not None]).numpy()
        in_text = np.lexsort((places[:, 1], places[:, 0]))
        places, logits = places[in_text], [torch.cat(logits, 1)[:, in_text]]
        labels = None if labels is None else labels[places[:, 0], places[:, 1]]
        if len(bare := np.setdiff1d(order, places[:, 0])):
            raise no_word(bare[0])
    own = joined([None if one.ood_score is None else one.ood_score[:, None] for one in each])
    return SetAnswers(
        joined(logits) if places is None else logits[0].numpy(),
        labels,
        joined([one.features for one in each]),
        hidden=[joined(layer) for layer in zip(*(one.hidden for one in each), strict=True)],
        ood_score=None if own is None else own[:, 0].astype(np.float64),
        places=places,
    )


def _side_by_side(parts: Sequence[MemberAnswers]) -> MemberAnswers:
    """Returns the answers of several networks, or passes, as those of one ensemble."""
    logits = torch.cat([part.logits for part in parts])
    features = [part.features for part in parts if part.features is not None]
    forms = {(part.features.shape[-1], len(part.hidden)) for part in parts if part.features is not None}
    if len(forms) > 1:
        widths = ", ".join(str(width) for width, _ in sorted(forms))
        raise OptionError(
            f"networks of one ensemble have features of widths {widths}, or other layers: choose an `ood_score` that "
            "reads logits"
        )
    own = ([layer.expand(len(part.logits), -1, -1) for layer in part.hidden] for part in parts)
    hidden = [torch.cat(layer) for layer in zip(*own, strict=True)]
    return MemberAnswers(logits, torch.cat(features) if features else None, hidden, places=parts[0].places)


def _batch_seed(seed: int, key: SetKey, position: int) -> int:
    digest = hashlib.blake2b(f"{seed} {key.path} {position}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def with_dropout(model: Hydra, dropout: Dropout, name: str) -> Hydra:
    """Returns the model with dropout on at test time, at the given rate or at its own."""
    layers = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    if dropout.rate is None and not any(layer.p for layer in layers):
        raise OptionError(f"{name}: was trained without dropout: give a rate, as in {name},mc-dropout=10,p=0.1")
    for layer in layers:
        layer.p = layer.p if dropout.rate is None else dropout.rate
    use_fast_products(model, model.spec)
    return model.train()


class SeededDropout(TorchFunctionMode):
    """While it is entered, dropout draws its masks from a generator, for this thread alone.

    Torch's own generator serves all threads, so that what a batch draws would depend on what runs beside it.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is F.dropout:
            return self._drop(*args, **kwargs)
        if function is F.scaled_dot_product_attention and kwargs.get("dropout_p"):
            with self:  # torch's own function takes no generator
                return attend_by_products(*args, **kwargs)
        return function(*args, **kwargs)

    def _drop(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        return x * torch.empty_like(x).bernoulli_(1 - p, generator=self.generator).div_(1 - p)
