"""Fusing members into one network."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.output import refuse_existing
from hydractl.errors import CheckpointError, OptionError
from hydractl.inputs.models import ModelLike, as_checkpoint, as_several
from hydractl.inputs.result import MadeModel
from hydractl.options import function, option, remembered
from hydractl.reports.summary import fusing_line
from hydractl.run_options import Dtype, Force, Output, choose_dtype
from hydractl.surgery.provenance import alike, headless, with_provenance
from hydractl.watch import Watcher, tell


@dataclass(frozen=True, eq=False, repr=False)
class Fused(MadeModel):
    """A Hydra of several members; `output` is where it was written, if it was."""

    checkpoint: Checkpoint
    output: Path | None = None

    def to_json(self) -> dict[str, Any]:
        return {"output": None if self.output is None else str(self.output), "members": self.checkpoint.members}

    def lines(self) -> Iterator[str]:
        yield str(self.output)

    def guidance(self) -> Iterator[str]:
        yield fusing_line(self.checkpoint, self.output)
        if self.output is not None:
            name = "hydra" if self.checkpoint.members > 1 else "merged"
            merged = f"{name}={quote(str(self.output))}"
            yield f"next: hydractl evaluate single=MODEL {merged} --id-data SOURCE --ood-data SOURCE"


@dataclass(frozen=True)
class Fuse:
    """Fuse members into one Hydra.

    Attention stands side by side, the rest is averaged unless kept separate. What is bit-identical in all members is
    stored once and never changed. With `separate` all, dense members make an exact Deep Ensemble in one file.

    Example: hydractl fuse m1 m2 m3 -o hydra.safetensors

    With `soup` attention and classifiers are averaged too: one network at the cost of one member. For members that were
    fine-tuned from one network it can be as accurate as their Deep Ensemble (model soups, arXiv 2203.05482).

    Behind a network, each folder of a LoRA adapter, as the library peft saves it, is a member: the network with the
    adapter merged into its weights. A single adapter makes a single network.

    Writes one safetensors file and prints its path.

    >>> fused = hydractl.fuse(["m1", "m2"])
    >>> hydractl.load(fused).members
    2

    Raises:
        CheckpointError: a member cannot be read, or members differ in what they must agree in.
        OptionError: fewer than two members, an unknown part, or `soup` beside `separate`.
        OutputError: the output exists and `force` is not set, or the disk refuses it.
    """

    models: Sequence[ModelLike] = option(
        (), "The members, in order.", "Model", "MODEL...", positional=True, remembered=False
    )
    separate: str | None = option(
        None,
        "What each member keeps instead of averaging it: parts, TOWER.PART, a TOWER. Default: refitted MLPs, "
        "and the text tower of a zero-shot model.",
        metavar="mlp,norm,embeddings,classifier,pooler|all|none",
    )
    soup: bool = option(False, "Average attention and classifiers too, into one network.")
    dtype: Dtype = None
    output: Output = None
    force: Force = False

    def run(self, watch: Watcher) -> Fused:
        if self.output is not None:
            refuse_existing(Path(self.output), self.force)
        from hydractl.families.load import write_checkpoint
        from hydractl.surgery.fusion import parse_separate

        parts = None if self.separate is None else parse_separate(map(str.strip, self.separate.split(",")))
        if self.soup and parts is not None:
            raise OptionError("`soup` averages all that members have, `separate` keeps them apart: leave one out")
        base, adapters, members = self._members()
        fused = self._fused(members, parts, merging=len(adapters) == 1)
        options = remembered(self, separate=None if parts is None else sorted(parts), soup=self.soup or None)
        fused = with_provenance(fused, "fuse", base, options | {"adapters": adapters or None})
        notes = list(alike(members))
        apart = (slot for name, slot in fused.slots().items() if name not in fused.shared)
        if parts is None and any((slot.tower, slot.group) == ("text", "mlp") for slot in apart):
            notes.append("text towers differ: each member keeps its own; `separate` none averages what it can")
        if self.output is not None:
            write_checkpoint(fused, self.output, self.force)
        tell(watch, (*notes, *headless(fused)))
        return Fused(fused, None if self.output is None else Path(self.output))

    def _members(self) -> tuple[list[Checkpoint], list[str], list[Checkpoint]]:
        """Returns the networks read, the identities of adapters, and the members that both make."""
        from hydractl.families.peft import adapter_identity, is_adapter, with_adapter

        models = as_several(self.models)
        adapters = [str(model) for model in models if is_adapter(model)]
        if not adapters:
            networks = [as_checkpoint(model) for model in models]
            return networks, [], networks
        if is_adapter(models[0]) or len(models) - len(adapters) > 1:
            raise OptionError(f"{adapters[0]}: is a LoRA adapter: name one network first, and behind it adapters alone")
        base = _base(models[0])
        return [base], list(map(adapter_identity, adapters)), [with_adapter(base, folder) for folder in adapters]

    def _fused(self, members: Sequence[Checkpoint], parts: frozenset[str] | None, merging: bool) -> Checkpoint:
        """Returns the members as one network; an adapter alone, `merging`, is in the weights of its network already."""
        from hydractl.surgery.fusion import fuse as fuse_members
        from hydractl.surgery.fusion import soup
        from hydractl.surgery.slicing import with_dtype

        dtype = choose_dtype(self.dtype)
        if self.soup:
            return soup(members, dtype)
        if merging and parts is None:
            return with_dtype(members[0], dtype)
        return fuse_members(members, parts, dtype)


def _base(model: Any) -> Checkpoint:
    """Returns the network of adapters; a network without a classifier too, since adapters bring one."""
    try:
        checkpoint = as_checkpoint(model)
        if not checkpoint.spec.embeds:
            return checkpoint
    except CheckpointError as error:
        try:
            return as_checkpoint(model, without_classifier=True)
        except CheckpointError:
            raise error from None
    return as_checkpoint(model, without_classifier=True)


fuse = function(Fuse)
