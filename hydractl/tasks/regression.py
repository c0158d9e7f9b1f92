"""Numbers a sample, as they are or by a sigmoid: their losses, and what an answer shows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from hydractl.checkpoint.calibration import Intervals
from hydractl.errors import DataError, OptionError
from hydractl.metrics.checks import FloatArray
from hydractl.tasks.prediction import AnyPrediction
from hydractl.tasks.several_labels import binary_losses, mean_logits, several_labels
from hydractl.tasks.task import FINE, Judged, TaskRow


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NumberPrediction(AnyPrediction):
    """A model's numbers for N samples, in their order.

    Attributes:
        classes: names of the C numbers.
        values: `[N,C]`, the members' mean.
        spread: `[N,C]`, the standard deviation between members; 0 for a single member.
        deviation: `[N,C]`, the standard deviation of the error that calibration expects; None if not calibrated.
        low: `[N,C]`, where the interval that calibration fitted begins; None likewise.
        high: `[N,C]`, where it ends; None likewise.
    """

    called: ClassVar[str] = "numbers"
    values: Tensor
    spread: Tensor
    deviation: Tensor | None = None
    low: Tensor | None = None
    high: Tensor | None = None

    def cells(self) -> Iterator[tuple[str, ...]]:
        found = {name: getattr(self, name) for name in ("values", "spread", "low", "high")}
        columns = {name: column.tolist() for name, column in found.items() if column is not None}
        yield tuple(columns)
        for row in zip(*columns.values(), strict=True):
            yield tuple(", ".join(f"{number:.4f}" for number in numbers) for numbers in row)


def mean_numbers(member_logits: Tensor, temperature: float) -> Tensor:
    """Returns the members' mean `[N,C]` of logits `[M,N,C]` over a temperature, at least float32."""
    return _wide(member_logits, temperature).mean(0)


def number_prediction(
    member_logits: Tensor,
    temperature: float,
    classes: Sequence[str] | None,
    intervals: Intervals | None = None,
    link: Callable[[Tensor], Tensor] = torch.clone,
) -> NumberPrediction:
    """Returns the prediction for logits `[M,N,C]`.

    Args:
        temperature: divides the logits of each member.
        classes: names of the C numbers. Default: LABEL_0 and so on.
        intervals: what calibration fitted.
        link: from logits to numbers.
    """
    members = link(_wide(member_logits, temperature))
    values, spread = members.mean(0), members.std(0, correction=0)
    names = tuple(classes or (f"LABEL_{i}" for i in range(values.shape[-1])))
    found = NumberPrediction(classes=names, values=values, spread=spread, member_logits=member_logits)
    if intervals is None:
        return found
    scale, floor, width = (values.new_tensor(one) for one in (intervals.scale, intervals.floor, intervals.width))
    deviation = torch.hypot(spread * scale, floor.expand_as(spread))
    ends = (values - width * deviation, values + width * deviation)
    low, high = (end.clamp(0, 1) if link is torch.sigmoid else end for end in ends)
    return replace(found, deviation=deviation, low=low, high=high)


def _wide(member_logits: Tensor, temperature: float) -> Tensor:
    return member_logits.to(torch.promote_types(member_logits.dtype, torch.float32)) / temperature


def squared_losses(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Returns the squared error `[G*B]` of each sample in each copy, the mean over numbers.

    Args:
        logits: `[G,B,C]`.
        labels: `[B,C]`.
        smoothing: must be 0.

    Raises:
        OptionError: label smoothing, which numbers have none of.
    """
    if smoothing:
        raise OptionError(f"`settings` label_smoothing={smoothing:g} is for classes, not for numbers: leave it out")
    return (logits - labels.to(logits.dtype)).square().mean(-1).flatten()


def taught_squared_losses(logits: Tensor, taught: Tensor) -> Tensor:
    """Returns the squared errors to teachers' numbers `[B,C]`, `[G,B,C]` to be summed."""
    return (logits - taught.to(logits.dtype)).square() / logits.shape[-1]


def _no_outlier_losses(_logits: Tensor) -> Tensor:
    raise OptionError("`outlier_data` teaches classes to be unsure, this is a regression: leave it out")


def judge_numbers(
    members: FloatArray,
    labels: FloatArray | None,
    variance: FloatArray | None,
    answer: Callable[[Tensor, float], Tensor] = mean_numbers,
    link: Callable[[Tensor], Tensor] = torch.clone,
    losses: Callable[[Tensor, Tensor], Tensor] = squared_losses,
) -> Judged:
    """Returns what each sample adds to R2, 1 - squared error / variance, the mean over numbers, and the loss.

    Raises:
        DataError: labels that are all alike.
    """
    assert labels is not None and variance is not None  # OOD samples are refused: numbers have no confidence
    require_varied(variance)
    logits, wanted = answer(torch.from_numpy(members), 1.0), torch.from_numpy(labels)
    shares = 1 - (link(logits) - wanted).square() / torch.from_numpy(variance)
    return Judged(shares.mean(-1).numpy(), None, losses(logits[None], wanted).numpy())


def require_varied(variance: FloatArray | None) -> None:
    """Raises DataError if it is 0 for a number, as then R2 has no meaning; None is of other tasks."""
    if variance is not None and not variance.all():
        raise DataError("all samples have the same number, and R2 compares errors with its variance: give more data")


regression = partial(
    TaskRow,
    answer=mean_numbers,
    probabilities=torch.clone,
    predict=number_prediction,
    losses=squared_losses,
    taught_losses=taught_squared_losses,
    outlier_losses=_no_outlier_losses,
    judge=judge_numbers,
    measured="R2",
    parts=FINE,
    confident=False,
    numbers=True,
)
probability = partial(
    several_labels,
    predict=partial(number_prediction, link=torch.sigmoid),
    judge=partial(judge_numbers, answer=mean_logits, link=torch.sigmoid, losses=binary_losses),
    measured="R2",
    parts=FINE,
    confident=False,
    numbers=True,
)
