"""Fine-tuning: a model, members after pruning, or an ensemble made of one network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydractl import bounds
from hydractl.data.like import DataLike, DataSetsLike
from hydractl.errors import OptionError
from hydractl.steps.inputs import (
    Device,
    Force,
    ImageColumn,
    LabelColumn,
    Limit,
    MatchLabels,
    ModelLike,
    Precision,
    Seed,
    TextColumn,
    Workers,
)
from hydractl.steps.options import Option, step
from hydractl.steps.trained import finished, told, written
from hydractl.steps.tuned import Finetuned, Tuned
from hydractl.training.ensembles import METHODS, taking
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    from hydractl.training.recipe import Recipe

    Models = ModelLike | Sequence[ModelLike]
    RecipeLike = str | Path | Recipe
    Numbers = str | float | Sequence[float]
    Names = str | Sequence[str]
    Members = int | Literal["each"]
    MethodName = str
else:  # what the command line derives flags from
    Models = Sequence[Any]
    RecipeLike = Numbers = Names = Members = Any
    MethodName = Literal[tuple(method.name for method in METHODS)]

BASELINES = "; ".join(f"{method.name}, where {method.help}" for method in METHODS)


@step
def finetune(
    models: Annotated[
        Models,
        Option("One network, or members to train each.", heading="Model", metavar="MODEL...", positional=True),
    ],
    *,
    data: Annotated[DataLike, Option("Labelled training data.", heading="Data", metavar="SOURCE[:SPLIT]")],
    recipe: Annotated[
        RecipeLike | None, Option("What is computed; see hydractl recipes list.", metavar="NAME|FILE.toml")
    ] = None,
    settings: Annotated[
        Mapping[str, Any] | Sequence[str],
        Option("Change a setting of the recipe; repeat it.", metavar="KEY=VALUE", flags=("--set",), repeated=True),
    ] = (),
    lr_grid: Annotated[Numbers | None, Option("Learning rates to try; validation chooses.", metavar="A,B,...")] = None,
    epochs: Annotated[
        float | None, Option("Passes over the training data.", metavar="X", minimum=0, maximum=bounds.EPOCHS)
    ] = None,
    steps: Annotated[int | None, Option("Optimiser steps.", metavar="N", minimum=1, maximum=bounds.STEPS)] = None,
    train_only: Annotated[
        Names | None, Option("Train these parts only: attention, mlp, text.norm ...", metavar="PART,...")
    ] = None,
    freeze_below: Annotated[
        int | None,
        Option(
            "Freeze the layers below this; negative counts from the top.",
            metavar="L",
            minimum=-bounds.LAYERS,
            maximum=bounds.LAYERS,
        ),
    ] = None,
    new_classifier: Annotated[
        Literal["no", "zeros", "normal"] | None,
        Option("Replace the classifier by an untrained one over the data's labels, or give a base network one."),
    ] = None,
    members: Annotated[
        Members | None,
        Option(
            "Train each member of a Hydra on its own; with `method`, how many members to make.",
            metavar="[N]",
            bare="each",
        ),
    ] = None,
    joint: Annotated[bool, Option("Train a Hydra as it is fused, on the mean of its members' losses.")] = False,
    method: Annotated[
        MethodName | None,
        Option(f"Make an ensemble of one dense network, as a baseline: {BASELINES}."),
    ] = None,
    rank: Annotated[
        int | None,
        Option(
            "Rank of each member's deltas; 4 unless given.",
            minimum=1,
            maximum=bounds.WIDTH,
            goes_with={"method": taking("rank")},
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        Option(
            "Deltas count alpha / rank; once unless given.",
            minimum=0,
            maximum=bounds.WIDTH,
            goes_with={"method": taking("alpha")},
        ),
    ] = None,
    mask_scale: Annotated[
        float | None,
        Option(
            "How little members have in common: 1 makes them keep every feature; 1.5 unless given.",
            minimum=1,
            maximum=100,
            goes_with={"method": taking("mask_scale")},
        ),
    ] = None,
    fold: Annotated[
        bool,
        Option(
            "Give each member weights of its own in the end, as networks that are no ensemble have them.",
            goes_with={"method": taking("fold")},
        ),
    ] = False,
    seed: Seed = 0,
    order_seed: Annotated[
        int | None,
        Option("Seed of samples' order, for all members; else their own.", "Compute", minimum=0, maximum=bounds.SEED),
    ] = None,
    noise_seed: Annotated[
        int | None,
        Option("Seed of dropout and augmentation, likewise.", "Compute", minimum=0, maximum=bounds.SEED),
    ] = None,
    val_data: Annotated[
        DataLike | None, Option("Labelled validation data.", heading="Data", metavar="SOURCE[:SPLIT]")
    ] = None,
    val_split: Annotated[
        int | None,
        Option(
            "Hold so many training samples out for validation, always the same.",
            heading="Data",
            metavar="N",
            minimum=1,
            maximum=bounds.SAMPLES,
        ),
    ] = None,
    outlier_data: Annotated[
        DataSetsLike,
        Option(
            "Samples of no class, of which the network learns to be unsure; repeat it for several sets.",
            heading="Data",
            metavar="SOURCE[:SPLIT]",
            repeated=True,
        ),
    ] = (),
    teacher: Annotated[
        Models,
        Option(
            "Classifier whose probabilities members learn in place of labels, which the data then need not have; "
            "repeat it for the mean of several.",
            metavar="MODEL",
            repeated=True,
        ),
    ] = (),
    streaming: Annotated[bool, Option("Read training data as it comes and keep none of it.", heading="Data")] = False,
    limit: Limit = None,
    image_column: ImageColumn = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    match_labels: MatchLabels = "name",
    device: Device = "auto",
    precision: Precision = "no",
    batch_size: Annotated[
        int | None,
        Option(
            "Samples per forward pass and device; a step adds up as many as it needs.",
            heading="Compute",
            minimum=1,
            maximum=bounds.BATCH,
        ),
    ] = None,
    workers: Workers = 0,
    output: Annotated[
        str | Path | None,
        Option(
            "File to write; for several members a folder, or a name with {member}.",
            heading="Output",
            flags=("--output", "-o"),
        ),
    ] = None,
    resume: Annotated[bool, Option("Go on where an interrupted run stopped.", heading="Output")] = False,
    save_every: Annotated[
        int | None,
        Option(
            "Steps between saved states; at each validation unless given.",
            heading="Output",
            minimum=1,
            maximum=bounds.STEPS,
        ),
    ] = None,
    keep: Annotated[int, Option("Saved states to keep.", heading="Output", minimum=1, maximum=1000)] = 2,
    force: Force = False,
    watch: Watcher = LOG,
) -> Finetuned:
    """Fine-tune a model, or members after pruning.

    Example: hydractl finetune m1 m2 m3 --data sst2:train --val-data sst2:validation --recipe sst2 -o tuned/

    Writes one safetensors file per member and prints its path. Members train independently, with seeds S, S+1 ...
    Log, learning curve and what `resume` needs lie beside it in FILE.training. Starts under torchrun as well.

    >>> tuned = hydractl.finetune(["m1", "m2"], data="data/pets", steps=2, settings={"lr": 1e-4})
    >>> hydractl.load(hydractl.fuse(tuned.checkpoints)).members
    2

    Raises:
        CheckpointError: a model cannot be read.
        OptionError: options that do not go together, or not with the models; several rates and no validation data.
        DataError: labels do not match, or a sample cannot be read.
        OutputError: an output exists and neither `force` nor `resume` is set, or the disk refuses it.
        TrainingError: the loss or a weight is not finite.
    """
    from hydractl.checkpoint.folders import make_folder
    from hydractl.checkpoint.locks import claim
    from hydractl.checkpoint.outputs import output_paths
    from hydractl.data.columns import Columns
    from hydractl.steps.compute import choose_device
    from hydractl.steps.inputs import as_checkpoint, as_several
    from hydractl.training.batches import Machine
    from hydractl.training.conditions import training_conditions
    from hydractl.training.data import open_training_data
    from hydractl.training.folders import is_done, prepare_folder, run_folder
    from hydractl.training.jobs import choose_ensemble, choose_jobs, sample_kind
    from hydractl.training.optimizer import step_count
    from hydractl.training.order import Seeds
    from hydractl.training.process import training_process
    from hydractl.training.published import choose_recipe
    from hydractl.training.run import fine_tune_checkpoint
    from hydractl.training.teachers import Teachers

    if resume and output is None:
        raise OptionError("`resume` goes on with what lies beside an output: name the `output`")
    options = {"lr": lr_grid, "epochs": epochs, "steps": steps, "train_only": train_only,
               "freeze_below": freeze_below, "new_classifier": new_classifier}  # fmt: skip
    chosen = choose_recipe(recipe, settings, options)
    ensemble = choose_ensemble(method, members, joint, rank, alpha, mask_scale, fold)
    opened = [as_checkpoint(model, chosen.new_classifier != "no") for model in as_several(models)]
    jobs = choose_jobs(opened, ensemble, members is not None, joint)
    taught = [as_checkpoint(model) for model in as_several(teacher)] if chosen.teacher_weight else []
    paths = [None] * len(jobs) if output is None else output_paths(output, [job.name for job in jobs])
    if str(output).endswith("/"):
        make_folder(Path(str(output)))
    done = [path is not None and is_done(path, resume, force) for path in paths]
    columns = Columns(image_column, text_column, label_column)
    samples = open_training_data(sample_kind(jobs, chosen), data, val_data, val_split, columns, limit, streaming,
                                 outlier_data or None)  # fmt: skip
    for text in samples.notes:
        watch.note(f"note: {text}")
    total = step_count(chosen, samples.size) * len(chosen.lr)
    networks = []
    with (
        training_process(choose_device(device), precision) as accelerator,
        TemporaryDirectory() as scratch,
        ExitStack() as claims,
    ):
        teachers = Teachers.load(taught, accelerator.device) if taught else None
        accelerator.wait_for_everyone()  # what one process writes is no reason for another to stop
        teller = watch if accelerator.is_main_process else LOG
        for path in paths if accelerator.is_main_process else ():
            claims.enter_context(claim(path) if path is not None else nullcontext())
        for number, (job, path) in enumerate(zip(jobs, paths, strict=True)):
            seeds = Seeds.of(seed + number, order_seed, noise_seed)
            if path is not None and done[number]:
                wanted = training_conditions(job.checkpoint, samples, chosen, seeds, match_labels, ensemble, precision,
                                             taught)  # fmt: skip
                networks.append(finished(job.name, path, wanted))
                continue
            folder = Path(scratch) / str(number) if path is None else run_folder(path)
            if accelerator.is_main_process:
                prepare_folder(folder, resume)
            accelerator.wait_for_everyone()
            machine = Machine(folder, batch_size, workers, save_every, keep, resume)
            with told(teller, job.name, total) as on_step:
                outcome = fine_tune_checkpoint(job.checkpoint, samples, chosen, seeds, machine, accelerator,
                                               match_labels, ensemble, on_step, teachers)  # fmt: skip
            tuned = Tuned(job.name, *outcome)
            networks.append(tuned if path is None else written(tuned, path, folder, accelerator, force or resume))
            teller.note(f"{path or job.name}: {tuned}")
    return Finetuned(networks)
