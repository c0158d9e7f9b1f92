"""Predictions in a folder, as `hydractl evaluate NAME=predictions:FOLDER` reads them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from hydractl.data.labels import match_labels
from hydractl.data.open import open_samples
from hydractl.data.reading import Reading, parse_data
from hydractl.data.samples import Samples
from hydractl.systems.system import Cost

Answers = Callable[[Samples], Mapping[str, Tensor]]


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Adds the data that predictions are made on, written as for `hydractl evaluate`."""
    parser.add_argument("--id", required=True, metavar="SOURCE")
    parser.add_argument("--ood", nargs="*", default=[], metavar="[near/|far/][NAME=]SOURCE")
    parser.add_argument("--limit", type=int)


def save_predictions(
    folder: Path, options: argparse.Namespace, labels: list[str], cost: Cost | Mapping[str, int], answers: Answers
) -> None:
    """Writes what a system answers to the ID set and to each OOD set.

    Args:
        labels: names of the classes, in the order of the logits.
        answers: returns `logits` `[M,N,C]`, or `confidence` `[N]` as well, for samples.
    """
    inside = match_labels(open_samples(options.id, "image", Reading(limit=options.limit)), labels, "name")
    assert inside.labels is not None
    folder.mkdir(parents=True, exist_ok=True)
    save_file({**answers(inside), "labels": torch.from_numpy(inside.labels)}, folder / "id.safetensors")
    for place, samples in ood_sets(options.ood, options.limit):
        path = folder / f"{place}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(dict(answers(samples)), path)
    counted: Any = asdict(cost) if isinstance(cost, Cost) else cost
    about = {"format": "hydractl-predictions", "version": 1, "labels": labels, "cost": counted}
    (folder / "predictions.json").write_text(json.dumps(about))


def ood_sets(sources: list[str], limit: int | None) -> Iterator[tuple[str, Samples]]:
    """Yields the OOD sets with their places in a folder of predictions."""
    for source in sources:
        group, slash, rest = source.partition("/")
        grouped = slash and group in ("near", "far")
        samples = open_samples(parse_data(rest if grouped else source), "image", Reading(limit=limit))
        yield f"ood/{group + '/' if grouped else ''}{samples.name}", samples


def batches(samples: Samples, size: int) -> Iterator[list[Any]]:
    """Yields raw inputs, so many at once."""
    for start in range(0, len(samples), size):
        yield [samples.inputs[place] for place in range(start, min(start + size, len(samples)))]
