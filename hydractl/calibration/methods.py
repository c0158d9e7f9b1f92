"""Options of a calibration: the methods that fit logits, and the promises of answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hydractl.bounds import parse_share
from hydractl.checkpoint.calibration import INTERVAL
from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import OptionError
from hydractl.options import option

if TYPE_CHECKING:
    from hydractl.calibration.promises import WantedPromises
    from hydractl.metrics.scaling import FittedTemperature, FittedVector
    from hydractl.tasks.task import Answers


@dataclass(frozen=True)
class Temperature:
    """Divides all logits by one number."""

    name: ClassVar[str] = "temperature"
    help: ClassVar[str] = "one number that divides all logits"
    #: What the step notes if the loss still falls at the end of the range.
    at_bound: ClassVar[str] = "the loss still falls at the highest temperature: the model is rarely right on this data"

    def check(self, checkpoint: Checkpoint) -> None:
        """Accepts every model."""

    def fit(self, promises: Promises, answers: Answers) -> FittedTemperature:
        """Returns the temperature with the lowest NLL, with thresholds for several labels; or intervals for numbers."""
        return answers.task.fit(answers, promises.interval_share, promises.shares["accuracy"])


@dataclass(frozen=True)
class Vector:
    """Scales and shifts the logits of each class."""

    name: ClassVar[str] = "vector"
    help: ClassVar[str] = "a temperature, and a scale and a shift for each class where the data call for them"
    at_bound: ClassVar[str] = Temperature.at_bound

    def check(self, checkpoint: Checkpoint) -> None:
        """Raises OptionError for a model whose classifier cannot be scaled exactly."""
        from hydractl.surgery.precision import require_exact_classifier
        from hydractl.tasks.all_tasks import find_task, require_one_class

        if not find_task(checkpoint.spec.task).config:  # one logit has Platt's scale and shift
            require_one_class(checkpoint.spec, "`method` vector", "choose temperature")
        require_exact_classifier(checkpoint)

    def fit(self, promises: Promises, answers: Answers) -> FittedVector:
        """Returns the scales and shifts with the lowest NLL."""
        return answers.task.fit_vector(answers)


Method = Temperature | Vector
METHODS = (Temperature, Vector)


@dataclass(frozen=True)
class Promises:
    """Says how often inputs are accepted, and answers, intervals and sets are right.

    Raises:
        OptionError: one is no share, or always, which no number of samples shows; or `by_class` without a promise.
    """

    accept: str = option(
        "95%", "Share of ID samples that predict must not flag as OOD, as 0.95 or 95%.", metavar="SHARE", rare=True
    )
    accuracy: str | None = option(
        None, "Find the confidence from which answers are right that often, as 0.99 or 99%.", metavar="SHARE"
    )
    interval: str | None = option(
        None,
        f"Share of intervals around numbers that hold the right one. Default: {100 * INTERVAL:g}%.",
        metavar="SHARE",
        rare=True,
    )
    sets: str | None = option(
        None, "Find prediction sets that hold the right class that often, as 0.95 or 95%.", metavar="SHARE"
    )
    by_class: bool = option(False, "Keep the promises of `accuracy` and `sets` for each class by itself.", rare=True)

    def __post_init__(self) -> None:
        parse_share("accept", self.accept)
        for name in ("interval", "accuracy", "sets"):
            if getattr(self, name) is not None and parse_share(name, getattr(self, name)) == 1:
                raise OptionError(f"`{name}` 1: no number of samples shows that answers are always right: give less")
        if self.by_class and self.first is None:
            raise OptionError("`by_class` is of promises, and none is asked for: add `accuracy` or `sets`")

    @property
    def shares(self) -> dict[str, float | None]:
        """The shares of samples that are accepted, and of answers and sets that are right."""
        texts = {"accept": self.accept, "accuracy": self.accuracy, "sets": self.sets}
        return {name: None if text is None else parse_share(name, text) for name, text in texts.items()}

    @property
    def accept_share(self) -> float:
        """The share of ID samples to accept."""
        return parse_share("accept", self.accept)

    @property
    def interval_share(self) -> float:
        """The share of numbers that intervals hold."""
        return INTERVAL if self.interval is None else parse_share("interval", self.interval)

    @property
    def first(self) -> str | None:
        """The first option that promises something of answers, as messages name it."""
        return "`accuracy`" if self.accuracy is not None else "`sets`" if self.sets is not None else None

    @property
    def wanted(self) -> WantedPromises:
        """The promises to fit to answers."""
        from hydractl.calibration.promises import WantedPromises

        shares = self.shares
        return WantedPromises(shares["accuracy"], shares["sets"], by_class=self.by_class)
