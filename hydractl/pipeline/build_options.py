"""The options of a build, as a file and as the record that a begun build is compared with; numbers of its effort."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import lexists
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tomli_w

from hydractl import bounds
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import member_heads
from hydractl.checkpoint.manifest import fingerprint
from hydractl.data.files import hashes_of_tables, sha256_of
from hydractl.data.reading import OOD_SOURCE, SOURCE, Reading, parse_data_spec, path_seen_from
from hydractl.errors import OptionError, OutputError
from hydractl.inputs.members import Limits
from hydractl.inputs.models import as_checkpoint
from hydractl.inputs.search_data import modality_of, open_material, open_ood_sets
from hydractl.options import Option, declared, flat, option, with_options
from hydractl.run_options import Compute, Precision, Seed
from hydractl.schema import Origin, parse_toml, read_json, read_text
from hydractl.selection.candidates import counts
from hydractl.text import printable, shortened
from hydractl.training.request import Hyperparameters, TrainingSources
from hydractl.watch import LOG, Watcher

BUILD_TOML = "build.toml"
BEGUN = "work/begun.json"
#: Options that do not change the result; a config has no use for them.
OWN = ("output", "dry_run")
#: Options that name a file, and those that name a source: their paths are seen from the file.
FILES = ("model", "teacher", "recipe", "classes")
PLACES = (*FILES, "id_data", "ood_data", "train_data", "eval_data", "eval_ood_data")
#: What the effort of a build decides where the user does not.
PLANNED = ("random", "limit", "train_samples", "settings")
REMEDY = "correct it: its names are those of the options, with _ for -"
EPOCHS = 10  # that training takes at most where its length is not given
#: Passes that a step of training takes for a sample, and a refit of a member.
TRAINED, REFITTED = 3.0, 3.0
SCORED = 1000  # samples on which units are scored and maps refitted: a build makes many members


@dataclass(frozen=True)
class Effort:
    """The numbers of a build that no option gives."""

    name: str
    random: int  # draws of heads, per budget
    limit: int  # samples of each set in a step
    steps: int  # of the optimiser, 10 epochs at most
    untrained: int  # Hydras without training that lose units, at each cost


EFFORTS = (
    Effort("quick", random=6, limit=2000, steps=500, untrained=2),
    Effort("normal", random=12, limit=5000, steps=1500, untrained=3),
    Effort("thorough", random=20, limit=10_000, steps=4500, untrained=6),
)


@dataclass(frozen=True)
class MemberChoice:
    """The candidates for members, and the rule by which they are chosen."""

    members: int = option(3, "Number of members.", within=(1, 100))
    budgets: str = option(
        "8%,17%,33%", "Heads to remove from a member, as numbers or shares.", metavar="8%,17%,33%", rare=True
    )
    random: int | None = option(None, "Draws of heads, per budget.", within=(0, 1000), rare=True)
    trunks: str | None = option(
        None,
        "Trunk depths to try. Default: 0 (no trunk), or several depths when a cost budget is given.",
        metavar="0,2,4",
        rare=True,
    )


@dataclass(frozen=True)
class Learning:
    """The way members learn from training data."""

    teacher: Sequence[str] = option(
        (),
        "Network whose probabilities replace labels in fine-tuning; repeat it to learn the mean of several. Without "
        "`train_data` it is only evaluated.",
        metavar="MODEL",
    )
    recipe: str | None = option(
        None, "Recipe for fine-tuning members on `train_data`.", metavar="NAME|FILE.toml", rare=True
    )
    settings: Sequence[str] = option(
        (), "Change a setting of the recipe; repeat it.", metavar="KEY=VALUE", flags=("--set",), rare=True
    )


@dataclass(frozen=True)
class BuildData:
    """The data of a build."""

    id_data: str = option("", "Labelled in-distribution (ID) data, for selection and evaluation.", "Data", SOURCE)
    ood_data: Sequence[str] = option(
        (),
        "Out-of-distribution (OOD) data, for selection and evaluation; repeat it for several sets.",
        "Data",
        OOD_SOURCE,
    )
    train_data: str | None = option(None, "Labelled data to fine-tune members on.", "Data", SOURCE)
    eval_data: str | None = option(None, "Labelled data to evaluate on. Default: a part of `id_data`.", "Data", SOURCE)
    eval_ood_data: Sequence[str] = option(
        (), "OOD data to evaluate on; repeat it for several sets. Default: a part of `ood_data`.", "Data", OOD_SOURCE
    )


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The options of a build."""

    model: Annotated[
        str,
        Option(
            "The network: a folder of transformers, timm or OpenCLIP, a hydractl file, or a hub id; or a build.toml.",
            "Model",
            "MODEL|build.toml",
            positional=True,
        ),
    ]
    choice: MemberChoice = MemberChoice()
    limits: Limits = Limits()
    units: Literal["yes", "no"] | None = option(
        None,
        "Remove MLP units too, above a trunk of half the layers, and train the fused members, without "
        "selection. Default: yes with `train_data` and `budget_macs` below 2x, unless an option for choosing members "
        "is given.",
        rare=True,
    )
    learning: Learning = Learning()
    seed: Seed = 0
    data: BuildData = BuildData()
    reading: Reading = Reading()
    train_samples: int | None = option(
        None, "Samples to train on. Default: `limit`, or all.", "Data", within=(1, bounds.SAMPLES), rare=True
    )
    effort: Literal["quick", "normal", "thorough"] = option(
        "normal",
        "How much to draw, sample and train where no option says it. quick trains for a third of the steps of normal "
        "and tries less; thorough trains for three times as many and tries more.",
        "Compute",
    )
    compute: Compute = Compute()
    precision: Precision = "no"
    output: str | Path | None = option(
        None,
        "Folder for all results. A build that began there continues.",
        "Output",
        "FOLDER",
        flags=("--output", "-o"),
    )
    dry_run: bool = option(False, "Print the commands without running them.", "Output")

    @classmethod
    def completed(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns options by name, with those of a build.toml behind them where that is the model."""
        return _with_file(cls, options) if is_build_file(options.get("model")) else dict(options)

    @property
    def folder(self) -> Path:
        """The folder of all results."""
        return Path(self.output or "")


B = TypeVar("B", bound=BuildOptions)


def is_build_file(model: object) -> bool:
    """Returns whether the model of a build is the file of another build's options."""
    return isinstance(model, str | Path) and str(model).endswith(".toml")


def _options_of(build: BuildOptions, folder: Path) -> dict[str, Any]:
    """Returns the options that are not the default, by name; paths are seen from a folder."""
    values = flat(build)
    changed = {}
    for entry in declared(type(build)):
        value = values.get(entry.name)
        if entry.name in OWN or value is None or value == entry.default or value == ():
            continue
        plain = entry.option.plain(value) if entry.option.plain else value
        several = [str(item) for item in plain] if isinstance(plain, list | tuple) else None
        plain = several if several is not None else str(plain) if isinstance(plain, Path) else plain
        if entry.name in PLACES:
            plain = _placed(entry.name, plain, "", str(folder))
        changed[entry.name] = plain
    return changed


def _placed(name: str, value: Any, here: str, there: str) -> Any:
    """Returns the paths of an option as seen from another folder.

    Args:
        here: the folder that they are seen from.
        there: the folder that the result's are seen from.
    """
    if isinstance(value, list):
        return [_placed(name, place, here, there) for place in value]
    if name in FILES:
        return path_seen_from(str(value), there, here)
    return str(parse_data_spec(str(value), True, here).seen_from(there))


def written(build: BuildOptions, folder: Path) -> bytes:
    """Returns a readable file of the options of a build; `hydractl build` reads it."""
    head = "# Written by hydractl build. To repeat or change it: hydractl build build.toml -o FOLDER\n"
    lines = tomli_w.dumps(_options_of(build, folder)).splitlines()
    return (head + "".join(f"{printable(line)}\n" for line in lines)).encode()


def _with_file(kind: type[BuildOptions], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of the file that the model is, except those that the user gave beside it.

    Raises:
        OptionError: not such a file, or it names another one, or no option of a build.
    """
    file = Path(str(options["model"]))
    origin = Origin(str(file), OptionError, REMEDY)
    if not lexists(file):
        raise origin.refusal("there is no such file", "name a build.toml, or the network to build from")
    values: dict[str, Any] = parse_toml(read_text(file, origin), origin).fields
    names = {option.name for option in declared(kind)} - {*OWN}
    if unknown := [name for name in values if name not in names]:
        raise origin.refusal(f"{shortened(unknown[0], 40)} is not an option of a build", REMEDY)
    if is_build_file(values.get("model")):
        raise origin.refusal(f"model is {shortened(str(values['model']), 40)}, not a network", "name the network there")
    for name in PLACES:
        if name in values:
            values[name] = _placed(name, values[name], str(file.parent), ".")
    by_user = {name: value for name, value in options.items() if name != "model" and value is not None}
    return {"output": str(file.parent), **values, **by_user}


def begun(build: B, folder: Path) -> B | None:
    """Returns the build that began in a folder, with the plan it began with; None if none did.

    Raises:
        OutputError: it began with other options, networks, tables, recipe or classes, or its record is damaged.
    """
    record = folder / BEGUN
    if not lexists(record):
        return None
    origin = Origin(str(record), OutputError, "name another folder")
    fields = read_json(record, origin).fields
    old, planned = fields.get("options"), fields.get("plan")
    if not isinstance(old, dict) or not isinstance(planned, dict) or not planned.keys() <= set(PLANNED):
        raise origin.refusal("is not a record of a build")
    new = _options_of(build, folder)
    for name in sorted(old.keys() | new.keys()):
        # The file in the folder holds what the effort decided as well.
        if new.get(name) not in (old.get(name), planned.get(name, old.get(name))):
            was, now = (shortened(str(one.get(name, "not given")), 60) for one in (old, new))
            raise OutputError(
                f"{folder}: began with `{name}` {was}, now it is {now}: name another folder as `output`, or give the "
                "same again"
            )
    inputs = fields.get("inputs")
    if not isinstance(inputs, dict):
        raise origin.refusal("is not a record of a build")
    for place, hashes in _inputs(build, folder).items():
        if inputs.get(place) != hashes:
            what = "another network" if isinstance(hashes, dict) else "other content"
            raise OutputError(
                f"{folder}: began with {what} in {path_seen_from(place, '.', str(folder))}: name another folder as "
                "`output`, or put the old back"
            )
    return with_options(build, planned)


def _inputs(build: BuildOptions, folder: Path) -> dict[str, dict[str, str] | list[str]]:
    """Returns hashes of networks, tables, and files of a recipe and of classes, by their paths seen from a folder."""
    data = build.data
    sources = [data.id_data, *data.ood_data, data.train_data, data.eval_data, *data.eval_ood_data]
    places = [parse_data_spec(str(source), True).source for source in sources if source]
    networks = [str(network) for network in (build.model, *build.learning.teacher)]
    texts = [str(text) for text in (build.learning.recipe, build.reading.classes) if text and Path(str(text)).is_file()]
    return {
        **{path_seen_from(name, str(folder)): fingerprint(as_checkpoint(name)) for name in networks},
        **{path_seen_from(place, str(folder)): hashes_of_tables(Path(place)) for place in places},
        **{path_seen_from(text, str(folder)): [sha256_of(Path(text))] for text in texts},
    }


def record(build: BuildOptions, planned: BuildOptions, folder: Path) -> bytes:
    """Returns the record of a build that begins."""
    values = flat(planned)
    plan = {name: values[name] for name in PLANNED}
    content = {"options": _options_of(build, folder), "inputs": _inputs(build, folder), "plan": plan}
    return f"{json.dumps(content, indent=2)}\n".encode()


@dataclass(frozen=True)
class Sizes:
    """The samples that a build has."""

    inside: int  # ID samples of a step; each step has a part of them
    outside: Sequence[int]  # samples of each OOD set for a step
    measured: Sequence[int]  # samples of each set of the evaluation
    training: int = 0

    def in_a_step(self, limit: int | None) -> int:
        """Returns the samples of a step that has so many of each set at most."""
        return _limited((self.inside, *self.outside), limit)


def _limited(sets: Sequence[int], limit: int | None) -> int:
    return sum(size if limit is None else min(size, limit) for size in sets)


def effort_of(build: BuildOptions) -> Effort:
    """Returns the row of a build's effort."""
    return next(effort for effort in EFFORTS if effort.name == build.effort)


def settled(build: B, sizes: Sizes, thin: bool, watch: Watcher, *, untrained: int = 0) -> B:
    """Returns the build with the numbers of its effort wherever an option gives none, and notes them.

    Args:
        thin: whether members lose MLP units, so that nothing is selected.
        untrained: how many Hydras are tried without training; draws join them only if an option asks.
    """
    effort, choice, chosen = effort_of(build), build.choice, dict[str, Any]()
    if not thin and (not untrained or choice.random or choice.budgets != MemberChoice().budgets):
        chosen["random"] = effort.random if choice.random is None else choice.random
    parts = [f"{untrained} Hydras without training"] if untrained else []
    if chosen.get("random"):
        parts.append(f"{chosen['random']} random draws per budget")
    limit = build.reading.limit
    if limit is None and max(sizes.inside, *sizes.outside, *sizes.measured) > effort.limit:
        chosen["limit"] = limit = effort.limit
        if sizes.training and build.train_samples is None:
            chosen["train_samples"] = sizes.training  # the limit is of the other steps
    parts.append("all samples" if limit is None else f"at most {limit} samples of each set")
    if sizes.training:
        recipe = Hyperparameters(build.learning.recipe, build.learning.settings).changed_recipe()
        if not recipe.steps and not recipe.epochs:
            steps = min(effort.steps, max(EPOCHS * sizes.training // recipe.batch, 1))
            chosen["settings"] = [*build.learning.settings, f"steps={steps}"]
            parts.append(f"{steps} steps of training")
    watch.note(f"note: `effort` {build.effort}: {', '.join(parts)}")
    return with_options(build, chosen)


def sizes_of(build: BuildOptions, network: Checkpoint) -> Sizes:
    """Returns the samples that a build has.

    Raises:
        DataError: data cannot be read, or their labels are not the network's.
    """
    from hydractl.data.open import open_samples

    reading, ood_data = replace(build.reading, limit=None), [*build.data.ood_data] or None
    material = open_material(network, build.data.id_data, ood_data, reading=reading, compute=build.compute, watch=LOG)
    inside = len(material.id) // (3 if build.data.eval_data else 4)
    outside = [len(samples) * 2 // (2 if build.data.eval_ood_data else 3) for samples in material.ood.values()]
    modality, measured = modality_of(network, reading), [inside, *(size // 2 for size in outside)]
    if build.data.eval_data:
        measured[0] = len(open_samples(build.data.eval_data, modality, reading))
    if build.data.eval_ood_data:
        sets = open_ood_sets(build.data.eval_ood_data, build.data.eval_data or build.data.id_data, modality, reading)
        measured[1:] = map(len, sets.values())
    return Sizes(inside, outside, measured, _training_samples(build, network) if build.data.train_data else 0)


def _training_samples(build: BuildOptions, network: Checkpoint) -> int:
    """Returns the number of samples to train on; raises now what their labels would raise hours later."""
    from hydractl.training.conditions import Training
    from hydractl.training.trainer import fit_labels, sample_kind
    from hydractl.training.trainset import open_training_data

    recipe = Hyperparameters(build.learning.recipe, build.learning.settings).changed_recipe()
    reading = replace(build.reading, classes=None, limit=build.train_samples or build.reading.limit)
    outliers = build.data.ood_data if recipe.outlier_weight else ()
    sources = TrainingSources(outlier_data=outliers)
    data = open_training_data(sample_kind([network], recipe), build.data.train_data or "", sources, reading)
    if not (build.learning.teacher and recipe.teacher_weight == 1):
        fixed = recipe if recipe.steps or recipe.epochs else replace(recipe, steps=1)
        fit_labels(network, Training(data, fixed, match=build.reading.match_labels))
    return len(data.train)


def passes(
    build: BuildOptions, network: Checkpoint, sizes: Sizes, trunks: str, refitted: Sequence[bool] = ()
) -> Mapping[str, float]:
    """Returns how many samples the network must be run on, by command of a plan; those that take none are left out.

    Args:
        build: with the numbers of its effort.
        trunks: the trunk depths to try.
        refitted: whether each Hydra that is tried without training is refitted.
    """
    heads, choice, limit = member_heads(network.heads, 0), build.choice, build.reading.limit
    budgets = len(counts("budgets", choice.budgets, len(heads))) * len(trunks.split(","))
    inside = _limited((sizes.inside,), limit)
    selecting = inside if refitted else _limited((2 * sizes.inside,), limit)
    counted = {"select": (1.0 + budgets * (choice.random or 0)) * selecting}
    if refitted:
        scored = min(SCORED, sizes.inside, limit or SCORED)
        counted["score-heads"] = TRAINED * scored
        counted["prune"] = REFITTED * choice.members * scored * sum(refitted) / len(refitted)
        counted["select"] += choice.members * inside * effort_of(build).untrained
    if sizes.training:
        from hydractl.training.network import step_count

        recipe = Hyperparameters(build.learning.recipe, build.learning.settings).changed_recipe()
        steps = step_count(recipe, sizes.training) * len(recipe.lr)
        counted["finetune"] = TRAINED * steps * recipe.batch * choice.members
    counted["calibrate"] = choice.members * sizes.in_a_step(limit)
    counted["evaluate"] = (choice.members + (2 if sizes.training else 1)) * _limited(sizes.measured, limit)
    return counted
