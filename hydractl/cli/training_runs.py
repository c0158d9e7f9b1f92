"""What a `hydractl finetune` trains: the recipe, the networks and the files they become."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.cli.training_options import Method
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.training.data import Kind
    from hydractl.training.ensembles import Ensemble
    from hydractl.training.recipe import Recipe

MEMBER = "{member}"
EACH = "each"  # what --members stands for without a number
DEFAULT_RANK = 4


def chosen_recipe(name: str | None, pairs: list[str], options: dict[str, Any]) -> Recipe:
    """The recipe of that name, with what the command line changes in it.

    Args:
        pairs: settings as `--set` gives them.
        options: settings that have an option of their own; None where it was not given. They win.
    """
    from hydractl.training.published import find_recipe
    from hydractl.training.recipe import Recipe, changed, parse_settings

    settings = parse_settings(pairs) | {name: value for name, value in options.items() if value is not None}
    return changed(find_recipe(name) if name else Recipe(), settings, "the command line")


def chosen_baseline(
    method: Method | None, members: str | None, rank: int | None, alpha: float | None, joint: bool
) -> Ensemble | None:
    """The ensemble to make of one network, if one is asked for.

    Raises:
        OptionError: options that do not go together.
    """
    from hydractl.training.ensembles import Ensemble

    if method != "lora-ensemble" and (rank is not None or alpha is not None):
        raise OptionError("--rank and --alpha are for --method lora-ensemble: leave them out")
    if joint and (method or members):
        raise OptionError("--joint trains the members of a Hydra together: leave --method and --members out")
    if method is None:
        return None
    if members is None or not members.isdecimal():
        raise OptionError(f"--method {method}: say how many members to make, e.g. --members 3")
    return Ensemble(method, int(members), rank or DEFAULT_RANK, alpha)


def networks(
    opened: list[tuple[str, Checkpoint]], members: str | None, joint: bool, baseline: Ensemble | None
) -> tuple[list[str], list[Checkpoint]]:
    """What is trained on its own, and what each is called: models as they are, or the members of a Hydra.

    Raises:
        OptionError: several members and nothing said of how to train them, or one and `joint`.
    """
    from hydractl.surgery.members import split_members

    if members is None or baseline is not None:
        for name, checkpoint in opened:
            if checkpoint.members > 1 and not joint and baseline is None:
                raise OptionError(
                    f"{name}: has {checkpoint.members} members: train each with --members, or all with --joint"
                )
            if checkpoint.members == 1 and joint:
                raise OptionError(f"--joint: {name} has one member: leave --joint out")
        return [name for name, _ in opened], [checkpoint for _, checkpoint in opened]
    if members != EACH:
        raise OptionError(
            f"--members {members}: a number is for --method; --members alone trains each member of a Hydra"
        )
    parts = [
        (f"{name.removesuffix('.safetensors')}-member{number}", part)
        for name, checkpoint in opened
        for number, part in enumerate(split_members(checkpoint))
    ]
    return [name for name, _ in parts], [part for _, part in parts]


def output_paths(output: str, models: list[str]) -> list[Path]:
    """A file for each model: `output` itself for one, else by name in that folder, or numbered where {member} stands.

    Raises:
        OptionError: several models and one file to write, or two models of one name.
    """
    path = Path(output)
    if MEMBER in path.name:
        return [path.with_name(path.name.replace(MEMBER, str(number))) for number in range(len(models))]
    if path.is_dir() or output.endswith("/"):
        path.mkdir(exist_ok=True)
        names = [f"{Path(model).resolve().name.removesuffix('.safetensors')}.safetensors" for model in models]
        if len(set(names)) < len(names):
            raise OptionError(f"--output {output}: two models have the same name: use a name with {MEMBER}")
        return [path / name for name in names]
    if len(models) > 1:
        raise OptionError(f"--output {output}: {len(models)} members need a folder (NAME/) or a name with {MEMBER}")
    return [path]


def sample_kind(checkpoints: list[Checkpoint], recipe: Recipe) -> Kind:
    """What the networks are trained on.

    Raises:
        OptionError: some take images, some texts.
    """
    if recipe.loss == "contrastive":
        return "pair"
    tasks = {checkpoint.spec.task for checkpoint in checkpoints}
    if len(tasks) > 1:
        raise OptionError(f"members of different kinds: {', '.join(sorted(tasks))}: train them one by one")
    return "text" if tasks == {"text-classification"} else "image"
