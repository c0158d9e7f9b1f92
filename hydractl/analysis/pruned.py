"""Which heads a pruned network has lost against the one that it was made from."""

from __future__ import annotations

import torch

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, member_heads
from hydractl.errors import OptionError
from hydractl.surgery.prune import drop_heads


def heads_taken(dense: Checkpoint, pruned: Checkpoint) -> frozenset[Head]:
    """The heads that `pruned` lacks; all it has besides must be the other network's own.

    Args:
        dense, pruned: of one member each.

    Raises:
        OptionError: it is of another shape, has heads that the other lacks, or other weights, as after fine-tuning.
    """
    if dense.spec != pruned.spec:
        raise OptionError(f"{pruned.name}: is no part of {dense.name}, whose layers or sizes differ: name its source")
    kept, left = (set(member_heads(checkpoint.heads, 0)) for checkpoint in (dense, pruned))
    if more := left - kept:
        raise OptionError(f"{pruned.name}: has {min(more)}, which {dense.name} has not: name the models the other way")
    gone = frozenset(kept - left)
    expected = drop_heads(dense, gone).tensors
    for name, tensor in pruned.tensors.items():
        if not torch.equal(tensor.load(), expected[name].load().to(tensor.dtype)):
            raise OptionError(
                f"{pruned.name}: {name} is not that of {dense.name}: name what prune made of it, before fine-tuning"
            )
    return gone
