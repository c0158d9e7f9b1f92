"""Raw samples in, a prediction out: what a network of torch and a graph of another runtime have in common."""

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
from hydractl.ood.score import flagged
from hydractl.tasks.prediction import AnyPrediction, Prediction
from hydractl.tasks.tagged_words import SentencePrediction, of_words, with_spans
from hydractl.tasks.task import TaskRow


class RawPreprocessor(Protocol):
    """Turns raw images or texts into the tensors that `forward` takes.

    `several` returns the samples of a prediction one by one; `lengths` counts tokens `[N]` and cut texts; `words` finds
    the first token of each word, and its place in its text.
    """

    def __call__(self, samples: Iterable[object]) -> dict[str, Tensor]: ...

    def several(self, samples: object) -> Iterable[object]: ...

    def lengths(self, texts: Sequence[object]) -> tuple[NDArray[np.int64], int]: ...

    def words(self, texts: Sequence[object]) -> list[list[Any]]: ...


class Predicting(Protocol):
    """A network's description, as predictions are made by it; see `Hydra`."""

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def task(self) -> TaskRow: ...

    @property
    def labels(self) -> tuple[str, ...] | None: ...

    @property
    def calibration(self) -> Calibration: ...


class Answer(NamedTuple):
    """The answer to one batch: `[M,B,C]`, `[B]`, `[B]` and `[B,L]`; see `HydraOutput`."""

    member_logits: Tensor
    ood_score: Tensor | None
    typicality: Tensor | None
    profile: Tensor | None


@dataclass(frozen=True, eq=False)
class Answering:
    """A network with all that makes predictions of its answers.

    Attributes:
        answer: from the tensors of one batch.
    """

    answer: Callable[[dict[str, Tensor]], Answer]
    preprocessor: RawPreprocessor
    network: Predicting

    @torch.inference_mode()
    def predict(self, samples: object, batch_size: int, on_batch: Callable[[int], None]) -> AnyPrediction:
        """Returns the prediction for raw samples; see `Hydra.predict`."""
        if batch_size < 1:
            raise OptionError(f"`batch_size` {batch_size}: give 1 or more")
        samples = self.preprocessor.several(samples)
        network = self.network
        order, truncated, words = None, 0, None
        if network.spec.modality == "text":
            # Texts of like length need the least padding together, and all of them are no more than a few images.
            texts = list(samples)
            lengths, truncated = self.preprocessor.lengths(texts)
            order = torch.as_tensor(lengths).argsort(descending=True, stable=True)
            samples = (texts[i] for i in order)
            words = self.preprocessor.words(texts) if network.spec.by_token else None
        logits, odd = self._collect(self._prepared(iter(samples), order, batch_size), on_batch, words)
        if order is not None:
            back = order.argsort()
            logits, odd = logits[:, back], None if odd is None else odd[:, back]
        found = replace(self._predicted(logits, odd), truncated=truncated)
        if isinstance(found, SentencePrediction) and words is not None:
            places = [[(word.start, word.end) for word in own] for own in words]
            fit = network.calibration.fit
            least = None if fit is None else fit.confidence
            found = with_spans(found, list(map(str, texts)), places, least)
        return found

    @torch.inference_mode()
    def predict_prepared(
        self, batches: Iterable[tuple[dict[str, Tensor], Sequence[int]]], on_batch: Callable[[int], None]
    ) -> AnyPrediction:
        """Returns the prediction for batches in the form that the network takes, with numbers of samples for errors.

        Raises:
            DataError: there are none.
            NotFiniteError: the network's answers to them are not finite.
        """
        return self._predicted(*self._collect(batches, on_batch))

    def _predicted(self, logits: Tensor, odd: Tensor | None) -> AnyPrediction:
        network = self.network
        calibration, fit = network.calibration, network.calibration.fit
        found = network.task.predict(logits, calibration.divisor, network.labels, **fitted(calibration))
        if odd is None or fit is None:
            return found
        profile = odd[2:].T if len(odd) > 2 else None
        flags = flagged(odd[1], fit.accept)
        found = replace(found, ood_score=odd[0], typicality=odd[1], ood=flags, profile=profile)
        if not isinstance(found, Prediction) or network.spec.by_token:
            return found
        sure = fit.sure(found.msp.numpy(), found.probabilities.argmax(-1).numpy())
        return found if sure is None else replace(found, sure=torch.from_numpy(sure))

    def _prepared(
        self, waiting: Iterator[object], order: Tensor | None, batch_size: int
    ) -> Iterator[tuple[dict[str, Tensor], Sequence[int]]]:
        places = iter(order.tolist()) if order is not None else count()
        for first in waiting:
            inputs = self.preprocessor(chain([first], islice(waiting, batch_size - 1)))
            yield inputs, list(islice(places, len(next(iter(inputs.values())))))

    def _collect(
        self,
        batches: Iterable[tuple[dict[str, Tensor], Sequence[int]]],
        on_batch: Callable[[int], None],
        words: Sequence[Sequence[Any]] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns logits `[M,N,C]`, or `[M,N,W,C]` of the `words` of each text.

        Adds scores and typicalities `[2 or 2+L,N]` of a calibrated network.
        """
        parts, scores = list[Tensor](), list[Tensor]()
        for inputs, numbers in batches:
            output = self.answer(inputs)
            logits = finite_on_cpu(output.member_logits, "logits", numbers)
            if words is not None:
                tokens = [[word.token for word in words[number]] for number in numbers]
                logits = of_words(logits, tokens, max(map(len, words)))
            parts.append(logits)
            if output.ood_score is not None and output.typicality is not None:
                layers = [] if output.profile is None else [output.profile.T]
                rows = torch.cat([torch.stack([output.ood_score, output.typicality]), *layers])
                scores.append(finite_on_cpu(rows, "OOD scores", numbers))
            on_batch(len(numbers))
        if not parts:
            raise DataError("there are no samples to predict")
        return torch.cat(parts, 1), torch.cat(scores, 1) if scores else None


def fitted(calibration: Calibration) -> dict[str, Any]:
    """Returns what calibration fitted to the answers of a network, as its task's prediction takes it."""
    least = None if calibration.sets is None else calibration.sets.least
    parts = {"thresholds": calibration.thresholds, "intervals": calibration.intervals, "least": least}
    return {name: value for name, value in parts.items() if value is not None}
