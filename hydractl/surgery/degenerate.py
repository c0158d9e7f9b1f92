"""What is legal in a network and hardly meant: notes for whoever made it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydractl.checkpoint.contents import Checkpoint, identity


def headless(checkpoint: Checkpoint) -> Iterator[str]:
    """What is said of layers, and of whole networks, whose members kept no head."""
    for member in range(checkpoint.members):
        of = f"member {member + 1}: " if checkpoint.members > 1 else ""
        kept = {name: [len(layer[member]) for layer in layers] for name, layers in checkpoint.heads.items()}
        if not any(map(any, kept.values())):
            yield f"{of}no head is left: no token reads another, so what it predicts says little"
            continue
        for name, layers in kept.items():
            empty = [str(number) for number, count in enumerate(layers) if not count]
            if empty:
                several = "layers" if len(empty) > 1 else "layer"
                yield f"{of}no head is left in {several} {', '.join(empty)} of the {name} tower"


def alike(members: Sequence[Checkpoint]) -> Iterator[str]:
    """What is said of members that are the same, or that may differ too little."""
    same: dict[str, list[str]] = {}
    for number, member in enumerate(members, 1):
        same.setdefault(identity(member), []).append(str(number))
    for numbers in same.values():
        if len(numbers) > 1:
            yield f"members {', '.join(numbers)} are identical: together they know no more than one of them"
    origins = {_origin(member.provenance) for member in members}
    if len(same) > 1 and len(origins) == 1 and (origin := origins.pop()):
        yield (
            f"all members were pruned by {origin} and none was fine-tuned: they may make the same mistakes; "
            "finetune them, or let select choose members that do well together"
        )


def _origin(provenance: Mapping[str, Any]) -> str:
    """The method that pruned a network last, with what it went by; empty where something else was done last."""
    options = provenance.get("options")
    if provenance.get("command") != "prune" or not isinstance(options, Mapping):
        return ""
    named = (options.get(name) for name in ("method", "objective", "scores"))
    return " ".join(str(name) for name in named if name is not None)
