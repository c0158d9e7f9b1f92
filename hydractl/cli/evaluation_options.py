"""The options of `hydractl evaluate` that no other command has, and what their texts mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hydractl.data.corruptions.kinds import describe_kinds
from hydractl.errors import OptionError
from hydractl.uncertainty.ood_scores import OOD_SCORES
from hydractl.uncertainty.styles import STYLES

if TYPE_CHECKING:
    from hydractl.evaluation.settings import Settings

Systems = Annotated[
    list[str],
    typer.Argument(
        metavar="[NAME=]SYSTEM...",
        help="MODEL; MODEL+MODEL+... (a Deep Ensemble); MODEL,mc-dropout=10,p=0.1; or predictions:FOLDER.",
    ),
]
IdData = Annotated[str | None, typer.Option(metavar="[NAME=]SOURCE[:SPLIT]", help="Labelled in-distribution data.")]
OodData = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[near/|far/][NAME=]SOURCE[:SPLIT]", help="Out-of-distribution data; repeat it for several sets."
    ),
]
CalibData = Annotated[
    str | None, typer.Option(metavar="SOURCE[:SPLIT]", help="Labelled data to fit on, none of it evaluated on.")
]
ShiftData = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME/SEVERITY=SOURCE[:SPLIT]", help="Labelled shifted data; repeat it."),
]
Corrupt = Annotated[
    str | None,
    typer.Option(metavar="KIND,...[:1-5]", help=f"Make the ID images worse: {describe_kinds()}."),
]
if TYPE_CHECKING:
    ScoreName = str
    StyleNames = str
else:
    ScoreName = Literal[tuple(row.name for row in OOD_SCORES)]
    StyleNames = Literal[tuple(row.name for row in STYLES)]
Score = Annotated[ScoreName, typer.Option(help="What tells OOD from ID.")]
StyleName = Annotated[StyleNames, typer.Option(help="Whose definitions to compute by.")]
Temperature = Annotated[
    str | None, typer.Option(metavar="fit|T", help="One for all, or fitted per system on --calib-data.")
]
ConformalName = Annotated[
    Literal["lac", "aps"] | None, typer.Option(help="Measure prediction sets fitted on --calib-data.")
]
Coverage = Annotated[float, typer.Option(help="Share of prediction sets that shall hold the right class.")]
Bootstrap = Annotated[
    int, typer.Option(min=0, metavar="R", help="Resample R times for 95 % intervals and paired differences.")
]
Seeds = Annotated[
    bool, typer.Option("--seeds", help="Systems of one NAME are seeds of one system: mean and deviation.")
]
SaveLogits = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Save FOLDER/NAME for predictions:FOLDER/NAME.")
]
AllowLeak = Annotated[
    bool,
    typer.Option("--allow-leak", help="Evaluate also on samples that made a model; the report says which."),
]
Streaming = Annotated[
    bool,
    typer.Option(
        "--streaming",
        help="Read ID, OOD and shifted data as they come, once for each system, and keep none of them: for sets of any "
        "size, from the hub too. --limit N then takes the first N samples, of few classes where data are sorted.",
    ),
]
ResumeLogits = Annotated[
    bool, typer.Option("--resume", help="Take what --save-logits has saved before instead of computing it.")
]


@dataclass(frozen=True)
class Plan:
    """What is measured of each system, and what of it is kept.

    Attributes:
        bootstrap: times to resample, 0 for no intervals.
        curves: whether a report will draw them.
        save_logits: the folder in which each system has one of its own.
        resume: whether logits saved before count.
    """

    settings: Settings
    bootstrap: int
    seed: int
    curves: bool
    save_logits: Path | None
    resume: bool
    force: bool


def read_settings(
    ood_score: Score, style: StyleName, temperature: str | None, conformal: ConformalName, coverage: float
) -> Settings:
    """What the numbers mean.

    Raises:
        OptionError: a temperature that is none.
    """
    from hydractl.evaluation.settings import Conformal, Settings

    sets = None if conformal is None else Conformal(conformal, coverage)
    return Settings(ood_score, style, _temperature(temperature), sets)


def _temperature(text: str | None) -> float | Literal["fit"] | None:
    if text is None:
        return None
    if text == "fit":
        return "fit"
    try:
        value = float(text)
    except ValueError as error:
        raise OptionError(f"--temperature {text}: expected fit or a positive number") from error
    if not 0 < value < float("inf"):
        raise OptionError(f"--temperature {text}: expected fit or a positive number")
    return value
