"""What networks and their Hydras take on a processor by each runtime: one table, in parts that can run alone.

    python runtimes.py [FOLDER] [--networks vit-s bert ...] [--batches 1 8 32] [--minutes 15] [--avx2] [--quick]

Makes networks of random weights and two Hydras of three members of each: `hydra`, whose members each drop another third
of the heads, and `units`, which above a trunk of half of the layers drops MLP units too, until it costs what the
network does. Times them by transformers, ours (float32, bfloat16) and onnxruntime (float32, int8).

A round calls every system once, in turns; figures are medians over rounds. Cells (a network and a batch size) that do
not fit into the minutes are named and skipped, the dearest first. FOLDER keeps graphs and finished cells, so that
another run goes on with what is left; each run writes the table so far as JSON and Markdown.

All systems of a network stay open. With 512 tokens at batch size 8 they take more than 24 GiB of memory: choose
`--lengths 16 128` on a smaller machine.

`--avx2` limits torch by switches of its libraries, without bfloat16, which AVX2 does not multiply; onnxruntime has no
such switch.
"""

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, ViTConfig, ViTForImageClassification
from transformers.utils.logging import disable_progress_bar

from hydractl.checkpoint.arithmetic import input_tokens, multiply_adds
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import member_heads
from hydractl.checkpoint.layout import member_units
from hydractl.evaluation.timing import TimedSystem, open_timed
from hydractl.exports.graph import to_onnx, trace, without_notes
from hydractl.exports.int8 import quantized
from hydractl.families.load import read_checkpoint
from hydractl.inference import load_to_compute
from hydractl.process import prepare
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads, drop_units
from hydractl.systems.onnx_file import open_onnx

LIBRARIES = ("torch", "transformers", "onnxruntime")
MEMBERS, FEWEST, MOST = 3, 3, 9  # rounds at least and at most
CPU = torch.device("cpu")
KINDS = ("dense", "hydra", "units")
RUNTIMES = ("transformers", "ours", "onnxruntime", "ours bf16", "int8")
FIRST = "dense, ours"  # to which ratios are
BRIEF = 10.0  # seconds that a cell may take for more rounds than the fewest
OPENING = 20.0  # seconds that a network's systems take to load, and a large one's longer
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


@dataclass(frozen=True)
class Network:
    """A network's configuration, and the lengths of text that it is timed at; 0 for images."""

    config: ViTConfig | BertConfig
    lengths: tuple[int, ...] = (0,)

    def save(self, folder: Path) -> None:
        torch.manual_seed(0)
        images = isinstance(self.config, ViTConfig)
        made = ViTForImageClassification if images else BertForSequenceClassification
        made(self.config).save_pretrained(folder)


def vit(width: int, heads: int, **more: int) -> Network:
    sizes = {"hidden_size": width, "num_attention_heads": heads, "intermediate_size": 4 * width, **more}
    return Network(ViTConfig(**sizes, num_labels=10))


SMALL = {"num_hidden_layers": 2}
NETWORKS = {"vit-s": vit(384, 6), "vit-b": vit(768, 12), "bert": Network(BertConfig(), (16, 128, 512))}
QUICK = {
    "vit-s": vit(24, 6, image_size=32, **SMALL),
    "bert": Network(BertConfig(vocab_size=50, hidden_size=24, num_attention_heads=6, **SMALL), (4, 8)),
}


@dataclass(frozen=True)
class Cell:
    """A network at a length of text and a batch size; multiply-adds are of its three kinds together."""

    network: str
    length: int
    batch: int
    multiply_adds: float

    @property
    def name(self) -> str:
        return f"{self.network}{f', {self.length} tokens' if self.length else ''}, batch {self.batch}"


def hydras(dense: Checkpoint) -> dict[str, Checkpoint]:
    """Returns the network and the two Hydras, by kind."""
    tower, heads = dense.spec.towers[0], list(member_heads(dense.heads, 0))
    third, middle = tower.heads // MEMBERS, tower.layers // 2
    gone = [[head for head in heads if head.head // third == member] for member in range(MEMBERS)]
    above = [unit for unit in member_units(dense.layout, dense.spec, 0) if unit.layer >= middle]
    few = [drop_heads(dense, [head for head in some if head.layer >= middle]) for some in gone]

    def units(dropped: int) -> Checkpoint:
        draw = random.Random(0)
        return fuse([drop_units(member, draw.sample(above, dropped)) for member in few])

    # Each unit costs the same.
    whole, half = (cost(units(dropped)) for dropped in (0, len(above) // 2))
    dropped = round((whole - cost(dense)) / (whole - half) * (len(above) // 2))
    return dict(zip(KINDS, (dense, fuse([drop_heads(dense, some) for some in gone]), units(dropped)), strict=True))


def cost(checkpoint: Checkpoint) -> int:
    return multiply_adds(checkpoint.spec, checkpoint.layout)


def graphs(path: Path, checkpoint: Checkpoint) -> tuple[Path, Path]:
    """Returns a network's graphs in float32 and in eight bits, which are made once."""
    files = path.with_suffix(".onnx"), path.with_suffix(".int8.onnx")
    if not files[1].exists():
        print(f"makes {path.name}", flush=True)
        traced = trace(load_to_compute(checkpoint, CPU, torch.float32))
        for file, graph in zip(files, (without_notes(to_onnx(traced)), quantized(traced)), strict=True):
            file.write_bytes(graph.SerializeToString())
    return files


def made(folder: Path, network: Network) -> dict[str, Checkpoint]:
    """Returns a network and its Hydras by kind, whose graphs lie beside its folder."""
    if not (folder / "config.json").exists():
        network.save(folder)
    kinds = hydras(read_checkpoint(str(folder)))
    for kind, checkpoint in kinds.items():
        graphs(folder.with_name(f"{folder.name}-{kind}"), checkpoint)
    return kinds


def open_systems(folder: Path, kinds: Mapping[str, Checkpoint], bf16: bool) -> dict[str, TimedSystem]:
    """Returns a network by every runtime."""
    found: dict[str, TimedSystem] = {}
    for kind, checkpoint in kinds.items():
        plain, int8 = graphs(folder.with_name(f"{folder.name}-{kind}"), checkpoint)
        given = {"ours": [checkpoint], "onnxruntime": open_onnx(plain), "int8": open_onnx(int8)}
        each = open_timed(given, CPU, torch.float32, transformers=kind == "dense")
        if bf16:
            each |= open_timed({"ours bf16": [checkpoint]}, CPU, torch.bfloat16)
        found |= {f"{kind}, {'transformers' if '(' in runtime else runtime}": one for runtime, one in each.items()}
    return found


def time_cell(systems: Mapping[str, TimedSystem], cell: Cell) -> dict[str, Any]:
    """Returns a cell's figures."""
    until = time.perf_counter() + BRIEF
    order, taken = list(systems), {name: list[tuple[float, float]]() for name in systems}
    runs = {name: system.on_noise(cell.batch, cell.length) for name, system in systems.items()}
    for done in range(MOST + 1):  # the first warms up
        if done > FEWEST and time.perf_counter() > until:
            break
        for name in order:
            used, clock = time.process_time(), time.perf_counter()
            runs[name]()
            taken[name].append((time.process_time() - used, time.perf_counter() - clock))
        order = order[1:] + order[:1]  # nobody always follows the same system's caches
    counted = systems[FIRST].weight.multiply_adds
    medians = {name: [1000 * median(column) for column in zip(*rows[1:], strict=True)] for name, rows in taken.items()}
    return {
        "load": os.getloadavg()[0],
        "rounds": len(taken[FIRST]) - 1,
        "processor_ms": {name: used for name, (used, _) in medians.items()},
        "wall_ms": {name: clock for name, (_, clock) in medians.items()},
        "counted": {name: one.weight.multiply_adds / counted for name, one in systems.items()},
    }


def seconds_of(cell: Cell, rate: float) -> float:
    """Returns about what a cell takes: a round is three times the products of its three networks in float32."""
    return max(BRIEF, 3 * (FEWEST + 1) * cell.multiply_adds / rate)


def rate() -> float:
    """Returns the multiply-adds per second of a large product in float32."""
    factor, times = torch.ones(1024, 1024), []
    for _ in range(5):
        begun = time.perf_counter()
        factor @ factor
        times.append(time.perf_counter() - begun)
    return 1024**3 / median(times)


def plan(cells: Sequence[Cell], seconds: float) -> list[Cell]:
    """Returns the cells that fit into some seconds, in their order; prints the others, which are the dearest."""
    fitting, per_second = [], rate()
    for cell in sorted(cells, key=lambda cell: cell.multiply_adds):
        takes = seconds_of(cell, per_second)
        if takes <= seconds:
            fitting.append(cell)
            seconds -= takes
        else:
            print(f"skipped: {cell.name}: takes about {takes / 60:.1f} minutes", flush=True)
    return [cell for cell in cells if cell in fitting]


def markdown(table: Mapping[str, Any]) -> Iterator[str]:
    """Yields a row for each cell and kind: ms of the processor / of the clock (ratio of the former)."""
    yield f"| | rounds, load | | counted | {' | '.join(RUNTIMES)} |"
    yield f"{'|---' * (4 + len(RUNTIMES))}|"
    for cell, found in table["cells"].items():
        used, clock = found["processor_ms"], found["wall_ms"]
        for kind in KINDS:
            names = [f"{kind}, {runtime}" for runtime in RUNTIMES]
            figures = [
                f"{used[one]:.4g} / {clock[one]:.4g} ({used[one] / used[FIRST]:.2f})" if one in used else ""
                for one in names
            ]
            about = (
                f"{cell} | {found['rounds']}, {found['load']:.1f} | {kind} | {found['counted'][f'{kind}, ours']:.2f}"
            )
            yield f"| {about} | {' | '.join(figures)} |"


def environment(asked: argparse.Namespace) -> dict[str, Any]:
    """Returns what figures depend on beside the cells."""
    model = [line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return {
        "processor": model[0], "threads": asked.threads, "switches": AVX2 if asked.avx2 else {},
        **{name: version(name) for name in LIBRARIES},
    }  # fmt: skip


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/runtimes"))
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--lengths", nargs="+", type=int, help="of texts, in tokens; all unless given")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--avx2", action="store_true")
    parser.add_argument("--quick", action="store_true", help="narrow networks of two layers, in a folder of their own")
    return parser.parse_args()


def cells_of(name: str, network: Network, kinds: Mapping[str, Checkpoint], asked: argparse.Namespace) -> list[Cell]:
    counted = sum(map(cost, kinds.values()))
    tokens = input_tokens(kinds["dense"].spec)  # that are counted
    return [
        Cell(name, length, batch, batch * counted * (length / tokens if length else 1))
        for length in network.lengths
        if not length or asked.lengths is None or length in asked.lengths
        for batch in asked.batches
    ]


def open_table(file: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the table so far, or a new one."""
    if not file.exists():
        return {"environment": about, "cells": {}}
    found: dict[str, Any] = json.loads(file.read_text())
    if found["environment"] != about:
        raise SystemExit(f"{file}: holds figures of another environment: name another folder")
    return found


def main() -> None:
    begun, asked = time.perf_counter(), read_arguments()
    if asked.avx2 and any(os.environ.get(name) != value for name, value in AVX2.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **AVX2})  # libraries read it as they load
    prepare()
    disable_progress_bar()
    torch.set_num_threads(asked.threads)
    folder, networks = (asked.folder / "quick", QUICK) if asked.quick else (asked.folder, NETWORKS)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"table{'-avx2' if asked.avx2 else ''}.json"
    table = open_table(file, environment(asked))
    kinds = {name: made(folder / name, networks[name]) for name in asked.networks if name in networks}
    cells = [cell for name in kinds for cell in cells_of(name, networks[name], kinds[name], asked)]
    left = [cell for cell in cells if cell.name not in table["cells"]]
    seconds = 60 * asked.minutes - (time.perf_counter() - begun) - OPENING * len(kinds)
    for name, group in groupby(plan(left, seconds), lambda cell: cell.network):
        systems = open_systems(folder / name, kinds[name], bf16=not asked.avx2)
        for cell in group:
            print(f"times {cell.name}", flush=True)
            table["cells"][cell.name] = time_cell(systems, cell)
            file.write_text(json.dumps(table, indent=1))
    file.with_suffix(".md").write_text("\n".join([*markdown(table), ""]))
    print("\n".join(markdown(table)), f"{(time.perf_counter() - begun) / 60:.1f} minutes", sep="\n")


if __name__ == "__main__":
    main()
