"""The members that a selection names as networks, and the network that they make together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hydractl.checkpoint.contents import Checkpoint
from hydractl.selection.artifact import Selection
from hydractl.selection.run import together
from hydractl.surgery.members import drop_heads
from hydractl.surgery.provenance import SEEN, with_provenance


@dataclass(frozen=True, eq=False)
class Followed:
    """A selection and the networks that it speaks of.

    Attributes:
        files: the members that are files of their own, by their identity.
    """

    selection: Selection
    network: Checkpoint
    files: Mapping[str, Checkpoint]

    @property
    def members(self) -> list[Checkpoint]:
        """The members in the order in which they were chosen; nothing is read yet.

        Raises:
            OptionError: the network lacks a head that a member drops.
        """
        return [
            drop_heads(self.network, member.dropped or ()) if member.file is None else self.files[member.file.sha256]
            for member in self.selection.members
        ]

    def fused(self, separate: Iterable[str] | None = None, dtype: torch.dtype | None = None) -> Checkpoint:
        """The network that its members make together, with its history.

        Args:
            separate, dtype: see `hydractl.surgery.fusion.fuse`.
        """
        asked = {
            "separate": None if separate is None else sorted(separate),
            "fused_dtype": None if dtype is None else str(dtype),
        }
        options = {**self.selection.options, **asked}
        whole = together(self.members, separate, dtype)
        return with_selection(whole, self.network, list(self.files.values()), options, self.selection.search_data)


def with_selection(
    fused: Checkpoint,
    network: Checkpoint,
    files: Sequence[Checkpoint],
    options: Mapping[str, Any],
    seen: Mapping[str, Any] | None,
) -> Checkpoint:
    """A fused network with its history, the same whether it was made at once or by a selection's file.

    Args:
        files: members that are files, each once, in the order in which they were chosen.
        options: those of the selection.
        seen: the samples that had a say.
    """
    return with_provenance(fused, "select", [network, *files], {**options, SEEN: seen})
