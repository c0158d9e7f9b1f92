"""The training loop: one network with one learning rate, validated, saved and gone on with; its progress and result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.batching import Batch, Batches
from hydractl.errors import NotFiniteError, TrainingError
from hydractl.inference import collect_logits
from hydractl.metrics.classification import classification_metrics, tabulate
from hydractl.model.hydra import Hydra
from hydractl.tasks.task import Answers
from hydractl.training.batches import ShuffledSamples, Workplace, steps, training_batches, validation_batches
from hydractl.training.conditions import (
    CURVE,
    Conditions,
    Training,
    load_state,
    plot_curve,
    save_state,
    start_log,
    write_log,
)
from hydractl.training.losses import (
    Embedder,
    batch_loss,
    bound_scale,
    contrastive_backward,
    model_embeddings,
    pair_logits,
)
from hydractl.training.network import (
    as_written,
    build_network,
    build_optimizer,
    build_schedule,
    network_checkpoint,
    trained_parameters,
    validation_interval,
)
from hydractl.training.trainset import DROPOUT, derived_seed

LOG_LINES = 2000  # a longer run logs every n-th step
UNSAVED = 500  # the most steps that an interruption costs by default
#: The fields of a run that its state holds as they are.
KEPT = ("step", "best_step", "best_tensors", "reference", "without_improvement", "stopped", "log")


class Progress(NamedTuple):
    """The progress of a run after a step."""

    step: int
    loss: float
    lr: float
    samples_per_second: float


OnStep = Callable[[float, Progress], None]  # called with the rate on trial after every step


@dataclass(frozen=True)
class Validation:
    """Accuracy, NLL and ECE of the members' mean probability; of numbers the mean squared error alone."""

    accuracy: float | None = None
    nll: float | None = None
    ece: float | None = None
    mse: float | None = None

    def __str__(self) -> str:
        if self.mse is not None:
            return f"MSE {self.mse:.4f}"
        return f"accuracy {self.accuracy:.4f}, NLL {self.nll:.4f}, ECE {self.ece:.4f}"

    @property
    def quality(self) -> float:
        """Its first measure, higher is better."""
        return (self.accuracy or 0.0) if self.mse is None else -self.mse

    @classmethod
    def of(cls, metrics: Mapping[str, Any]) -> Validation:
        """Takes its measures from all metrics of some answers."""
        names = ("mse",) if "mse" in metrics else ("accuracy", "nll", "ece")
        return cls(**{name: metrics[name] for name in names})

    def better_than(self, other: Validation | None) -> bool:
        """Returns whether the first measure is better, or the same and NLL lower."""
        return other is None or (self.quality, -(self.nll or 0)) > (other.quality, -(other.nll or 0))


def validate(model: Hydra, batches: Batches) -> Validation:
    """Returns the model's results on validation data; each process computes its own batches."""
    with _evaluating(model):
        parts = gather_object([collect_logits(model, batches)] if len(batches) else [])
    logits = torch.cat([part.member_logits for part in parts], 1)
    labels = torch.cat([part.labels for part in parts if part.labels is not None])
    answers = Answers(task=model.task, member_logits=logits.numpy(), truth=labels.numpy())
    return Validation.of(model.task.metrics(model.task.table(answers)))


def validate_pairs(model: Hydra, batches: Batches) -> Validation:
    """Returns how well the model finds each image's own text among the texts of all validation pairs."""
    device = next(model.parameters()).device
    parts = []
    with _evaluating(model), torch.inference_mode():
        for batch in batches:
            images, texts = model_embeddings(model, {name: t.to(device) for name, t in batch.inputs.items()})
            parts.append((images.cpu(), texts.cpu()))
        parts = gather_object(parts)
        images, texts = (torch.cat([part[side] for part in parts], 1) for side in (0, 1))
        logits = pair_logits(images, texts, model.logit_scale.cpu()).expand(model.members, -1, -1).float()
    return Validation.of(asdict(classification_metrics(tabulate(logits.numpy(), np.arange(logits.shape[1])))))


@contextmanager
def _evaluating(model: Hydra) -> Iterator[None]:
    was_training = model.training
    model.eval()
    yield
    model.train(was_training)


@dataclass(frozen=True, eq=False)
class Tuned:
    """A network after training: the weights that validated best; without validation the last ones."""

    checkpoint: Checkpoint
    lr: float  # the learning rate that was chosen
    step: int  # the step of the weights, out of `steps`
    steps: int
    # Of the weights; None without validation data, or if an earlier run had finished the file.
    validation: Validation | None = None
    # Loss and rate of each step, accuracy, NLL and ECE of each validation, in order.
    log: Sequence[Mapping[str, Any]] = ()
    name: str = ""
    output: Path | None = None

    def __str__(self) -> str:
        if self.validation is None:
            return f"{self.steps} steps at lr {self.lr:g}, no validation"
        validation = self.validation
        return f"step {self.step} of {self.steps} at lr {self.lr:g}: validation {validation}"

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON, without the weights."""
        validation = None if self.validation is None else asdict(self.validation)
        return {"name": self.name, "lr": self.lr, "step": self.step, "steps": self.steps, "validation": validation}


@dataclass(eq=False)
class Run:
    """A network that trains with one of a recipe's learning rates."""

    # checkpoint, training: what trains and by what, with labels and a classifier that fit
    checkpoint: Checkpoint
    training: Training
    place: Workplace  # with the folder of this rate
    lr: float
    conditions: Conditions  # all that the result depends on, in plain JSON; a state of another run is refused
    network: Hydra = field(init=False)  # made from the checkpoint, on the accelerator's device
    model: Any = field(init=False)  # the network as accelerate wraps it
    optimizer: Any = field(init=False)
    schedule: Any = field(init=False)
    step: int = 0
    best: Validation | None = None
    best_step: int = 0
    best_tensors: dict[str, Tensor] = field(default_factory=dict)
    reference: float = -math.inf  # the accuracy that patience measures from
    without_improvement: int = 0
    stopped: bool = False
    log: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        recipe = self.training.recipe
        self.network = build_network(self.checkpoint, recipe)
        optimizer = build_optimizer(recipe, self.lr, list(trained_parameters(self.network)))
        self.schedule = build_schedule(recipe, optimizer, self.training.steps)
        wrapped = Embedder(self.network).train() if recipe.loss == "contrastive" else self.network.train()
        self.model, self.optimizer = self.place.accelerator.prepare(wrapped, optimizer)

    def note(self, entry: Mapping[str, Any]) -> None:
        """Adds an entry for the present step to the log."""
        self.log.append({"step": self.step, **entry})
        if self.place.accelerator.is_main_process:
            write_log(self.place.folder, self.log[-1])

    def take_step(self, batches: Sequence[Batch]) -> float:
        """Changes the network by one step and returns the step's mean loss.

        Args:
            batches: this process's share of the step, one for each forward pass.
        """
        recipe, accelerator = self.training.recipe, self.place.accelerator
        self.network.train()
        contrastive = recipe.loss == "contrastive"
        if contrastive:
            loss = contrastive_backward(self.model, batches, accelerator, self._seed_dropout)
        else:
            loss = self._backward(batches)
        if recipe.clip:
            accelerator.clip_grad_norm_(self.network.parameters(), recipe.clip)
        self.optimizer.step()
        if contrastive:
            bound_scale(self.network)
        self.optimizer.zero_grad()
        if not self.optimizer.step_was_skipped:
            self.schedule.step()
        self.step += 1
        return loss.item()

    def _seed_dropout(self, forward: int) -> None:
        # Dropout follows from seed, step and place, so that a run that resumes needs to remember nothing of it.
        place = (self.step, forward, self.place.accelerator.process_index)
        torch.manual_seed(derived_seed(self.training.seeds.noise, DROPOUT, *place))

    def _backward(self, batches: Sequence[Batch]) -> Tensor:
        """Puts the gradient of a step's loss into the parameters; returns the loss, a mean over samples and members."""
        accelerator = self.place.accelerator
        total = torch.zeros((), device=accelerator.device)
        count = None
        if self.network.spec.by_token:  # each word of a step counts alike, whichever pass and process has it
            words = sum(0 if batch.words is None else len(batch.words) for batch in batches)
            count = accelerator.reduce(torch.tensor(float(words), device=accelerator.device), "sum").item()
        for forward, batch in enumerate(batches):
            with accelerator.accumulate(self.model):
                self._seed_dropout(forward)
                loss = self._loss(batch, count)
                # Accelerate and DDP average over passes and processes; what they add up here is to be a sum.
                accelerator.backward(loss * len(batches) * accelerator.num_processes)
            total += loss.detach()
        return accelerator.reduce(total, "sum")

    def _loss(self, batch: Batch, count: float | None) -> Tensor:
        recipe, teachers, device = self.training.recipe, self.training.teachers, self.place.accelerator.device
        inputs = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.inputs.items()}
        logits = batch.answered(self.model(**inputs).member_logits)
        if batch.labels is None:
            return batch_loss(self.network.task, logits, None, recipe)
        taught = None if teachers is None else batch.answered(teachers.probabilities(inputs))
        labels = batch.labels.to(device)
        return batch_loss(self.network.task, logits, labels, recipe, taught=taught, count=count)

    def save(self) -> None:
        """Writes the state after the present step, by one process when all have come as far."""
        accelerator = self.place.accelerator
        accelerator.wait_for_everyone()
        if not accelerator.is_main_process:
            return
        state = {
            "run": self.conditions,
            "model": _trained_tensors(self.network),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "scaler": accelerator.scaler.state_dict() if accelerator.scaler is not None else None,
            "best": asdict(self.best) if self.best else None,
            **{name: getattr(self, name) for name in KEPT},
        }
        save_state(self.place.folder, state)

    def restore(self) -> None:
        """Goes on from the state that was saved last, if there is one."""
        state, scaler = load_state(self.place.folder, self.conditions), self.place.accelerator.scaler
        if state is None:
            return
        _restore_tensors(self.network, state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        if scaler is not None:
            scaler.load_state_dict(state["scaler"])
        for name in KEPT:
            setattr(self, name, state[name])
        self.best = Validation(**state["best"]) if state["best"] else None


def fine_tune(
    checkpoint: Checkpoint,
    training: Training,
    place: Workplace,
    *,
    lr: float,
    conditions: Conditions,
    on_step: Callable[[Progress], None] | None = None,
) -> Tuned:
    """Trains a network with one learning rate; its log and its learning curve are in the folder of `place`.

    Args:
        conditions: all that the result depends on, whatever the rate.

    Raises:
        TrainingError: the loss or a weight is not finite.
    """
    coming = training_batches(checkpoint, training, place)
    place.accelerator.gradient_accumulation_steps = sum(part.division.passes for part in coming)
    try:
        run = Run(checkpoint, training, place, lr=lr, conditions={**conditions, "rate": lr})
        if place.execution.resume:
            run.restore()
        if place.accelerator.is_main_process:
            start_log(place.folder, run.log)
        try:
            _train(run, coming, on_step)
        finally:
            if place.accelerator.is_main_process and run.log:
                plot_curve(run.log, place.folder / CURVE)
    finally:
        place.accelerator.free_memory()
    _restore_tensors(run.network, run.best_tensors)
    step = run.best_step if run.best else run.step
    result = network_checkpoint(run.network, checkpoint)
    return Tuned(result, lr, step, training.steps, validation=run.best, log=run.log)


def _train(run: Run, parts: Sequence[ShuffledSamples], on_step: Callable[[Progress], None] | None) -> None:
    recipe, end = run.training.recipe, run.training.steps
    validate_every = validation_interval(recipe, len(run.training.data.train), end)
    save_every = run.place.execution.save_every or min(validate_every, UNSAVED)
    validation = validation_batches(run.checkpoint, run.training, run.place)
    started, first = time.monotonic(), run.step
    for batches in steps(parts, run.step, 0 if run.stopped else end):
        rate = run.schedule.get_last_lr()[0]
        loss = run.take_step(batches)
        due = run.step % validate_every == 0 or run.step == end
        if not math.isfinite(loss) or (due and not _is_finite(run.network)):
            raise _diverged(run, f"the loss is {loss}" if not math.isfinite(loss) else "a weight is not finite")
        pace = (run.step - first) / max(time.monotonic() - started, 1e-9) * recipe.batch
        if run.step % max(1, end // LOG_LINES) == 0:
            run.note({"loss": loss, "lr": rate, "samples_per_second": pace})
        if on_step is not None:
            on_step(Progress(run.step, loss, rate, pace))
        if due and validation is not None:
            try:
                _validate(run, validation)
            except NotFiniteError as error:
                raise _diverged(run, "a logit is not finite") from error
        if run.step % save_every == 0 or run.step == end or run.stopped:
            run.save()
        if run.stopped:
            return


def _validate(run: Run, batches: Batches) -> None:
    recipe = run.training.recipe
    check = validate_pairs if recipe.loss == "contrastive" else validate
    with as_written(run.network, run.checkpoint):
        result = check(run.network, batches)
    run.note({name: value for name, value in asdict(result).items() if value is not None})
    if result.better_than(run.best):
        run.best, run.best_step = result, run.step
        run.best_tensors = _trained_tensors(run.network)
    if result.quality >= run.reference + recipe.improvement and result.quality > run.reference:
        run.reference, run.without_improvement = result.quality, 0
    else:
        run.without_improvement += 1
    run.stopped = 0 < recipe.patience <= run.without_improvement


def _trained_tensors(network: Hydra) -> dict[str, Tensor]:
    return {name: p.detach().cpu().clone() for name, p in network.named_parameters() if p.requires_grad}


@torch.no_grad()
def _restore_tensors(network: Hydra, tensors: Mapping[str, Tensor]) -> None:
    for name, parameter in network.named_parameters():
        if name in tensors:
            parameter.copy_(tensors[name])


def _is_finite(network: Hydra) -> bool:
    return all(bool(p.isfinite().all()) for p in network.parameters() if p.requires_grad)


def _diverged(run: Run, symptom: str) -> TrainingError:
    remedy = f"lower the rate (`settings` lr={run.lr / 3:.0e}) or clip the gradient (`settings` clip=1)"
    return TrainingError(f"{symptom} at step {run.step}: {remedy}")
