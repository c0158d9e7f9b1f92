"""A latency limit as a limit of multiply-adds, which is known before there is a Hydra."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import member_heads
from hydractl.checkpoint.output import write_bytes
from hydractl.errors import OptionError
from hydractl.evaluation.timing import Timer, open_timed
from hydractl.families.load import read_checkpoint
from hydractl.schema import Checked, Items, Schema
from hydractl.surgery.choose import at_random
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads

FILE = "work/latency.json"  # in the folder of a build
BATCH, SECONDS = 8, 4.0
TOKENS = 128  # of texts

#: Multiply-adds and latency of a network, as multiples of those of another.
Point = tuple[float, float]


class LatencyLimit(Schema):
    """A latency limit, as the multiply-adds that stay within it."""

    budget: Annotated[float, Checked(gt=0)]  # the limit on time, as a multiple
    multiply_adds: Annotated[float, Checked(gt=0)]
    measured: Items[tuple[float, float]]  # multiply-adds and latency of a few Hydras, against the network

    def write(self, folder: Path) -> None:
        """Writes it to the folder of a build, so that an interrupted build continues with the same commands."""
        write_bytes(folder / FILE, f"{json.dumps(asdict(self), indent=2)}\n".encode())

    def verdict(self, network: Path, hydra: Path, device: torch.device) -> str:
        """Measures the Hydra beside the network and returns the ratio in a sentence."""
        ((_, ratio),) = time_ratios(read_checkpoint(network), [read_checkpoint(hydra)], device)
        return f"latency: {ratio:.2f} times the network's on this machine; {self.budget:g}x was allowed."


def time_ratios(first: Checkpoint, others: Sequence[Checkpoint], device: torch.device) -> list[Point]:
    """Returns published multiply-adds and latency of networks as multiples of the first one's, timed side by side.

    Args:
        device: that they are timed on, in batches of `BATCH`.
    """
    networks = {str(number): [network] for number, network in enumerate([first, *others])}
    base, *rows = Timer(SECONDS).time(open_timed(networks, device, torch.float32), BATCH, TOKENS)
    return [(row.weight.multiply_adds / base.weight.multiply_adds, row.ratio) for row in rows]


def sketches(network: Checkpoint, members: int, dropped: int) -> list[Checkpoint]:
    """Returns Hydras such as a selection makes: members differ in all layers, in half of them, or in the last.

    Args:
        dropped: how many heads each member loses at random, of the layers that differ.
    """
    depth = max(tower.layers for tower in network.spec.towers)
    hydras = []
    for below in sorted({0, depth // 2, depth - 1}):
        heads = [head for head in member_heads(network.heads, 0) if head.layer >= below]
        count = min(max(dropped, 1), len(heads) - 1)
        draws = [at_random(heads, count, seed) for seed in range(members)]
        hydras.append(fuse([drop_heads(network, draw) for draw in draws], dtype=torch.float32))
    return hydras


def most_multiply_adds(points: Sequence[Point], limit: float) -> float:
    """Returns the multiply-adds that keep to a latency, by a straight line through the network and the timed points.

    Args:
        limit: of the latency, as a multiple of the network's.

    Raises:
        OptionError: latency does not grow with multiply-adds, or no network is fast enough.

    >>> most_multiply_adds([(2.0, 1.5), (3.0, 2.0)], 1.75)
    2.5
    """
    counted, timed = np.array([(1.0, 1.0), *points]).T
    slope, start = np.polyfit(counted, timed, 1)
    if slope <= 0:
        raise OptionError(
            "`budget_latency`: times do not grow with multiply-adds here, so a limit cannot be translated: give "
            "`budget_macs`, or run on a quieter machine"
        )
    allowed = round(float((limit - start) / slope), 3)
    if allowed <= 0:
        raise OptionError(f"`budget_latency` {limit:g}x: no network is that fast here: allow more")
    return allowed
