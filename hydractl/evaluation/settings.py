"""The options of an evaluation in groups: what is evaluated on, what the numbers mean, and how sure they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hydractl import bounds
from hydractl.data.corruptions import Corruption, describe_kinds
from hydractl.data.reading import OOD_SOURCE, DataLike, DataSetsLike, Indexed, SkipBad
from hydractl.errors import OptionError
from hydractl.ood.ood_scores import BASELINE, DEFAULT, OOD_SCORES, find_ood_score
from hydractl.ood.score import OodScore
from hydractl.options import brief, option

if TYPE_CHECKING:
    from hydractl.tasks.task import Task

NO_DATA = "`id_data` is missing: only saved predictions need no data"
FITTED = ", ".join(score.name for score in OOD_SCORES if score.fit is not None)


@dataclass(frozen=True)
class Sets:
    """Names the data sets of an evaluation as a user gives them, and how they are read.

    Attributes:
        shift_data: `NAME/SEVERITY=SOURCE` each, or data by `NAME/SEVERITY`.
    """

    id_data: DataLike | None = option(
        None, "Labelled in-distribution data.", "Data", "[NAME=]SOURCE[:SPLIT]", remembered=False
    )
    ood_data: DataSetsLike = option(
        (), "Out-of-distribution data; repeat it for several sets.", "Data", OOD_SOURCE, remembered=False
    )
    calib_data: DataLike | None = option(
        None, "Labelled data to fit on, apart from the evaluation data.", "Data", "SOURCE[:SPLIT]", remembered=False
    )
    shift_data: Sequence[str] | Mapping[str, str | Path | Indexed] = option(
        (), "Labelled shifted data; repeat it.", "Data", "NAME/SEVERITY=SOURCE[:SPLIT]", remembered=False, rare=True
    )
    corrupt: str | None = option(None, f"Corrupt the ID images: {describe_kinds()}.", "Data", "KIND,...[:1-5]")
    skip_bad: SkipBad = False

    def __post_init__(self) -> None:
        # Raises before anything is opened.
        _ = self.corruptions

    @cached_property
    def corruptions(self) -> Sequence[tuple[Corruption, int]]:
        """The kinds and severities by which the ID images are corrupted."""
        if self.corrupt is None:
            return ()
        from hydractl.data.corruptions import parse_corruptions

        return parse_corruptions(self.corrupt)


@dataclass(frozen=True)
class Settings:
    """Says what the numbers mean: what tells OOD from ID, and the temperature."""

    ood_score: str | None = option(
        None,
        f"Score that separates OOD from ID. Fitted on `calib_data`: {FITTED}. Default: the score in a calibrated file, "
        "otherwise msp.",
        choices=tuple(score.name for score in OOD_SCORES),
    )
    temperature: float | str | None = option(
        None,
        "One temperature for all systems; fit computes one per system on `calib_data`. Default: each system's own.",
        metavar="fit|T",
        within=(bounds.COLDEST, bounds.HOTTEST),
        rare=True,
    )

    def __post_init__(self) -> None:
        # Raises before anything is computed.
        _ = self.wanted_temperature

    def check_task(self, task: Task) -> None:
        """Raises OptionError for what says nothing of a task's answers."""
        if task.tells_ood == "scores":
            return
        confident = task.tells_ood == "confidence"
        if self.ood_score not in (None, DEFAULT, *([BASELINE] if confident else [])):
            raise OptionError(f"`ood_score` {self.ood_score} needs one class per sample: choose {DEFAULT}")
        if self.temperature is not None and not confident:
            raise OptionError("`temperature` applies to classes and labels, and a model predicts neither: leave it out")

    @cached_property
    def wanted_temperature(self) -> float | Literal["fit"] | None:
        """The temperature of all systems, `fit` for one per system, None for each system's own."""
        if self.temperature is None or self.temperature == "fit":
            return "fit" if self.temperature else None
        number = bounds.real(self.temperature, bounds.COLDEST, bounds.HOTTEST)
        if number is None:
            span = f"{bounds.COLDEST:g} to {bounds.HOTTEST:g}"
            raise OptionError(f"`temperature` {brief(self.temperature)}: expected fit or a positive number, {span}")
        return number

    @cached_property
    def score(self) -> OodScore:
        """The OOD score of systems that bring none."""
        return find_ood_score(self.ood_score or BASELINE)

    @property
    def own_scores(self) -> bool:
        """True if systems are scored by what their files hold."""
        return self.ood_score is None

    def fits(self, score: OodScore | None) -> Iterator[str]:
        """Yields what needs calibration data, as messages name it; a score of None is one that the system brings."""
        if self.temperature == "fit":
            yield "`temperature` fit"
        if score is not None and score.fit is not None:
            yield f"`ood_score` {score.name}"

    def to_json(self) -> dict[str, Any]:
        """Returns its part of a report's options."""
        return {"ood_score": self.ood_score or BASELINE, "temperature": self.wanted_temperature}


@dataclass(frozen=True)
class Procedure:
    """Says how certain the numbers are to be, and what is kept of the answers.

    Attributes:
        save_logits: the folder in which each system has one of its own.
        curves: whether a report will draw them.
        force: whether saved answers are replaced.
    """

    bootstrap: int | None = option(
        None,
        "Resample R times, at least 100, for 95 % intervals, paired differences and the verdict; 0 turns them off. "
        "Default: 1000 for up to 100,000 samples.",
        metavar="R",
        within=(0, bounds.DRAWS),
        rare=True,
    )
    compare: str | None = option(
        None, "Compare this system with each of the others, not only with the first.", metavar="NAME"
    )
    allow_leak: bool = option(
        False, "Also evaluate on samples that were used to make a model; the report lists them.", rare=True
    )
    seed: int = option(0, "Seed of all random draws.", "Compute", within=(0, bounds.SEED))
    save_logits: str | Path | None = option(
        None,
        "Save FOLDER/NAME for predictions:FOLDER/NAME, with features where the score reads them.",
        "Output",
        "FOLDER",
        remembered=False,
    )
    resume: bool = option(False, "Reuse what `save_logits` has saved before.", "Output", remembered=False)
    curves: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        if 0 < (self.bootstrap or 0) < bounds.FEWEST_DRAWS:
            raise OptionError(f"`bootstrap` {self.bootstrap}: expected 0, or {bounds.FEWEST_DRAWS} and more")
