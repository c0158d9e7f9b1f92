"""Raw samples in, answers out: what a network of torch and a graph of another runtime have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hydractl.checkpoint.calibration import Calibration, FittedOod, OodFit
from hydractl.checkpoint.spec import ModelSpec
from hydractl.errors import DataError, NotFiniteError, OptionError
from hydractl.ood.ood_scores import find_ood_score
from hydractl.ood.score import PROFILE, QUANTILES, Outputs, State, flagged, typicality
from hydractl.tasks.task import Answers, Task

#: The tensors of a batch, and the numbers of its samples for errors.
Prepared = tuple[dict[str, Tensor], Sequence[int]]


def finite_on_cpu(tensor: Tensor, what: str, places: Sequence[int] | None = None) -> Tensor:
    """Returns the tensor `[M,B,...]` on the CPU, at least in float32, as metrics and decisions need it.

    Args:
        what: its name, for the message.
        places: the numbers of the B samples among all, if the error should name the first bad one.

    Raises:
        NotFiniteError: a number of it is NaN or infinite.
    """
    held = tensor.to("cpu", torch.promote_types(tensor.dtype, torch.float32))
    if not (good := torch.isfinite(held)).all():
        error = NotFiniteError(f"the model's {what} are not finite on this data: try `dtype` float32")
        if places is not None:
            error.sample = min(places[at] for at in (~good).transpose(0, 1).flatten(1).any(-1).nonzero().flatten())
        raise error
    return held


class Oddity(NamedTuple):
    """Oddity of B samples: the score `[B]`, its typicality `[B]`, and that by each layer, `[L,B]`, if it has them."""

    score: Tensor
    typicality: Tensor
    profile: Tensor | None


class OodHead(nn.Module):
    """Gives the OOD score of a calibrated network, and how typical it is of ID samples.

    What was fitted lies in buffers that move with the network.

    Attributes:
        fit: the score's name, and the share of ID samples that should not be flagged.
        row: the score.
    """

    def __init__(self, fit: OodFit, state: State, persistent: bool = False) -> None:
        """
        Args:
            state: the score's numbers and `quantiles`.
            persistent: whether they are part of the state dict.
        """
        super().__init__()
        self.fit, self.row = fit, find_ood_score(fit.score)
        for name, tensor in state.items():
            self.register_buffer(name, tensor, persistent)

    @property
    def computes(self) -> bool:
        """False if it holds quantiles alone, so that the scores come with the answers."""
        return self.row.axes.keys() <= dict(self.named_buffers()).keys()

    @classmethod
    def of(cls, fitted: FittedOod, device: torch.device | str, dtype: torch.dtype) -> OodHead:
        """Returns the head for a network of this dtype, in float32 at least."""
        wide = torch.promote_types(dtype, torch.float32)
        return cls(fitted.fit, {name: tensor.load().to(device, wide) for name, tensor in fitted.tensors.items()})

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "row"}  # its functions are not pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.row = find_ood_score(self.fit.score)

    def forward(self, answers: Outputs) -> Oddity:
        """Returns the score and its typicality."""
        state = dict(self.named_buffers())
        wide = state[QUANTILES].dtype
        read = None if answers.features is None else answers.features.to(wide)
        hidden = [layer.to(wide) for layer in answers.hidden]
        answers = Outputs(answers.member_logits.to(wide), answers.temperature, read, hidden)
        if self.row.parts is None:
            score, profile = self.row.score(state, answers), None
        else:
            parts = self.row.parts(state, answers)
            score, profile = parts.sum(0), typicality(parts[:-1], state[PROFILE])
        return Oddity(score, typicality(score, state[QUANTILES]), profile)

    def flags(self, typical: Tensor) -> Tensor:
        """Returns where a sample looks OOD: less typical than all but the share of ID samples to accept."""
        return flagged(typical, self.fit.accept)


class RawPreprocessor(Protocol):
    """Turns raw images or texts into the tensors that `forward` takes.

    `by_word` tells whether the model answers for each word of a text. `each` returns the samples of a prediction one by
    one; `lengths` counts tokens `[N]` and cut texts; `words` finds the first token of each word, and its place in its
    text.
    """

    def __call__(self, samples: Iterable[object]) -> dict[str, Tensor]: ...

    @property
    def by_word(self) -> bool: ...

    def each(self, samples: object) -> Iterable[object]: ...

    def lengths(self, texts: Sequence[object]) -> tuple[NDArray[np.int64], int]: ...

    def words(self, texts: Sequence[object]) -> list[list[Any]]: ...


class Predicting(Protocol):
    """A network's description, as predictions are made by it; see `Hydra`."""

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def task(self) -> Task: ...

    @property
    def labels(self) -> tuple[str, ...] | None: ...

    @property
    def calibration(self) -> Calibration: ...


class BatchAnswers(NamedTuple):
    """The members' answers to one batch; see `HydraOutput`."""

    member_logits: Tensor  # `[M,B,C]`, or `[M,n,C]` of n words
    ood_score: Tensor | None = None  # `[B]`, the model's own; likewise typicality and profile `[B,L]`
    typicality: Tensor | None = None
    profile: Tensor | None = None
    features: Tensor | None = None  # `[M,B,D']`, the classifiers' inputs; None unless requested
    hidden: Sequence[Tensor] = ()  # `[1 or M,B,D]` of each hidden layer, the mean token; empty unless requested
    places: Tensor | None = None  # `[n,2]` of n words: sentence in the set, and word

    def checked(self, samples: Sequence[int]) -> Self:
        """Returns logits and the numbers of the model's own score on the CPU.

        Args:
            samples: the places of the batch's samples in the set.

        Raises:
            NotFiniteError: a number is not finite; it knows the place of the first sample with one.
        """
        rows = samples if self.places is None else self.places[:, 0].tolist()
        logits = finite_on_cpu(self.member_logits, "logits", rows)
        score, typicality, profile = (
            None if values is None else finite_on_cpu(values, "OOD scores", samples)
            for values in (self.ood_score, self.typicality, self.profile)
        )
        return self._replace(member_logits=logits, ood_score=score, typicality=typicality, profile=profile)


def joined(
    parts: Sequence[tuple[NDArray[np.int64], BatchAnswers]], network: Predicting, truth: NDArray[Any] | None = None
) -> Answers:
    """Returns the answers of a network to a set from those to batches of it, each with its samples' places in it.

    Args:
        parts: on the CPU, in float32 or float64, in any order.
        truth: the labels of the samples, `[N,W]` of words, -1 behind the last. Sentences that lost words with labels
            count as truncated.

    Raises:
        DataError: a sentence has no word with an answer.
    """
    order = np.argsort(np.concatenate([positions for positions, _ in parts]), kind="stable")
    batches = [answers for _, answers in parts]

    def column(name: str, axis: int = 0) -> Any:
        tensors = [tensor for batch in batches if (tensor := getattr(batch, name)) is not None]
        return np.take(torch.cat(tensors, axis).numpy(), order, axis) if tensors else None

    places, truncated = None, 0
    if batches[0].places is None:
        logits = column("member_logits", axis=1)
    else:
        places = torch.cat([batch.places for batch in batches if batch.places is not None]).numpy()
        in_text = np.lexsort((places[:, 1], places[:, 0]))
        logits = np.take(torch.cat([batch.member_logits for batch in batches], 1).numpy(), in_text, 1)
        places = places[in_text]
        if truth is not None:
            last = np.full(len(truth), -1)
            np.maximum.at(last, places[:, 0], places[:, 1])
            behind = np.arange(truth.shape[1]) > last[:, None]
            truncated = int((behind & (truth >= 0)).any(1).sum())
            truth = truth[places[:, 0], places[:, 1]]
        if len(bare := np.setdiff1d(order, places[:, 0])):
            raise no_word(int(bare[0]))
    layers = zip(*(batch.hidden for batch in batches), strict=True)
    return Answers(
        task=network.task,
        member_logits=logits,
        classes=network.labels,
        calibration=network.calibration,
        truth=truth,
        places=places,
        features=column("features", axis=1),
        hidden=[np.take(torch.cat(layer, -2).numpy(), order, -2) for layer in layers],
        ood_score=column("ood_score"),
        typicality=column("typicality"),
        profile=column("profile"),
        truncated=truncated,
    )


def no_word(row: int) -> DataError:
    """Returns the error of a sentence none of whose words has an answer."""
    return DataError(f"row {row}: the model reads no tagged word of it: remove it")


def check_lengths(lengths: NDArray[np.int64], name: str) -> None:
    """Raises DataError if a text has no token.

    Args:
        lengths: the tokens of each text, `[N]`.
        name: of a text, for the message.
    """
    if not lengths.all():
        raise DataError(f"{name} {lengths.argmin()}: the tokenizer finds no token: leave it out")


@dataclass(frozen=True, eq=False)
class Answering:
    """A network with all that makes predictions of its answers.

    Attributes:
        answer: from the tensors of one batch.
    """

    answer: Callable[[dict[str, Tensor]], BatchAnswers]
    preprocessor: RawPreprocessor
    network: Predicting

    @torch.inference_mode()
    def predict(self, samples: object, batch_size: int, on_batch: Callable[[int], None]) -> Answers:
        """Returns the answers to raw samples; see `Hydra.predict`."""
        if batch_size < 1:
            raise OptionError(f"`batch_size` {batch_size}: give 1 or more")
        samples = self.preprocessor.each(samples)
        if self.network.spec.modality == "image":
            return self._collect(self._prepared(iter(samples), count(), batch_size), on_batch)
        # Texts of like length need the least padding together, and all of them are no more than a few images.
        texts = list(samples)
        lengths, truncated = self.preprocessor.lengths(texts)
        check_lengths(lengths, "text")
        order = np.argsort(-lengths, kind="stable").tolist()
        words = self.preprocessor.words(texts) if self.preprocessor.by_word else None
        batches = self._prepared((texts[place] for place in order), iter(order), batch_size)
        answers = replace(self._collect(batches, on_batch, words), truncated=truncated)
        if words is None:
            return answers
        spans = [[(word.start, word.end) for word in sentence] for sentence in words]
        return replace(answers, texts=list(map(str, texts)), spans=spans)

    def _prepared(self, waiting: Iterator[object], places: Iterator[int], batch_size: int) -> Iterator[Prepared]:
        for first in waiting:
            inputs = self.preprocessor(chain([first], islice(waiting, batch_size - 1)))
            yield inputs, list(islice(places, len(next(iter(inputs.values())))))

    def _collect(
        self, batches: Iterable[Prepared], on_batch: Callable[[int], None], words: Sequence[Sequence[Any]] | None = None
    ) -> Answers:
        """Returns the answers to batches; those of `words`, which are of each text, where there are some."""
        parts = list[tuple[NDArray[np.int64], BatchAnswers]]()
        for inputs, places in batches:
            answers = self.answer(inputs)
            if words is not None:
                rows = [
                    (row, word.token, place, word.number) for row, place in enumerate(places) for word in words[place]
                ]
                row, token, *word = torch.tensor(rows).T
                logits = answers.member_logits[:, row, token]
                answers = answers._replace(member_logits=logits, places=torch.stack(word, 1))
            parts.append((np.asarray(places), answers.checked(places)))
            on_batch(len(places))
        if not parts:
            raise DataError("no samples to predict: give at least one")
        return joined(parts, self.network)
