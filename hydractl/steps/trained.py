"""The networks of a run of `finetune`: told of while they train, written, read again where an earlier run made them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hydractl.steps.tuned import Tuned
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from accelerate import Accelerator

    from hydractl.training.conditions import Conditions
    from hydractl.training.run import OnStep
    from hydractl.training.trial import Progress


def written(tuned: Tuned, path: Path, folder: Path, accelerator: Accelerator, force: bool) -> Tuned:
    """The network in its file: its weights need not stay in memory."""
    from hydractl.families.open import read_checkpoint, write_checkpoint
    from hydractl.training.folders import clear_states

    if accelerator.is_main_process:
        write_checkpoint(tuned.checkpoint, path, force)
        clear_states(folder)
    accelerator.wait_for_everyone()
    return replace(tuned, checkpoint=read_checkpoint(path), output=path)


def finished(name: str, path: Path, wanted: Conditions) -> Tuned:
    """What an earlier run made of a network.

    Raises:
        CheckpointError: the file cannot be read, or was made by something else.
        OptionError: it was made under other conditions; the first difference is named.
    """
    from hydractl.families.open import read_checkpoint
    from hydractl.training.conditions import read_made, refuse_other

    checkpoint = read_checkpoint(path)
    made = read_made(checkpoint)
    refuse_other(path, made.conditions, wanted)
    return Tuned(name, checkpoint, made.lr, made.best_step, made.steps, None, (), path)


@contextmanager
def told(watch: Watcher, name: str, steps: int) -> Iterator[OnStep]:
    """Tells a watcher of every step: how far the run has come, its loss, rate and throughput."""
    reached: dict[float, int] = {}
    with watch.progress(name, steps) as advance:

        def on_step(lr: float, now: Progress) -> None:
            text = f"{name} (lr {lr:g}): loss {now.loss:.4f}, lr {now.lr:.2e}, {now.samples_per_second:.0f} samples/s"
            advance(now.step - reached.get(lr, 0), text)
            reached[lr] = now.step

        yield on_step
