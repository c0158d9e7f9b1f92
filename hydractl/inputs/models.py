"""Models in memory: loading one from wherever it is, and writing it as one file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hydractl.errors import OptionError
from hydractl.families.load import write_checkpoint
from hydractl.inputs.arguments import ModelLike, as_checkpoint
from hydractl.run_options import Compute, DeviceLike, DtypeLike, choose_device, choose_dtype

if TYPE_CHECKING:
    from hydractl.data.reading import Reading
    from hydractl.model.hydra import Hydra
    from hydractl.systems.onnx import OnnxModel


def load(
    model: ModelLike, processor: Any = None, *, device: DeviceLike = "cpu", dtype: DtypeLike | None = None
) -> Hydra:
    """Loads a model in eval mode with its preprocessing.

    >>> hydractl.load("hydra").members
    2

    Args:
        model: a file of hydractl, a folder of transformers, timm or OpenCLIP, a hub id, the result of a step, or a
            model of transformers in memory.
        processor: the image processor or tokenizer of a model in memory.
        device: where to put it; `auto` takes a GPU if there is one.
        dtype: of the weights. Default: the stored one; on a CPU float32 where that is half precision, which `save`
            narrows again.

    Raises:
        CheckpointError: no such model, a damaged one, or an unsupported architecture.
        OptionError: no such device or dtype, or a processor for a model that brings its own.
    """
    from hydractl.inference import load_to_compute

    if processor is not None and not hasattr(model, "save_pretrained"):
        raise OptionError("`processor` is for a model of transformers in memory: leave it out")
    with TemporaryDirectory() as folder:
        if hasattr(model, "save_pretrained"):
            for part in (model, processor):
                if part is not None:
                    part.save_pretrained(folder)
            model = replace(as_checkpoint(folder), name=type(model).__name__)
        return load_to_compute(as_checkpoint(model), choose_device(device), choose_dtype(dtype))


def predictor(model: ModelLike, compute: Compute, reading: Reading) -> Hydra | OnnxModel:
    """Returns a model that predicts, with its classes: laid out for fast inference, or an ONNX file with its graph.

    Raises:
        CheckpointError: it cannot be read.
        OptionError: see `running`; or options that a graph does not have.
    """
    from hydractl.data.labels import name_classes
    from hydractl.systems.onnx_file import OnnxGraph, is_onnx, open_onnx

    if isinstance(getattr(model, "graph", None), OnnxGraph):
        started: OnnxModel = model
        return started
    if is_onnx(model):
        from hydractl.systems.onnx import start_onnx

        device = None if compute.device in ("auto", "cpu") else compute.device
        for name, value in {"classes": reading.classes, "dtype": compute.dtype, "device": device}.items():
            if value is not None:
                raise OptionError(f"`{name}`: an ONNX file runs on a CPU, as it was exported: leave it out")
        return start_onnx(open_onnx(model))
    hydra = running(model, compute)
    if hydra is model and reading.classes is not None:
        raise OptionError("`classes` would change the loaded model: call its set_classes instead")
    name_classes(hydra, reading.classes, reading.template)
    return hydra


def save(model: ModelLike, path: str | Path, force: bool = False) -> Path:
    """Writes a model as one self-contained file, and returns its path.

    >>> hydractl.save(hydractl.load("hydra"), "copy.safetensors").name
    'copy.safetensors'

    Raises:
        OutputError: the file exists and `force` is not set, or the disk refuses it.
    """
    write_checkpoint(as_checkpoint(model), path, force)
    return Path(path)


def running(model: ModelLike, compute: Compute) -> Hydra:
    """Returns a model laid out for fast inference; a loaded model stays as it is, on its device.

    Raises:
        CheckpointError: it cannot be read.
        OptionError: no such device or dtype, or either given with a loaded model.
    """
    from hydractl.inference import load_to_compute
    from hydractl.model.hydra import Hydra

    if isinstance(model, Hydra):
        if compute.device != "auto" or compute.dtype is not None:
            raise OptionError("`device` and `dtype` have no effect on a loaded model: give them to hydractl.load")
        return model
    return load_to_compute(as_checkpoint(model), compute.torch_device, compute.torch_dtype).optimize_for_inference()
