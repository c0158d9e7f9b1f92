"""Magnitude: how large a head's weights are, known without any data."""

from __future__ import annotations

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head


def magnitude_scores(checkpoint: Checkpoint) -> dict[Head, float]:
    """The L2 norm of each head's slices of W_Q, W_K, W_V and W_O together, float64, higher = keep.

    Args:
        checkpoint: of one member; heads it does not keep have no score.
    """
    return {
        Head(tower.name, layer, head): value
        for tower in checkpoint.spec.towers
        for layer in range(tower.layers)
        for head, value in zip(
            checkpoint.heads[tower.name][layer][0],
            _layer_norms(checkpoint, tower.name, layer, tower.head_width),
            strict=True,
        )
    }


def _layer_norms(checkpoint: Checkpoint, tower: str, layer: int, head_width: int) -> list[float]:
    squares = []
    for part in "qkvo":
        weight = checkpoint.tensors[f"{tower}.layers.{layer}.attention.{part}.weight"].load().double()
        rows = weight.mT if part == "o" else weight  # [H*K, D]
        squares.append(rows.unflatten(0, (-1, head_width)).square().sum((1, 2)))
    return [float(value) for value in sum(squares[1:], squares[0]).sqrt()]
