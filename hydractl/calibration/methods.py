"""Options of a calibration: the promises of answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydractl.bounds import parse_share
from hydractl.checkpoint.calibration import INTERVAL
from hydractl.errors import OptionError
from hydractl.options import option

if TYPE_CHECKING:
    from hydractl.calibration.promises import WantedPromises


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
        None, "Find the confidence above which answers are right this often, as 0.99 or 99%.", metavar="SHARE"
    )
    interval: str | None = option(
        None,
        f"Share of intervals that must contain the right number. Default: {100 * INTERVAL:g}%.",
        metavar="SHARE",
        rare=True,
    )
    sets: str | None = option(
        None, "Find prediction sets that contain the right class this often, as 0.95 or 95%.", metavar="SHARE"
    )
    recall: str | None = option(
        None,
        "Share of true labels, or of true spans of words, that answers must contain, as 0.95 or 95%.",
        metavar="SHARE",
        rare=True,
    )
    by_class: bool = option(
        False, "Promise `accuracy`, `sets`, or the `recall` of labels for each class separately.", rare=True
    )

    def __post_init__(self) -> None:
        parse_share("accept", self.accept)
        for name in self.names:
            if parse_share(name, getattr(self, name)) == 1:
                raise OptionError(
                    f"`{name}` 1: no number of samples proves that answers are always right: choose a value below 1"
                )
        if self.by_class and self.first is None:
            raise OptionError("`by_class` needs a promise: add `accuracy`, `sets` or `recall`")

    @property
    def names(self) -> tuple[str, ...]:
        """The promises of answers that are asked for."""
        return tuple(name for name in ("accuracy", "sets", "recall", "interval") if getattr(self, name) is not None)

    @property
    def shares(self) -> dict[str, float | None]:
        """The shares of samples that are accepted, of answers and sets that are right, and of labels answered."""
        texts = {"accept": self.accept, "accuracy": self.accuracy, "sets": self.sets, "recall": self.recall}
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
        """The first option that promises something of answers by labels, as messages name it."""
        return next((f"`{name}`" for name in self.names if name != "interval"), None)

    @property
    def wanted(self) -> WantedPromises:
        """The promises to fit to answers."""
        from hydractl.calibration.promises import WantedPromises

        shares = self.shares
        return WantedPromises(shares["accuracy"], shares["sets"], shares["recall"], by_class=self.by_class)
