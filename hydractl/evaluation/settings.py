"""What the numbers of an evaluation mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from hydractl.metrics.ood_scores import OodScore, find_ood_score
from hydractl.metrics.styles import Style, find_style
from hydractl.optional import require

if TYPE_CHECKING:
    from hydractl.metrics.conformal import ConformalMethod


@dataclass(frozen=True)
class Conformal:
    """How prediction sets are made, and the share of them that shall hold the right class."""

    method: ConformalMethod
    coverage: float


@dataclass(frozen=True)
class Settings:
    """What tells OOD from ID, whose definitions count, the temperature, and how prediction sets are made.

    Attributes:
        ood_score: a name of `OOD_SCORES`.
        style: a name of `STYLES`.
        temperature: for all systems, `fit` for each on the calibration data, or None for each system's own.

    Raises:
        OptionError: a name that is none, or what computes it is not installed.
        DataError: the style has no such score.
    """

    ood_score: str = "msp"
    style: str = "hydractl"
    temperature: float | Literal["fit"] | None = None
    conformal: Conformal | None = None

    def __post_init__(self) -> None:
        # Raises before anything is computed.
        require(*self.score.packages, *self.definitions.packages)

    @cached_property
    def definitions(self) -> Style:
        """The style by its name."""
        return find_style(self.style)

    @cached_property
    def score(self) -> OodScore:
        """The OOD score as the style defines it."""
        return self.definitions.of(find_ood_score(self.ood_score))

    def fits(self, score: OodScore) -> Iterator[str]:
        """What needs calibration data, as messages name it.

        Args:
            score: that the system is scored by.
        """
        if self.temperature == "fit":
            yield "`temperature` fit"
        if self.conformal is not None:
            yield "`conformal`"
        if score.needs_features:
            yield f"`ood_score` {score.name}"

    def to_json(self) -> dict[str, Any]:
        """Its part of a report's options."""
        return {
            "ood_score": self.ood_score,
            "style": self.style,
            "temperature": self.temperature,
            "conformal": None if self.conformal is None else asdict(self.conformal),
        }
