"""One network from checkpoint to fine-tuned checkpoint: data made to fit, every rate of the recipe tried."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.output import make_folder
from hydractl.data.labels import unnamed, with_some_class
from hydractl.data.number_labels import match_to_task, with_numbers, with_unread_labels
from hydractl.data.samples import Samples
from hydractl.errors import CheckpointError, DataError, OptionError, TrainingError
from hydractl.families.bert_kin import label_tokens
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.surgery.provenance import OUTLIER_SETS, SEEN, with_provenance
from hydractl.surgery.slicing import split_members
from hydractl.tasks.all_tasks import find_task, kind_of_labels, require_one_class, with_task
from hydractl.tasks.labels import Labels
from hydractl.tasks.task import Task
from hydractl.tasks.words import Words
from hydractl.training.batches import Workplace
from hydractl.training.conditions import (
    Conditions,
    Training,
    as_provenance,
    clear_states,
    prepare_folder,
    refuse_other_conditions,
    refuse_other_run,
    training_conditions,
)
from hydractl.training.loop import OnStep, Tuned, fine_tune
from hydractl.training.losses import require_fit
from hydractl.training.network import trained_names, with_new_classifier
from hydractl.training.recipe import Recipe
from hydractl.training.trainset import Kind, Match, remembered_training


def choose_networks(
    checkpoints: Sequence[Checkpoint], apart: bool = False, joint: bool = False
) -> list[tuple[str, Checkpoint]]:
    """Returns the networks to train on their own, models or the members of a Hydra, each with the name of its file.

    Args:
        apart: whether members are trained each for itself.
        joint: whether all members of a model are trained together.

    Raises:
        OptionError: several members and neither `apart` nor `joint`, or one member and `joint`.
    """
    if apart:
        return [
            (f"{_stem(checkpoint.name)}-member{number}", part)
            for checkpoint in checkpoints
            for number, part in enumerate(split_members(checkpoint))
        ]
    for checkpoint in checkpoints:
        if checkpoint.members > 1 and not joint:
            raise OptionError(
                f"{checkpoint.name}: has {checkpoint.members} members: train each with `apart`, or all with `joint`"
            )
        if checkpoint.members == 1 and joint:
            raise OptionError(f"`joint`: {checkpoint.name} has one member: leave `joint` out")
    return [(_stem(checkpoint.name), checkpoint) for checkpoint in checkpoints]


def _stem(model: str) -> str:
    return Path(model).resolve().name.removesuffix(".safetensors")


def sample_kind(checkpoints: Sequence[Checkpoint], recipe: Recipe) -> Kind:
    """Returns what the networks are trained on."""
    if recipe.loss == "contrastive":
        return "pair"
    tasks = {checkpoint.spec.task for checkpoint in checkpoints}
    if len(tasks) > 1:
        raise OptionError(f"members of different kinds: {', '.join(sorted(tasks))}: train them one by one")
    return checkpoints[0].spec.modality


def fine_tune_checkpoint(
    checkpoint: Checkpoint, training: Training, place: Workplace, on_step: OnStep | None = None
) -> Tuned:
    """Returns the checkpoint fine-tuned by the recipe, with its provenance; of several rates the best in validation.

    Nothing is written before the data, the model and the recipe are known to fit.

    Args:
        on_step: called with the rate on trial after every step.

    Raises:
        OptionError: the recipe or a teacher does not fit the model.
        TrainingError: the loss or a weight is not finite, with every rate.
    """
    recipe = training.recipe
    teachers = () if training.teachers is None else training.teachers.checkpoints
    conditions = training_conditions(checkpoint, training, place.accelerator.mixed_precision)
    if place.execution.resume:
        refuse_other_run(place.folder, conditions)
    fitted, training = fit_labels(checkpoint, training)
    require_fit(teachers, fitted)
    trained_names(fitted.spec, recipe.train_only, recipe.freeze_below)  # raises for parts that the model lacks
    if place.accelerator.is_main_process:
        prepare_folder(place.folder, place.execution.resume)
    place.accelerator.wait_for_everyone()
    best = _best_rate(fitted, training, place, conditions=conditions, on_step=on_step)
    options = {**as_provenance(conditions, recipe, best.lr), "best_step": best.step, **_data_provenance(training)}
    return replace(best, checkpoint=with_provenance(best.checkpoint, "finetune", [checkpoint, *teachers], options))


def _best_rate(
    checkpoint: Checkpoint, training: Training, place: Workplace, *, conditions: Conditions, on_step: OnStep | None
) -> Tuned:
    """Trains with each rate of the recipe, each in a folder of its own if there are several."""
    best: Tuned | None = None
    failed = TrainingError("no rate to train with: pass `lr`")
    rates = training.recipe.lr
    for lr in rates:
        folder = place.folder / f"lr-{lr}" if len(rates) > 1 else place.folder
        make_folder(folder)
        workplace = replace(place, folder=folder)
        step = None if on_step is None else partial(on_step, lr)
        try:
            tuned = fine_tune(checkpoint, training, workplace, lr=lr, conditions=conditions, on_step=step)
        except TrainingError as error:
            failed = error
            continue
        if best is None or (tuned.validation and tuned.validation.better_than(best.validation)):
            best = tuned
    if best is None:
        raise failed
    return best


def write_finished(tuned: Tuned, path: Path, place: Workplace) -> Tuned:
    """Writes a network to its file and removes the states; returns it with its weights on disk."""
    if place.accelerator.is_main_process:
        write_checkpoint(tuned.checkpoint, path, place.execution.force or place.execution.resume)
        clear_states(place.folder)
    place.accelerator.wait_for_everyone()
    return replace(tuned, checkpoint=read_checkpoint(path), output=path)


def read_finished(path: Path, checkpoint: Checkpoint, training: Training, place: Workplace) -> Tuned:
    """Returns what an earlier run made of a network.

    Raises:
        CheckpointError: the file cannot be read, or was not made by fine-tuning.
        OptionError: it was made under other conditions; the first difference is named.
    """
    trained = read_checkpoint(path)
    made: Any = trained.provenance.get("options")
    recipe, inputs = (made.get(name) if isinstance(made, dict) else None for name in ("recipe", "fingerprints"))
    if trained.provenance.get("command") != "finetune" or not isinstance(recipe, dict) or not isinstance(inputs, dict):
        raise CheckpointError(f"{path}: was not made by fine-tuning: name another output, or leave `resume` out")
    conditions = training_conditions(checkpoint, training, place.accelerator.mixed_precision)
    refuse_other_conditions(path, {**recipe, **inputs, **made, "lr": made.get("rates")}, conditions)
    return Tuned(trained, recipe["lr"], made["best_step"], training.steps, output=path)


def _data_provenance(training: Training) -> dict[str, Any]:
    # An evaluation refuses what the weights were fitted to, and what chose them, as it does the data of a search.
    data = training.data
    beside = {"validation data": data.validation, "outliers": data.outliers}
    seen = {name: remembered_training(samples) for name, samples in beside.items() if samples is not None}
    return {
        SEEN: {"training data": remembered_training(data.train), **seen},
        OUTLIER_SETS: list(data.outlier_sets) or None,
    }


def fit_labels(checkpoint: Checkpoint, training: Training) -> tuple[Checkpoint, Training]:
    """Returns the checkpoint, with a new classifier if the recipe asks for one, and data labelled in its numbering.

    Labels of the training data are not read if teachers have all the weight.

    Raises:
        DataError: labels are missing or do not match.
        OptionError: the recipe and the model do not go together.
    """
    recipe, data = training.recipe, training.data
    if recipe.loss == "contrastive":
        if len(checkpoint.spec.towers) < 2:
            raise OptionError(f"{checkpoint.name}: is not a zero-shot model: a contrastive loss needs two towers")
        return checkpoint, training
    if recipe.new_classifier != "no":
        labels, kind = _label_names(data.train), _kind(data.train)
        checkpoint = label_tokens(checkpoint) if kind is Words else with_task(checkpoint, kind)
        checkpoint = with_new_classifier(checkpoint, labels, recipe.new_classifier, training.seeds.seed)
    unread = training.teachers is not None and recipe.teacher_weight == 1
    task = find_task(checkpoint.spec.task)
    if task.taught_only:
        if not unread or data.validation is not None or data.outliers is not None:
            raise OptionError(
                f"{checkpoint.name}: embeds, so it learns only from another network: name it as `teacher`, with "
                "`settings` teacher_weight=1, without validation or outliers; or train a classifier with "
                "`new_classifier` zeros"
            )
        return checkpoint, replace(training, data=replace(data, train=with_some_class(data.train)))
    if checkpoint.labels is None:
        raise OptionError(
            f"{checkpoint.name}: is a zero-shot model: fine-tune it on images with texts, with `recipe` clip-lit, or "
            "train a classifier in its place with `new_classifier` zeros"
        )
    if data.outliers is not None and not task.outliers_teach:
        require_one_class(checkpoint.spec, "`outlier_data`", "leave it out")
    step: Any = partial(_match_or_advise, labels=checkpoint.labels, match=training.match, task=task)
    if unread:
        step = partial(with_unread_labels, model_labels=checkpoint.labels, task=task)
    train = step(data.train)
    validation = data.validation
    if validation is not None:
        validation = match_to_task(validation, task, checkpoint.labels, training.match)
    return checkpoint, replace(training, data=replace(data, train=train, validation=validation))


def _match_or_advise(samples: Samples, labels: tuple[str, ...], match: Match, task: Task) -> Samples:
    try:
        return match_to_task(samples, task, labels, match)
    except DataError as error:
        # Which a new classifier needs as well; words may have no label.
        unlabelled = samples.labels is None or ((samples.labels < 0).any() and _kind(samples) is not Words)
        if unlabelled or task.or_else is None:
            raise
        raise DataError(f"{error}; or {task.or_else}") from error


def _kind(samples: Samples) -> type[Task]:
    return kind_of_labels(samples.labels, by_word=samples.tagged)


def _label_names(data: Samples) -> tuple[str, ...]:
    if data.label_names is not None:
        return data.label_names
    if data.labels is None or data.labels.dtype.kind == "f":
        numbers = with_numbers(data).labels
        if numbers is None:
            raise DataError(f"{data.name}: {data.label_problem or 'holds no labels'}")
        return unnamed(numbers.shape[1]) if data.label_column is None else tuple(data.label_column.split(","))
    classes = data.labels.shape[1] if _kind(data) is Labels else int(data.labels.max()) + 1
    return tuple(map(str, range(classes)))
