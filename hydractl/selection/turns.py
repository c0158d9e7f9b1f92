"""What a joint search has found so far, on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hydractl.artifacts import Index, State, StateFile, TowerName
from hydractl.checkpoint.heads import Head
from hydractl.schema import Items

#: The heads that have left, turn by turn, over each trunk.
Turns = Sequence[Sequence[Head]]


class _State(State):
    turns: Items[Items[tuple[TowerName, Index, Index]]]


class Journal(StateFile[_State, Turns]):
    """The turns of a joint search so far."""

    FORMAT, VERSION, FILE = "hydractl-joint-search-state", 1, _State

    def fields(self, found: Turns) -> Mapping[str, Any]:
        return {"turns": [list(map(list, turns)) for turns in found]}

    def found(self, state: _State) -> list[list[Head]]:
        return [[Head(*head) for head in turns] for turns in state.turns]
