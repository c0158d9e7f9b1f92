"""The data sets of an evaluation, and the names they go by in reports and in folders of saved predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hydractl.data.open import SampleStream
from hydractl.data.reading import Group
from hydractl.data.samples import Samples

Role = Literal["calibration", "id", "ood", "shift"]


@dataclass(frozen=True)
class SetKey:
    """One data set: what it is for, its name, the group of an OOD set, the severity of a shifted one."""

    role: Role
    name: str
    group: Group | None = None
    severity: int | None = None

    @property
    def path(self) -> str:
        """Where its predictions lie in a folder, without ending: `id`, `ood/far/textures`, `shift/blur/3`."""
        match self.role:
            case "ood":
                return "/".join(part for part in ("ood", self.group, self.name) if part)
            case "shift":
                return f"shift/{self.name}/{self.severity}"
            case _:
                return self.role

    @property
    def has_labels(self) -> bool:
        """Whether its labels are the model's; those of OOD data are other classes."""
        return self.role != "ood"


@dataclass(frozen=True, eq=False)
class EvaluationData:
    """What models are evaluated on, in order; exactly one set has the role `id`, at most one `calibration`.

    Any but the one for calibration may be a stream, which every system reads anew.
    """

    sets: Mapping[SetKey, Samples | SampleStream]
    match: Literal["name", "index"] = "name"

    @property
    def id(self) -> Samples | SampleStream:
        """The in-distribution set."""
        return next(samples for key, samples in self.sets.items() if key.role == "id")

    @property
    def calibration(self) -> Samples | None:
        """What temperature and prediction sets are fitted on."""
        found = (samples for key, samples in self.sets.items() if key.role == "calibration")
        return next((samples for samples in found if isinstance(samples, Samples)), None)

    @property
    def evaluated(self) -> Mapping[SetKey, Samples | SampleStream]:
        """All sets but the one for calibration."""
        return {key: samples for key, samples in self.sets.items() if key.role != "calibration"}
