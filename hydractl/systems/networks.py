"""Systems of networks: one, or several in turn as an ensemble, with dropout on or off, shared by processes of a job."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hydractl import inference
from hydractl.artifacts import TowerName
from hydractl.checkpoint.calibration import Calibration
from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.checkpoint.manifest import fingerprint
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tensors import tensor_bytes
from hydractl.data.batching import Batch, make_batches
from hydractl.data.labels import set_classes, unnamed
from hydractl.data.number_labels import match_to_task
from hydractl.data.preprocess import preprocessor_from_json
from hydractl.data.ranks import Ranks, batch_workers, local_device
from hydractl.data.reading import Modality, Reading
from hydractl.data.samples import Samples
from hydractl.errors import OptionError
from hydractl.families.load import read_checkpoint
from hydractl.inference import member_answers
from hydractl.metrics.arrays import FloatArray
from hydractl.model.answering import BatchAnswers, OodHead, RawPreprocessor, joined
from hydractl.model.attention import attend_by_products
from hydractl.model.fast.optimize import use_fast_products
from hydractl.model.hydra import Hydra, to_checkpoint
from hydractl.ood.score import Beside
from hydractl.run_options import Compute
from hydractl.surgery.slicing import pick_members
from hydractl.systems.cost import cost
from hydractl.systems.system import (
    Cost,
    Description,
    Dropout,
    EvaluationData,
    Heads,
    KnownLeak,
    Model,
    Network,
    OnBatch,
    Running,
    SetKey,
)
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Answers, Task
from hydractl.text import composed_all

SHARE = "share"  # asks each rank for its share of the answers
#: A path, a hub id, or a model that a program holds.
NetworkLike = str | Path | Checkpoint | Hydra


@contextmanager
def run_by(
    compute: Compute, reading: Reading, on_note: Callable[[str], None], *, ranks: Ranks | None = None, **settings: Any
) -> Iterator[Running]:
    """Yields how networks are run: on the device of this process, with batches side by side.

    Args:
        ranks: those that share the batches. Default: this process alone.
        settings: further fields of `Running`.
    """
    device = local_device(compute.torch_device)
    with batch_workers(device) as in_parallel:
        yield Running(
            device,
            compute.torch_dtype,
            compute.batch_size,
            reading,
            ranks=ranks or Ranks(),
            in_parallel=in_parallel,
            on_note=on_note,
            **settings,
        )


def batch_seed(seed: int, key: SetKey, position: int) -> int:
    """Returns the seed of a batch of a set that begins with the sample at a position."""
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


@dataclass(frozen=True)
class NetworkSystem:
    """Networks that answer in turn, each several times where dropout stays on.

    They share preprocessing, classes and temperature; their members together are the ensemble. With dropout each
    answers `passes` times, with draws that depend on the seed and the batch alone. `members` are those of one network
    that answer, where not all of them do. Checkpoints are opened at the first use of what they hold, weights are read
    at the first answer.
    """

    networks: tuple[NetworkLike, ...]
    dropout: Dropout | None = None
    members: tuple[int, ...] | None = None
    loaded: tuple[Hydra, ...] = ()  # in place of others, networks in memory, which answer as they are
    data: EvaluationData | None = None
    running: Running | None = None
    own_confidence: ClassVar[bool] = False
    sets: ClassVar[Mapping[SetKey, int]] = {}
    leaks: ClassVar[Sequence[KnownLeak]] = ()

    @property
    def name(self) -> str:
        some = "" if self.members is None else f":{','.join(map(str, self.members))}"
        return "+".join(map(_stem, self.networks)) + some + (" mc-dropout" if self.dropout else "")

    @cached_property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The open checkpoints, which go together."""
        checkpoints = tuple(map(_opened, self.networks))
        if self.members is not None:
            checkpoints = tuple(pick_members(checkpoint, self.members) for checkpoint in checkpoints)
        check_together(checkpoints)
        return checkpoints

    @property
    def spec(self) -> ModelSpec:
        """The first network's."""
        return (self.loaded or self.checkpoints)[0].spec

    @property
    def modality(self) -> Modality:
        return self.spec.modality

    @property
    def task(self) -> Task:
        return find_task(self.spec.task)

    @property
    def histories(self) -> Sequence[Mapping[str, Any]]:
        return [checkpoint.provenance for checkpoint in self.checkpoints]

    @property
    def draws(self) -> bool:
        return self.dropout is not None

    def describe(self) -> Description:
        networks = tuple(map(_network, self.checkpoints))
        identities = [network.sha256 for network in networks]
        digest = identities[0] if len(networks) == 1 else sha256("".join(identities).encode()).hexdigest()
        model = Model("+".join(network.reference for network in networks), digest)
        return Description(model, networks, self.dropout)

    def conditions(self, running: Running) -> dict[str, Any]:
        """Returns what the answers depend on besides the data, as plain JSON."""
        prompted = self.task.template(running.reading.template) is not None
        return {
            "networks": [fingerprint(checkpoint) for checkpoint in self.checkpoints],
            "dropout": None if self.dropout is None else asdict(self.dropout),
            "seed": running.seed if self.draws else None,
            "prompts": [_prompts(network, running) for network in self.networks] if prompted else None,
            "batch_size": running.batch_size,
            "dtype": None if running.dtype is None else str(running.dtype),
        }

    def check(self, data: EvaluationData | None) -> None:
        """Accepts any data: labels are matched when they are read."""

    def on(self, data: EvaluationData | None, running: Running) -> "NetworkSystem":
        return replace(self, data=data, running=running)

    @property
    def _run(self) -> tuple[EvaluationData, Running]:
        assert self.data is not None and self.running is not None
        return self.data, self.running

    @cached_property
    def models(self) -> Sequence[Hydra]:
        """The networks with their weights in memory."""
        return self.loaded or [self._model(place) for place in range(len(self.checkpoints))]

    @cached_property
    def preprocessor(self) -> RawPreprocessor:
        """The networks' preprocessing."""
        if self.loaded:
            return self.loaded[0].preprocessing()
        first = self.checkpoints[0]
        return preprocessor_from_json(first.preprocessing, first.spec, first.name, first.config)

    def _model(self, place: int) -> Hydra:
        (data, running), checkpoint, network = self._run, self.checkpoints[place], self.networks[place]
        model = inference.load_to_compute(checkpoint, running.device, running.dtype)
        if isinstance(network, Hydra) and _keeps_classes(network, running):
            assert network.class_embeddings is not None
            model.labels, model.class_prompts = network.labels, network.class_prompts
            model.class_embeddings = network.class_embeddings.to(model.logit_scale)
        else:
            set_classes(model, running.reading.classes, running.reading.template, data.id)
        if self.dropout is None:
            return model.optimize_for_inference()
        return with_dropout(model, self.dropout, checkpoint.name)

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
        """The fits to its answers; the temperature alone where several networks or draws answer."""
        fitted = self.models[0].calibration
        return fitted if self.alone else Calibration(fitted.temperature)

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

    @cached_property
    def ood_head(self) -> OodHead | None:
        first = self.models[0].ood_head
        if first is None or self.alone:
            return first
        self._run[1].on_note(
            "OOD scores, thresholds, intervals and sets were fitted to the single networks: their ensemble is scored "
            "by the MSP, without them"
        )
        return None

    @property
    def scores_itself(self) -> bool:
        return self.ood_head is not None and self.ood_head.row.reads == "layers"

    def samples(self, key: SetKey) -> int:
        return len(self._run[0].sets[key])

    def answers(self, key: SetKey, reads: Beside, on_batch: OnBatch) -> Answers:
        """Returns the answers to a set; other ranks must `serve` meanwhile."""
        data, running = self._run
        labels = labels_of(key, data, self.labels, self.spec, running=running)  # which may not match, before the pass
        running.ranks.ask((key, reads))
        own_share = []
        for positions, answers in self._batches(key, reads):
            own_share.append((positions, answers))
            on_batch(len(positions) * running.ranks.size)
        parts = [part for share in running.ranks.ask(SHARE, own_share) for part in share]
        return joined(parts, self, labels)

    def profiles(self, samples: Samples) -> tuple[FloatArray, FloatArray] | None:
        """Returns the typicality of some samples `[N]`, and that by each layer `[N,L]`; None without a score for it."""
        if self.ood_head is None or self.ood_head.row.parts is None:
            return None
        answers = self.models[0].predict(list(samples.inputs), self._run[1].batch_size)
        assert answers.typicality is not None and answers.profile is not None
        return answers.typicality.astype(np.float64), answers.profile.astype(np.float64)

    def serve(self) -> None:
        """Answers what the leading rank asks of this system, until it calls `dismiss`."""
        ranks = self._run[1].ranks
        while (question := ranks.hear()) is not None:
            ranks.reply(None)
            share = list(self._batches(*question))
            ranks.hear()
            ranks.reply(share)
        ranks.reply(None)

    def dismiss(self) -> None:
        """Tells the ranks that serve that this system is done."""
        self._run[1].ranks.ask(None)

    def _batches(self, key: SetKey, reads: Beside) -> Iterator[tuple[NDArray[np.int64], BatchAnswers]]:
        """Yields this rank's share of the answers, with the places of their samples in the set."""

        def answer(batch: Batch) -> tuple[NDArray[np.int64], BatchAnswers]:
            parts = [part for model in self.models for part in self._passes(model, batch, key, reads)]
            return batch.positions.numpy(), parts[0] if len(parts) == 1 else _side_by_side(parts)

        data, running = self._run
        batches = batches_of(data, key, self.preprocessor, running, ranks=running.ranks)
        yield from running.in_parallel(answer, batches)

    def _passes(self, model: Hydra, batch: Batch, key: SetKey, reads: Beside) -> Iterator[BatchAnswers]:
        if self.dropout is None:
            yield member_answers(model, batch, reads)
            return
        # A batch draws the same whichever process runs it and whatever ran before.
        generator = torch.Generator(next(model.parameters()).device)
        generator.manual_seed(batch_seed(self._run[1].seed, key, int(batch.positions[0])))
        with SeededDropout(generator):
            for _ in range(self.dropout.passes):
                yield member_answers(model, batch, reads)


def labels_of(
    key: SetKey, data: EvaluationData, classes: Sequence[str] | None, spec: ModelSpec, *, running: Running
) -> NDArray[Any] | None:
    """Returns the labels of a set as a network's classes or numbers; None of a set that has no such labels."""
    if not key.has_labels:
        return None
    samples, task = data.sets[key], find_task(spec.task)
    matched = match_to_task(samples, task, classes or unnamed(spec.classes), data.match)
    for note in matched.notes[len(samples.notes) :]:
        running.on_note(note)
    return None if matched.labels is None else task.truth(matched.labels)


def batches_of(
    data: EvaluationData, key: SetKey, preprocessor: RawPreprocessor, running: Running, *, ranks: Ranks
) -> Iterable[Batch]:
    """Returns the batches of a set for this process, and notes texts that are cut."""
    samples = data.sets[key]
    if data.read is not None:
        return data.read(samples, preprocessor)
    batches = make_batches(
        samples, preprocessor, running.batch_size, workers=running.workers, rank=ranks.rank, world_size=ranks.size
    )
    if batches.truncated:
        lost = f"{batches.truncated} of {len(samples)} texts are too long for the model and were cut"
        running.on_note(f"{samples.name}: {lost}")
    return batches


def _side_by_side(parts: Sequence[BatchAnswers]) -> BatchAnswers:
    """Returns the answers of several networks, or passes, as those of one ensemble."""
    logits = torch.cat([part.member_logits for part in parts])
    features = [part.features for part in parts if part.features is not None]
    forms = {(part.features.shape[-1], len(part.hidden)) for part in parts if part.features is not None}
    if len(forms) > 1:
        widths = ", ".join(str(width) for width, _ in sorted(forms))
        raise OptionError(
            f"networks of one ensemble differ in layers or in width of features ({widths}): choose an `ood_score` that "
            "reads logits"
        )
    expanded = ([layer.expand(len(part.member_logits), -1, -1) for layer in part.hidden] for part in parts)
    hidden = [torch.cat(layer) for layer in zip(*expanded, strict=True)]
    features_of_all = torch.cat(features) if features else None
    return BatchAnswers(logits, features=features_of_all, hidden=hidden, places=parts[0].places)


def _network(checkpoint: Checkpoint) -> Network:
    return Network(checkpoint.name, identity(checkpoint), kept_heads(checkpoint))


def kept_heads(checkpoint: Checkpoint) -> dict[TowerName, Heads]:
    """Returns the heads that members keep in each tower, as a report lists them."""
    return {tower.name: Heads(tower.heads, checkpoint.heads[tower.name]) for tower in checkpoint.spec.towers}


def _keeps_classes(network: Hydra, running: Running) -> bool:
    """Returns whether a program set the classes of a zero-shot model, and no option sets others."""
    return network.class_embeddings is not None and running.reading.classes is None


def _prompts(network: NetworkLike, running: Running) -> str:
    """Returns the template of the class names, or a hash of the prompts that a program made."""
    if isinstance(network, Hydra) and network.class_embeddings is not None and _keeps_classes(network, running):
        return sha256(tensor_bytes(network.class_embeddings)).hexdigest()
    return running.reading.template


def check_together(checkpoints: Sequence[Checkpoint]) -> None:
    """Raises OptionError unless these networks have the classes, preprocessing and temperature of one ensemble."""
    first = checkpoints[0]
    for other in checkpoints[1:]:
        for what, left, right in (
            ("classes", composed_all(first.labels), composed_all(other.labels)),
            ("preprocessing", first.preprocessing, other.preprocessing),
            ("temperatures", first.calibration.divisor, other.calibration.divisor),
        ):
            if left != right:
                raise OptionError(
                    f"{first.name} and {other.name} have different {what}: networks of one ensemble need the same; "
                    "evaluate each alone, or fuse them first"
                )


def _opened(network: NetworkLike) -> Checkpoint:
    if isinstance(network, str | Path):
        return read_checkpoint(network)
    return to_checkpoint(network) if isinstance(network, Hydra) else network


def _stem(network: NetworkLike) -> str:
    reference = network if isinstance(network, str | Path) else _opened(network).name
    return Path(reference).resolve().name.removesuffix(".safetensors")
