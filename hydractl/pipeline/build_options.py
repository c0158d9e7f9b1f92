"""The request of a build: every option that its plan, its file and its record are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from hydractl import bounds
from hydractl.circuit.modes import MODES
from hydractl.data.reading import OOD_SOURCE, SOURCE, Reading
from hydractl.inputs.members import Limits
from hydractl.options import Option, option
from hydractl.run_options import Compute, Precision, Seed
from hydractl.selection.candidates import SelectionObjective

NO_CIRCUITS = "none"


@dataclass(frozen=True)
class Effort:
    """The numbers of a build that no option gives."""

    name: str
    search: str  # how circuits are searched
    search_samples: int  # of each set, to search on
    draws: int  # from the first heads of each circuit, per budget
    random: int  # draws from all heads, per budget
    limit: int  # samples of each set in all other steps
    steps: int  # of the optimiser, 10 epochs at most


EFFORTS = (
    Effort("quick", "shortlist", 200, draws=2, random=6, limit=2000, steps=500),
    Effort("normal", "exact", 500, draws=4, random=12, limit=5000, steps=1500),
    Effort("thorough", "exact", 1500, draws=6, random=20, limit=10_000, steps=4500),
)


@dataclass(frozen=True)
class MemberChoice:
    """The candidates for members, and the rule by which they are chosen."""

    members: int = option(3, "Number of members.", minimum=1, maximum=100)
    objective: SelectionObjective = option(
        "nll", "What members are selected for: NLL, accuracy, AUROC of MSP, or the mean of the last two."
    )
    budgets: str = option(
        "8%,17%,33%", "Numbers of heads to remove from a member, as numbers or shares.", metavar="8%,17%,33%"
    )
    draws: int | None = option(None, "Draws from the first heads of each circuit, per budget.", minimum=0, maximum=100)
    random: int | None = option(None, "Draws from all heads, per budget.", minimum=0, maximum=1000)
    trunks: str | None = option(
        None,
        "Trunk depths to try. Default: 0 (no trunk), or several depths when a cost budget is given.",
        metavar="0,2,4",
    )
    max_accuracy_drop: float = option(
        0.005, "Accuracy that selected members may lose together, 0 to 1.", minimum=0, maximum=1
    )


@dataclass(frozen=True)
class Learning:
    """The way members learn from training data."""

    teacher: Sequence[str] = option(
        (), "Network whose probabilities replace labels in fine-tuning; repeat it for a Deep Ensemble.", metavar="MODEL"
    )
    recipe: str | None = option(
        None, "Recipe by which members are fine-tuned on `train_data`.", metavar="NAME|FILE.toml"
    )
    settings: Sequence[str] = option(
        (), "Change a setting of the recipe; repeat it.", metavar="KEY=VALUE", flags=("--set",)
    )


@dataclass(frozen=True)
class BuildData:
    """The data of a build."""

    id_data: str = option("", "Labelled in-distribution (ID) data, to choose by and to measure on.", "Data", SOURCE)
    ood_data: Sequence[str] = option(
        (), "Out-of-distribution data, to choose by and to measure on; repeat it for several sets.", "Data", OOD_SOURCE
    )
    train_data: str | None = option(None, "Labelled data to fine-tune members on.", "Data", SOURCE)
    eval_data: str | None = option(
        None, "Labelled data to measure on, in place of a part of `id_data`.", "Data", SOURCE
    )
    eval_ood_data: Sequence[str] = option(
        (),
        "OOD data to measure on, in place of a part of `ood_data`; repeat it for several sets.",
        "Data",
        OOD_SOURCE,
    )


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The options of a build."""

    model: Annotated[
        str,
        Option(
            "The network: a folder of transformers, timm or OpenCLIP, a file of ours, or a hub id; or a build.toml.",
            "Model",
            "MODEL|build.toml",
            positional=True,
        ),
    ]
    choice: MemberChoice = MemberChoice()
    limits: Limits = Limits()
    units: Literal["yes", "no"] | None = option(
        None,
        "Members lose MLP units too, above a trunk of half the layers, and train as fused; nothing is searched or "
        "selected. Default: yes with `train_data` and `budget_macs` below 2x, unless an option for choosing "
        "members is given.",
    )
    learning: Learning = Learning()
    seed: Seed = 0
    data: BuildData = BuildData()
    reading: Reading = Reading()
    search: str | None = option(
        None,
        "How circuits are searched, as in extract-circuit; none is fastest. Default: as `effort` says.",
        choices=(NO_CIRCUITS, *(mode.name for mode in MODES)),
    )
    search_samples: int | None = option(
        None,
        "Samples of each set to search circuits on; a search takes most of the time.",
        "Data",
        minimum=1,
        maximum=bounds.SAMPLES,
    )
    train_samples: int | None = option(
        None, "Samples to train on. Default: `limit`, or all.", "Data", minimum=1, maximum=bounds.SAMPLES
    )
    effort: Literal["quick", "normal", "thorough"] = option(
        "normal",
        "How much to try: the search, the draws, the samples and the steps of training that are not given. quick "
        "trains for a third of the steps of normal and searches less, thorough for three times as many and searches "
        "more.",
        "Compute",
    )
    compute: Compute = Compute()
    precision: Precision = "no"
    output: str | Path | None = option(
        None, "Folder of all results; a build begun there continues.", "Output", "FOLDER", flags=("--output", "-o")
    )
    dry_run: bool = option(False, "Print the commands, and do nothing.", "Output")

    @property
    def folder(self) -> Path:
        """The folder of all results."""
        return Path(self.output or "")
