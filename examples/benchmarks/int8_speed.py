"""What eight bits take beside float32: a dense network and Hydras of it, by ours and by onnxruntime.

python int8_speed.py MODEL FOLDER [BATCH_SIZES [SECONDS]]

Makes three Hydras of the network, whose answers do not matter here: one of members that each drop another third of the
heads, one of members that draw them, and one with a trunk of half of the layers, above which members keep two thirds
of the heads and 47 % of the MLP units. Prints processor time of one thread (medians in turns), and its ratio to the
dense network by ours.
"""

import random
import sys
from pathlib import Path

import torch

import hydractl
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import member_heads
from hydractl.checkpoint.layout import member_units
from hydractl.exports.graph import trace
from hydractl.exports.int8 import quantized
from hydractl.families.load import read_checkpoint
from hydractl.inference import load_to_compute
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads, drop_units

MEMBERS, KEPT_UNITS = 3, 0.47


def hydras(dense: Checkpoint) -> dict[str, Checkpoint]:
    draw = random.Random(0)
    tower, heads = dense.spec.towers[0], list(member_heads(dense.heads, 0))
    units = list(member_units(dense.layout, dense.spec, 0))
    third, middle = tower.heads // MEMBERS, tower.layers // 2
    even = [[head for head in heads if head.head // third == member] for member in range(MEMBERS)]
    uneven = [draw.sample(heads, len(heads) // 3) for _ in range(MEMBERS)]
    above = [unit for unit in units if unit.layer >= middle]
    fewer = [draw.sample(above, round((1 - KEPT_UNITS) * len(above))) for _ in range(MEMBERS)]
    trunk = [[head for head in gone if head.layer >= middle] for gone in even]
    return {
        "hydra": fuse([drop_heads(dense, gone) for gone in even]),
        "uneven": fuse([drop_heads(dense, gone) for gone in uneven]),
        "units": fuse([drop_units(drop_heads(dense, gone), lost) for gone, lost in zip(trunk, fewer, strict=True)]),
    }


def main(model: str, folder: str, sizes: str = "1,8", seconds: str = "60") -> None:
    systems: dict[str, object] = {}
    for name, checkpoint in {"dense": read_checkpoint(model), **hydras(read_checkpoint(model))}.items():
        path = Path(folder) / f"{name}-int8.onnx"
        hydractl.export(checkpoint, output=path.with_name(f"{name}.onnx"), force=True)
        network = load_to_compute(checkpoint, torch.device("cpu"), torch.float32)
        path.write_bytes(quantized(trace(network)).SerializeToString())
        systems |= {name: checkpoint, f"{name} ort": str(path.with_name(f"{name}.onnx")), f"{name} int8": str(path)}
    for row in hydractl.analyse_speed(systems, batch_sizes=sizes, seconds=float(seconds), processor_time=True).rows:
        time, counted = row.timing.milliseconds, row.counted_ratio
        print(f"{row.name:18} batch {row.batch_size}: {time:7.1f} ms ({row.ratio:.2f}), counted {counted:.2f}, "
              f"{row.weight.size / 1e6:.1f} MB", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
