"""torch.export: a graph that torch alone loads and runs, or compiles ahead of time."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from hydractl.checkpoint.atomic import write_atomically
from hydractl.formats.graph import Inputs, Traced, require_same_answers
from hydractl.model.hydra import Hydra


def write_torch_export(traced: Traced, path: Path, force: bool = False) -> None:
    """Writes one `.pt2` file, its manifest beside the graph as an extra file.

    Raises:
        OutputError: the file exists and `force` is not set, or the disk refuses it.
    """
    with write_atomically(path, force) as file:
        torch.export.save(traced.program, file, extra_files=dict(traced.metadata))


def check_torch_export(path: Path, model: Hydra) -> float:
    """The largest difference between the loaded graph's probabilities and the model's.

    Raises:
        OutputError: the difference is larger than the precision explains.
    """
    graph = torch.export.load(path).module()

    def run(inputs: Inputs) -> Tensor:
        return graph(**inputs)[0]

    return require_same_answers(str(path), model, run)
