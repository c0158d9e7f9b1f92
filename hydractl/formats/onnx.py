"""ONNX: a graph that onnxruntime and others run without this project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hydractl.checkpoint.atomic import write_atomically
from hydractl.errors import OptionError, OutputError
from hydractl.formats.graph import OUTPUTS, Inputs, Traced, require_same_answers
from hydractl.model.hydra import Hydra

LARGEST = 2 * 2**30  # a protocol buffer holds no more


def write_onnx(traced: Traced, path: Path, force: bool = False) -> None:
    """Writes one self-contained ONNX file, its manifest among the metadata.

    Raises:
        OptionError: the onnx extra is not installed.
        OutputError: the file exists and `force` is not set, or the model is larger than the format allows.
    """
    program = _convert(traced)
    model = program.model_proto
    for key, value in traced.metadata.items():
        model.metadata_props.add(key=key, value=value)
    if (size := model.ByteSize()) >= LARGEST:
        raise OutputError(f"{path}: {size / 1e9:.1f} GB, an ONNX file holds 2: export with `dtype` float16")
    with write_atomically(path, force) as file:
        file.write(model.SerializeToString())


def require_checkable(model: Hydra) -> None:
    """Tells before a file is written that it could not be checked.

    Raises:
        OptionError: the model is in bfloat16.
    """
    if next(model.parameters()).dtype == torch.bfloat16:
        raise OptionError("`check`: onnxruntime computes no bfloat16 on a CPU: leave it out, or add `dtype` float32")


def check_onnx(path: Path, model: Hydra) -> float:
    """The largest difference between onnxruntime's probabilities and the model's.

    Raises:
        OutputError: the difference is larger than the precision explains.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(inputs: Inputs) -> Tensor:
        arrays = {name: tensor.cpu().numpy() for name, tensor in inputs.items()}
        return torch.from_numpy(session.run(["probabilities"], arrays)[0])

    return require_same_answers(str(path), model.cpu(), run)


def _convert(traced: Traced) -> Any:
    return torch.onnx.export(
        traced.program, input_names=list(traced.names), output_names=list(OUTPUTS), dynamo=True, verbose=False
    )
