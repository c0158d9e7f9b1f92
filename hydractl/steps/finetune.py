"""Fine-tuning: a model, or members after pruning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.output import claim, make_folder, output_paths
from hydractl.data.reading import DataLike, Reading
from hydractl.errors import OptionError
from hydractl.inputs.models import as_checkpoint, as_several
from hydractl.inputs.result import Result
from hydractl.options import Without, function, option, required
from hydractl.run_options import choose_device
from hydractl.training.request import Execution, Hyperparameters, Seeds, TrainingSources
from hydractl.watch import LOG, Watcher, tell

if TYPE_CHECKING:
    from hydractl.training.batches import Workplace
    from hydractl.training.conditions import Training
    from hydractl.training.loop import OnStep, Progress, Tuned

Models = Any  #: one model, or several


@dataclass(frozen=True)
class Finetune:
    """Fine-tune a model, or members after pruning.

    Example: hydractl finetune m1 m2 m3 --train-data sst2:train --val-data sst2:validation --recipe sst2 -o tuned/

    Writes one safetensors file per member and prints its path. Members train independently, with seeds S, S+1 ...
    The log, the learning curve and the state for `resume` lie in FILE.training. Runs under torchrun as well.

    >>> tuned = hydractl.finetune(["m1", "m2"], train_data="data/pets", steps=2, settings={"lr": 1e-4})
    >>> hydractl.load(hydractl.fuse(tuned.checkpoints)).members
    2

    Raises:
        CheckpointError: a model cannot be read.
        OptionError: options do not go together or do not fit the models; several rates and no validation data.
        DataError: labels do not match, or a sample cannot be read.
        OutputError: an output exists and neither `force` nor `resume` is set, or the disk refuses it.
        TrainingError: the loss or a weight is not finite.
    """

    models: Models = field(
        metadata=required("One network, or members to train each.", "Model", "MODEL...", positional=True, repeated=True)
    )
    train_data: DataLike = field(kw_only=True, metadata=required("Labelled training data.", "Data", "SOURCE[:SPLIT]"))
    hyperparameters: Hyperparameters = Hyperparameters()
    apart: bool = option(False, "Train each member of a Hydra on its own.", rare=True)
    joint: bool = option(False, "Train a fused Hydra as one network, on the mean of its members' losses.")
    seeds: Seeds = Seeds()
    sources: TrainingSources = TrainingSources()
    reading: Annotated[Reading, Without("classes", "template")] = Reading()
    execution: Execution = Execution()

    def run(self, watch: Watcher) -> Finetuned:
        execution, recipe = self.execution, self.hyperparameters.changed_recipe()
        if execution.resume and execution.output is None:
            raise OptionError("`resume` needs an `output`: the state of a run lies beside its file")
        if self.joint and self.apart:
            raise OptionError("`joint` trains the members of a Hydra together, `apart` each on its own: choose one")
        opened = [as_checkpoint(model, recipe.new_classifier != "no") for model in as_several(self.models)]
        from hydractl.data.samples import missing_classes
        from hydractl.training.batches import Workplace, training_process
        from hydractl.training.conditions import Training
        from hydractl.training.losses import Teachers
        from hydractl.training.trainer import fit_labels, sample_kind
        from hydractl.training.trainset import open_training_data, repeated

        jobs = self._jobs(opened)
        teachers = [as_checkpoint(model) for model in as_several(self.sources.teacher)] if recipe.teacher_weight else []
        data = open_training_data(sample_kind(opened, recipe), self.train_data, self.sources, self.reading)
        tell(watch, data.notes)
        if self.sources.val_data is not None and (warning := repeated(data)) is not None:
            watch.warn(warning)
        training = Training(data, recipe, self.seeds, match=self.reading.match_labels)
        with (
            training_process(choose_device(execution.device), execution.precision) as accelerator,
            TemporaryDirectory() as scratch,
            ExitStack() as claims,
        ):
            if teachers:
                training = replace(training, teachers=Teachers.load(teachers, accelerator.device))
            if jobs and (not teachers or recipe.teacher_weight < 1):
                labelled = fit_labels(jobs[0].checkpoint, training)[1].data.train
                if (missing := missing_classes(labelled)) is not None:
                    watch.warn(missing)
            accelerator.wait_for_everyone()  # what one process writes must not stop another
            for job in jobs if accelerator.is_main_process else ():
                claims.enter_context(claim(job.path))
            teller = watch if accelerator.is_main_process else LOG
            networks = []
            for number, job in enumerate(jobs):
                place = Workplace(job.folder(Path(scratch) / str(number)), accelerator, execution)
                networks.append(_trained(job, replace(training, seeds=self.seeds.of_member(number)), place, teller))
            return Finetuned(networks)

    def _jobs(self, checkpoints: Sequence[Checkpoint]) -> list[_Job]:
        """Returns the networks to train on their own, with their files."""
        from hydractl.training.conditions import is_done
        from hydractl.training.trainer import choose_networks

        output, resume, force = self.execution.output, self.execution.resume, self.execution.force
        networks = choose_networks(checkpoints, apart=self.apart, joint=self.joint)
        if output is None:
            return [_Job(name, checkpoint) for name, checkpoint in networks]
        paths = output_paths(output, [name for name, _ in networks])
        inputs = [*as_several(self.models), *as_several(self.sources.teacher)]
        if str(output).endswith("/"):
            make_folder(Path(str(output)))
        return [
            _Job(*network, path, is_done(path, resume, force, inputs))
            for network, path in zip(networks, paths, strict=True)
        ]


finetune = function(Finetune)


@dataclass(frozen=True, eq=False)
class _Job:
    """A network that is trained on its own, its file, and whether an earlier run has finished that."""

    name: str
    checkpoint: Checkpoint
    path: Path | None = None
    done: bool = False

    def folder(self, scratch: Path) -> Path:
        """Returns where the run keeps its log and its states: beside its file, or in a temporary folder."""
        from hydractl.training.conditions import run_folder

        return scratch if self.path is None else run_folder(self.path)


def _trained(job: _Job, training: Training, place: Workplace, watch: Watcher) -> Tuned:
    """Trains a network, or reads what an earlier run made of it."""
    from hydractl.training.trainer import fine_tune_checkpoint, read_finished, write_finished

    if job.path is not None and job.done:
        return replace(read_finished(job.path, job.checkpoint, training, place), name=job.name)
    with _progress(watch, job.name, training.steps * len(training.recipe.lr)) as on_step:
        tuned = replace(fine_tune_checkpoint(job.checkpoint, training, place, on_step), name=job.name)
    tuned = tuned if job.path is None else write_finished(tuned, job.path, place)
    watch.note(f"{job.path or job.name}: {tuned}")
    return tuned


@contextmanager
def _progress(watch: Watcher, name: str, steps: int) -> Iterator[OnStep]:
    """Yields a function that reports a step to a watcher: how far the run is, its loss, rate and throughput."""
    reached: dict[float, int] = {}
    with watch.progress(name, steps) as advance:

        def on_step(lr: float, now: Progress) -> None:
            text = f"{name} (lr {lr:g}): loss {now.loss:.4f}, lr {now.lr:.2e}, {now.samples_per_second:.0f} samples/s"
            advance(now.step - reached.get(lr, 0), text)
            reached[lr] = now.step

        yield on_step


@dataclass(frozen=True, eq=False, repr=False)
class Finetuned(Result):
    """The trained networks, one for each model or member."""

    networks: Sequence[Tuned]

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The trained networks, as every other step takes them."""
        return [network.checkpoint for network in self.networks]

    @property
    def checkpoint(self) -> Checkpoint:
        """The one network that was trained.

        Raises:
            OptionError: there are several.
        """
        if len(self.networks) > 1:
            raise OptionError(f"{len(self.networks)} networks were trained: use one of the result's `checkpoints`")
        return self.networks[0].checkpoint

    def to_json(self) -> dict[str, Any]:
        return {
            "outputs": [str(network.output) for network in self.networks if network.output is not None],
            "networks": [network.to_json() for network in self.networks],
        }

    def lines(self) -> Iterator[str]:
        yield from map(str, (network.output or f"{network.name}: {network}" for network in self.networks))

    def facts(self) -> Mapping[str, object]:
        return {str(network.output or network.name): network for network in self.networks}
