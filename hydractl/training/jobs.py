"""What there is to fine-tune: which networks, each for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydractl.bounds import MEMBERS, whole
from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import OptionError
from hydractl.surgery.members import split_members
from hydractl.text import shortened
from hydractl.training.data import Kind
from hydractl.training.ensembles import Ensemble
from hydractl.training.recipe import Recipe

EACH = "each"  # for a number of members: those that a Hydra has


@dataclass(frozen=True)
class Job:
    """One network that is trained on its own; `name` is what its file is called where a folder is asked for."""

    name: str
    checkpoint: Checkpoint


def choose_ensemble(
    method: str | None,
    members: int | str | None,
    joint: bool = False,
    rank: int | None = None,
    alpha: float | None = None,
    mask_scale: float | None = None,
    fold: bool = False,
) -> Ensemble | None:
    """The ensemble to make of one network, if one is asked for.

    Raises:
        OptionError: options that do not go together.
    """
    if joint and (method or members):
        raise OptionError("`joint` trains the members of a Hydra together: leave `method` and `members` out")
    if method is None:
        if members not in (None, EACH):
            raise OptionError(
                f"`members` {members}: a number is for `method`; without one, {EACH} trains each member of a Hydra"
            )
        return None
    if members in (None, EACH):
        raise OptionError(f"`method` {method}: say how many members to make, e.g. `members` 3")
    count = whole(members, 1, MEMBERS)
    if count is None:
        raise OptionError(f"`members` {shortened(str(members), 40)}: expected a number from 1 to {MEMBERS}")
    chosen = {"rank": rank, "alpha": alpha, "mask_scale": mask_scale}
    given: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    return Ensemble(method, count, fold=fold, **given)


def choose_jobs(
    checkpoints: Sequence[Checkpoint], ensemble: Ensemble | None, each: bool = False, joint: bool = False
) -> list[Job]:
    """What is trained on its own: models as they are, or the members of a Hydra.

    Args:
        ensemble: what is made of each model.
        each: whether members are trained each for itself.
        joint: whether all members of a model are trained together.

    Raises:
        OptionError: several members and nothing said of how to train them, or one and `joint`.
    """
    if each and ensemble is None:
        return [
            Job(f"{_stem(checkpoint.name)}-member{number}", part)
            for checkpoint in checkpoints
            for number, part in enumerate(split_members(checkpoint))
        ]
    for checkpoint in checkpoints:
        if checkpoint.members > 1 and not joint and ensemble is None:
            raise OptionError(
                f"{checkpoint.name}: has {checkpoint.members} members: train each with `members`, or all with `joint`"
            )
        if checkpoint.members == 1 and joint:
            raise OptionError(f"`joint`: {checkpoint.name} has one member: leave `joint` out")
    return [Job(_stem(checkpoint.name), checkpoint) for checkpoint in checkpoints]


def _stem(model: str) -> str:
    return Path(model).resolve().name.removesuffix(".safetensors")


def sample_kind(jobs: Sequence[Job], recipe: Recipe) -> Kind:
    """What the networks are trained on.

    Raises:
        OptionError: some take images, some texts.
    """
    if recipe.loss == "contrastive":
        return "pair"
    tasks = {job.checkpoint.spec.task for job in jobs}
    if len(tasks) > 1:
        raise OptionError(f"members of different kinds: {', '.join(sorted(tasks))}: train them one by one")
    return "text" if tasks == {"text-classification"} else "image"
