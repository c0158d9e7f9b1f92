"""Raw samples in, answers out: what a network of torch and a graph of another runtime have in common."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hydractl.checkpoint.calibration import Calibration
from hydractl.checkpoint.spec import ModelSpec
from hydractl.errors import DataError, OptionError
from hydractl.model.finite import finite_on_cpu
from hydractl.tasks.task import Answers, Task

#: The tensors of a batch, and the numbers of its samples for errors.
Prepared = tuple[dict[str, Tensor], Sequence[int]]


class RawPreprocessor(Protocol):
    """Turns raw images or texts into the tensors that `forward` takes.

    `each` returns the samples of a prediction one by one; `lengths` counts tokens `[N]` and cut texts; `words` finds
    the first token of each word, and its place in its text.
    """

    def __call__(self, samples: Iterable[object]) -> dict[str, Tensor]: ...

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


def joined(
    parts: Sequence[tuple[NDArray[np.int64], BatchAnswers]], network: Predicting, truth: NDArray[Any] | None = None
) -> Answers:
    """Returns the answers of a network to a set from those to batches of it, each with its samples' places in it.

    Args:
        parts: on the CPU, in float32 or float64, in any order.
        truth: the labels of the samples, `[N,W]` of words.

    Raises:
        DataError: a sentence has no word with an answer.
    """
    order = np.argsort(np.concatenate([positions for positions, _ in parts]), kind="stable")
    batches = [answers for _, answers in parts]

    def column(name: str, axis: int = 0) -> Any:
        tensors = [tensor for batch in batches if (tensor := getattr(batch, name)) is not None]
        return np.take(torch.cat(tensors, axis).numpy(), order, axis) if tensors else None

    places = None
    if batches[0].places is None:
        logits = column("member_logits", axis=1)
    else:
        places = torch.cat([batch.places for batch in batches if batch.places is not None]).numpy()
        in_text = np.lexsort((places[:, 1], places[:, 0]))
        logits = np.take(torch.cat([batch.member_logits for batch in batches], 1).numpy(), in_text, 1)
        places = places[in_text]
        truth = None if truth is None else truth[places[:, 0], places[:, 1]]
        if len(bare := np.setdiff1d(order, places[:, 0])):
            raise no_word(int(bare[0]))
    return Answers(
        task=network.task,
        member_logits=logits,
        classes=network.labels,
        calibration=network.calibration,
        truth=truth,
        places=places,
        features=column("features", axis=1),
        hidden=[
            np.take(torch.cat(layer, -2).numpy(), order, -2) for layer in zip(*(b.hidden for b in batches), strict=True)
        ],
        ood_score=column("ood_score"),
        typicality=column("typicality"),
        profile=column("profile"),
    )


def no_word(row: int) -> DataError:
    """Returns the error of a sentence none of whose words has an answer."""
    return DataError(f"row {row}: the model reads no word of it that has a tag: remove it")


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
        order = np.argsort(-lengths, kind="stable").tolist()
        words = self.preprocessor.words(texts) if self.network.spec.by_token else None
        batches = self._prepared((texts[place] for place in order), iter(order), batch_size)
        answers = replace(self._collect(batches, on_batch, words), truncated=truncated)
        if words is None:
            return answers
        spans = [[(word.start, word.end) for word in sentence] for sentence in words]
        return replace(answers, texts=list(map(str, texts)), spans=spans)

    @torch.inference_mode()
    def predict_prepared(self, batches: Iterable[Prepared], on_batch: Callable[[int], None]) -> Answers:
        """Returns the answers to batches in the form that the network takes, in the order of their samples' numbers.

        Raises:
            DataError: there are none.
            NotFiniteError: the network's answers to them are not finite.
        """
        return self._collect(batches, on_batch)

    def _prepared(self, waiting: Iterator[object], places: Iterator[int], batch_size: int) -> Iterator[Prepared]:
        for first in waiting:
            inputs = self.preprocessor(chain([first], islice(waiting, batch_size - 1)))
            yield inputs, list(islice(places, len(next(iter(inputs.values())))))

    def _collect(
        self,
        batches: Iterable[Prepared],
        on_batch: Callable[[int], None],
        words: Sequence[Sequence[Any]] | None = None,
    ) -> Answers:
        """Returns the answers to batches; those of `words`, which are of each text, where there are some."""
        parts = list[tuple[NDArray[np.int64], BatchAnswers]]()
        for inputs, places in batches:
            answers = self.answer(inputs)
            logits, by_word = finite_on_cpu(answers.member_logits, "logits", places), None
            if words is not None:
                rows = [
                    (row, word.token, place, word.number) for row, place in enumerate(places) for word in words[place]
                ]
                row, token, *word = torch.tensor(rows).T
                logits, by_word = logits[:, row, token], torch.stack(word, 1)
            score, typicality, profile = (
                None if values is None else finite_on_cpu(values, "OOD scores", places)
                for values in (answers.ood_score, answers.typicality, answers.profile)
            )
            parts.append((np.asarray(places), BatchAnswers(logits, score, typicality, profile, places=by_word)))
            on_batch(len(places))
        if not parts:
            raise DataError("there are no samples to predict")
        return joined(parts, self.network)
