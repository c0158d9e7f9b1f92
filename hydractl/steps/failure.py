"""Training an error predictor beside a frozen zero-shot model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from hydractl.data.like import DataLike
from hydractl.errors import OptionError
from hydractl.steps.inputs import DeviceLike, ModelLike
from hydractl.steps.tuned import Finetuned, Tuned
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.data.columns import Columns
    from hydractl.data.samples import Samples
    from hydractl.training.vilu import Run


@dataclass(frozen=True, eq=False)
class Failure:
    """What an error predictor is trained on, and how long."""

    data: DataLike
    columns: Columns
    limit: int | None
    match: Literal["name", "index"]
    template: str
    epochs: float | None
    seed: int
    batch_size: int | None
    device: DeviceLike
    output: str | Path | None
    resume: bool
    keep: int
    force: bool
    watch: Watcher


def with_error_predictor(
    models: ModelLike | Sequence[ModelLike], asked: Failure, unread: Mapping[str, object]
) -> Finetuned:
    """The one model with a predictor of its errors beside it.

    Raises:
        OptionError: several models; else see `train_failure`.
    """
    from hydractl.steps.inputs import as_checkpoint, as_several
    from hydractl.training.vilu import RATE

    named = as_several(models)
    if len(named) != 1:
        raise OptionError(f"`method` vilu trains beside one model, {len(named)} are named: run it for each")
    checkpoint = as_checkpoint(named[0])
    made, epochs = train_failure(checkpoint, asked, unread)
    name = Path(checkpoint.name).resolve().name.removesuffix(".safetensors")
    return Finetuned(
        [Tuned(name, made, RATE, epochs, epochs, None, (), None if asked.output is None else Path(asked.output))]
    )


def train_failure(checkpoint: Checkpoint, asked: Failure, unread: Mapping[str, object]) -> tuple[Checkpoint, int]:
    """The model with its error predictor, written where `output` says, and how many epochs it was trained.

    Args:
        unread: options that this training does not read; one that is given is refused.

    Raises:
        OptionError: no zero-shot model, an option that is not read, or a run to resume that is another.
        DataError: labels do not match, or all answers are right, or all wrong.
    """
    from hydractl.checkpoint.locks import claim
    from hydractl.data.open import open_samples
    from hydractl.families.open import read_checkpoint, write_checkpoint
    from hydractl.training.conditions import refuse_other
    from hydractl.training.folders import clear_states, is_done, prepare_folder, run_folder
    from hydractl.training.vilu import EPOCHS, Run, vilu_conditions, with_predictor

    if checkpoint.spec.task != "zero-shot":
        raise OptionError(f"{checkpoint.name}: is no zero-shot model: `method` vilu is for CLIP and its kin")
    for option, value in unread.items():
        if value:
            raise OptionError(f"`{option}` has no effect with `method` vilu: leave it out")
    epochs = EPOCHS if asked.epochs is None else int(asked.epochs)
    if epochs < 1 or epochs != (asked.epochs or epochs):
        raise OptionError(f"`epochs` {asked.epochs:g}: `method` vilu takes a whole number, 1 or more")
    samples = open_samples(asked.data, "image", columns=asked.columns, limit=asked.limit)
    conditions = vilu_conditions(checkpoint, samples, asked.template, asked.match, epochs, asked.seed)
    path = None if asked.output is None else Path(asked.output)
    done = path is not None and is_done(path, asked.resume, asked.force)
    with TemporaryDirectory() as scratch, claim(path) if path is not None else nullcontext():
        if path is not None and done:
            made = read_checkpoint(path)
            options: Any = made.provenance.get("options")
            refuse_other(path, options.get("conditions") or {} if isinstance(options, dict) else {}, conditions)
            return made, epochs
        folder = Path(scratch) / "run" if path is None else run_folder(path)
        prepare_folder(folder, asked.resume)
        with asked.watch.progress("vilu", epochs) as advance:
            run = Run(epochs, asked.seed, folder, asked.resume, asked.keep, conditions,
                      lambda loss: advance(1, f"loss {loss:.4f}"))  # fmt: skip
            made = with_predictor(checkpoint, _train(checkpoint, samples, asked, run), samples, conditions)
        if path is not None:
            write_checkpoint(made, path, asked.force or asked.resume)
            clear_states(folder)
            asked.watch.note(f"{path}: {epochs} epochs on {len(samples)} samples")
    return made, epochs


def _train(checkpoint: Checkpoint, samples: Samples, asked: Failure, run: Run) -> Mapping[str, Any]:
    from hydractl.data.classes import set_classes
    from hydractl.inference import load_checkpoint
    from hydractl.steps.compute import choose_device
    from hydractl.steps.inputs import DEFAULT_BATCH_SIZE
    from hydractl.training.vilu import answer, train

    model = load_checkpoint(checkpoint, choose_device(asked.device)).optimize_for_inference()
    set_classes(model, None, asked.template, samples)
    with asked.watch.progress("answers", len(samples)) as advance:
        answered = answer(model, checkpoint, samples, asked.match, asked.batch_size or DEFAULT_BATCH_SIZE, advance)
    return train(answered, run)
