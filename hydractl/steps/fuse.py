"""Fusing members into one network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.errors import OptionError
from hydractl.steps.inputs import Dtype, Force, ModelLike, Output, as_path
from hydractl.steps.options import Option, step
from hydractl.steps.references import SelectionLike, follow
from hydractl.steps.result import Result
from hydractl.watch import LOG, Watcher

if TYPE_CHECKING:
    import torch

    from hydractl.checkpoint.contents import Checkpoint


@dataclass(frozen=True, eq=False, repr=False)
class Fused(Result):
    """A Hydra of several members; `output` is where it was written, if it was."""

    checkpoint: Checkpoint
    output: Path | None = None

    def to_json(self) -> dict[str, Any]:
        return {"output": None if self.output is None else str(self.output), "members": self.checkpoint.members}

    def lines(self) -> Iterator[str]:
        yield str(self.output)

    def facts(self) -> Mapping[str, object]:
        from hydractl.report.summary import key_facts

        return key_facts(self.checkpoint) | ({"file": self.output} if self.output else {})

    def guidance(self) -> Iterator[str]:
        from hydractl.report.changes import fusing_line

        yield fusing_line(self.checkpoint, self.output)
        if self.output is not None:
            hydra = quote(str(self.output))
            yield f"next: hydractl evaluate single=MODEL hydra={hydra} --id-data SOURCE --ood-data SOURCE"


@step
def fuse(
    models: Annotated[
        Sequence[ModelLike],
        Option(
            "The members, in order; with `selection` what it names, where that has moved.",
            heading="Model",
            metavar="MODEL...",
            positional=True,
        ),
    ] = (),
    *,
    selection: Annotated[
        SelectionLike | None, Option("Fuse the members that hydractl select has chosen.", metavar="FILE|-")
    ] = None,
    separate: Annotated[
        str | None,
        Option(
            "What stays with its member instead of being averaged: parts, TOWER.PART, a TOWER; the text tower of a "
            "zero-shot model unless given.",
            metavar="mlp,norm,embeddings,classifier,pooler|all|none",
        ),
    ] = None,
    dtype: Dtype = None,
    output: Output = None,
    force: Force = False,
    watch: Watcher = LOG,
) -> Fused:
    """Fuse members into one Hydra.

    Attention stands side by side, the rest is averaged unless kept separate. What is bit-identical in all members is
    stored once and never changed. With `separate` all, dense members make an exact Deep Ensemble in one file.

    Example: hydractl fuse m1 m2 m3 -o hydra.safetensors

    A network and folders of LoRA adapters behind it, as the library peft saves them, make a LoRA-Ensemble, which keeps
    their factors.

    With `selection` the members are made as well: the same bytes as select writes with an output.

    Writes one safetensors file and prints its path.

    >>> fused = hydractl.fuse(["m1", "m2"])
    >>> hydractl.load(fused).members
    2

    Raises:
        ArtifactError: a selection that cannot be read, or whose networks have changed.
        CheckpointError: a member cannot be read, or members differ in what they must agree in.
        OptionError: fewer than two members, or an unknown part.
        OutputError: the output exists and `force` is not set, or the disk refuses it.
    """
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.families.open import write_checkpoint
    from hydractl.steps.compute import choose_dtype, dtype_name
    from hydractl.surgery.degenerate import alike, headless
    from hydractl.surgery.fuse import parse_separate
    from hydractl.surgery.provenance import with_provenance

    named = None if separate is None else [part.strip() for part in separate.split(",") if part.strip()]
    parts = None if named is None else parse_separate(named)
    if output is not None:
        refuse_existing(Path(output), force)
    notes: list[str] = []
    if selection is not None:
        fused = follow(selection, models).fused(parts, choose_dtype(dtype))
    else:
        members, adapters, fused = _members(models, parts, choose_dtype(dtype))
        options = {
            "separate": None if parts is None else sorted(parts),
            "dtype": dtype_name(dtype),
            "adapters": adapters or None,
        }
        fused = with_provenance(fused, "fuse", members, options)
        notes += alike(members)
    apart = (slot for name, slot in fused.slots().items() if name not in fused.shared)
    if parts is None and any((slot.tower, slot.group) == ("text", "mlp") for slot in apart):
        notes.append("text towers differ: each member keeps its own; `separate` none averages what it can")
    if output is not None:
        write_checkpoint(fused, output, force)
    for note in (*notes, *headless(fused)):
        watch.note(f"note: {note}")
    return Fused(fused, as_path(output))


def _members(
    models: Sequence[ModelLike], parts: frozenset[str] | None, dtype: torch.dtype | None
) -> tuple[list[Checkpoint], list[str], Checkpoint]:
    """What is fused: networks, the identities of adapters, and what comes of both."""
    from hydractl.families.peft import adapter_identity, is_adapter, with_adapters
    from hydractl.steps.inputs import as_checkpoint
    from hydractl.surgery.dtype import with_dtype
    from hydractl.surgery.fuse import fuse as fuse_members

    adapters = [model for model in models if is_adapter(model)]
    networks = [as_checkpoint(model) for model in models if not is_adapter(model)]
    if not adapters:
        return networks, [], fuse_members(networks, parts, dtype)
    if len(networks) != 1 or is_adapter(models[0]) or len(adapters) < 2:
        raise OptionError(
            f"{len(networks)} networks and {len(adapters)} adapters: name one network first, then two adapters or more"
        )
    if parts is not None:
        raise OptionError("`separate` has no effect on adapters, which share all but what each has: leave it out")
    whole = with_adapters(networks[0], [str(folder) for folder in adapters])
    return networks, [adapter_identity(str(folder)) for folder in adapters], with_dtype(whole, dtype)
