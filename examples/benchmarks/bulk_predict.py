"""Measures `hydractl.predict` with `output` over many rows: time, processors, memory, and what reading takes of it.

    python bulk_predict.py MODEL [--rows 10000 100000] [--workers 0 1 2]

MODEL reads images. Makes tables of random PNG images of its size in a temporary folder, predicts each in a process of
its own, and prints a Markdown table. Processor seconds are those of the process with the network, and of its readers;
they mean the same on a busy machine, seconds do not. Memory is the largest that each process had. Linux and macOS.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import datasets
import numpy as np
from PIL import Image

import hydractl

DIFFERENT = 500
MEASURE = "--measure"
KILO = 1 if sys.platform == "darwin" else 1024


def make_table(model: hydractl.Hydra, rows: int, file: Path) -> None:
    """Writes a table of images, of which some hundred differ."""
    embeddings, random = model.spec.towers[0].embeddings, np.random.default_rng(0)
    shape = (*embeddings.image_size, *((3,) if embeddings.channels == 3 else ()))
    encoded = []
    for _ in range(min(rows, DIFFERENT)):
        out = BytesIO()
        Image.fromarray(random.integers(0, 256, shape, np.uint8)).save(out, "PNG")
        encoded.append({"bytes": out.getvalue(), "path": None})
    column = [encoded[at % len(encoded)] for at in range(rows)]
    features = datasets.Features({"image": datasets.Image()})
    datasets.Dataset.from_dict({"image": column}, features=features).to_parquet(file)


def measure(model: str, table: Path, workers: int) -> None:
    """Predicts a small table, which loads all that is needed, then the table, and prints what that took."""
    network = hydractl.load(model)
    hydractl.predict(network, str(table.with_name("few.parquet")), output=table.with_name("few.csv"), workers=0)
    used, start = time.process_time(), time.perf_counter()
    hydractl.predict(network, str(table), output=table.with_suffix(f".{workers}.csv"), workers=workers)
    took, used = time.perf_counter() - start, time.process_time() - used
    readers = resource.getrusage(resource.RUSAGE_CHILDREN)
    peaks = [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, readers.ru_maxrss]
    print(took, used, readers.ru_utime + readers.ru_stime, *(peak * KILO / 1e6 for peak in peaks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rows", nargs="*", type=int, default=[10_000, 100_000])
    parser.add_argument("--workers", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument(MEASURE, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(given.model, Path(given.measure[0]), int(given.measure[1]))
        return
    print("| rows | workers | s | processor s, network | readers | cores | peak MB, network | a reader |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    with TemporaryDirectory() as folder:
        for rows in given.rows:
            make_table(model := hydractl.load(given.model), 100, Path(folder) / "few.parquet")
            make_table(model, rows, table := Path(folder) / f"{rows}.parquet")
            for workers in given.workers:
                command = [sys.executable, __file__, given.model, MEASURE, str(table), str(workers)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                (Path(folder) / "few.csv").unlink()
                took, network, readers, peak, reader = map(float, done.stdout.split())
                times = f"{took:.1f} | {network:.1f} | {readers:.1f} | {(network + readers) / took:.2f}"
                print(f"| {rows:,} | {workers} | {times} | {peak:.0f} | {reader if workers else 0:.0f} |", flush=True)


if __name__ == "__main__":
    main()
