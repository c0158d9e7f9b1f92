"""Splits a labelled data set into two at random: what a circuit search may see, and what is left to evaluate on.

    python split_data.py SOURCE SPLIT SEARCH_SAMPLES OUT      # writes OUT/search.parquet and OUT/evaluate.parquet

Data sets often come sorted by class, so the first N samples would be a search on one or two classes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from datasets import Dataset, load_dataset
from datasets.table import embed_table_storage


def split(source: str, name: str, search_samples: int, out: Path) -> None:
    """Writes the two parts, the same on every machine."""
    shuffled = load_dataset(source, split=name).shuffle(seed=0)
    out.mkdir(parents=True, exist_ok=True)
    write(shuffled.select(range(search_samples)), out / "search.parquet")
    write(shuffled.select(range(search_samples, len(shuffled))), out / "evaluate.parquet")


def write(part: Dataset, path: Path) -> None:
    """Writes a part with its images inside: a table that names files elsewhere is not read."""
    part.with_format("arrow").map(embed_table_storage, batched=True).with_format(None).to_parquet(path)


if __name__ == "__main__":
    split(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
