"""Models that users name, by path or by value: the options for them, and how they are found, loaded and written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.checkpoint.contents import Checkpoint
from hydractl.drawing import check_picture, write_picture
from hydractl.errors import OptionError
from hydractl.options import Declared, Option, option
from hydractl.run_options import Compute, DeviceLike, DtypeLike, Force, choose_device, choose_dtype

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hydractl.data.reading import Reading
    from hydractl.model.hydra import Hydra
    from hydractl.systems.onnx import OnnxModel

ModelLike = Any  #: a path or a hub id, a `Hydra`, a `Checkpoint`, or the result of a step that made a model

Model = Annotated[
    ModelLike,
    Option(
        "A file of hydractl, a folder of transformers, timm or OpenCLIP, or a hub id.",
        "Model",
        "MODEL",
        positional=True,
        remembered=False,
    ),
]


@dataclass(frozen=True)
class PlotOptions:
    """The picture of a result and whether to replace an old one."""

    plot: str | Path | None = option(
        None, "Draw the result too; .svg and .pdf also work.", "Output", "FILE.png", remembered=False
    )
    force: Force = False

    def check(self) -> None:
        """Raises OutputError or OptionError if the picture cannot be written; call it before long work starts."""
        if self.plot is not None:
            check_picture(Path(self.plot), self.force)

    def write(self, draw: Callable[[], Figure]) -> None:
        """Draws and writes the picture, if one is wanted."""
        if self.plot is not None:
            write_picture(draw(), Path(self.plot), self.force)


def as_checkpoint(model: ModelLike, without_classifier: bool = False) -> Checkpoint:
    """Returns the checkpoint of a model; tensors of a model named by a path stay on disk.

    Args:
        model: a reference as the command line takes it, a loaded model, a checkpoint, or the result of a step.
        without_classifier: also read a network without a classifier, to train a new one.

    Raises:
        CheckpointError: no such model, or one that hydractl does not read.
        OptionError: not a model.
    """
    if isinstance(model, str | Path):
        from hydractl.families.load import read_checkpoint

        return read_checkpoint(model, without_classifier)
    from hydractl.model.hydra import Hydra, to_checkpoint

    checkpoint = to_checkpoint(model) if isinstance(model, Hydra) else getattr(model, "checkpoint", model)
    if not isinstance(checkpoint, Checkpoint):
        raise OptionError(
            f"expected a model (a path, or what hydractl.load returns), got {type(checkpoint).__name__}: open one of "
            "transformers by hydractl.load(model, processor)"
        )
    return checkpoint


def as_several(models: ModelLike | Sequence[ModelLike]) -> Sequence[ModelLike]:
    """Returns models that were given one by one or together."""
    return [models] if isinstance(models, str) or not isinstance(models, Sequence) else models


def as_member(model: ModelLike) -> Checkpoint:
    """Returns the checkpoint of a model of one member; see `as_checkpoint`.

    Raises:
        OptionError: it has several.
    """
    checkpoint = as_checkpoint(model)
    if checkpoint.members > 1:
        raise OptionError(f"{checkpoint.name}: has {checkpoint.members} members: name one network")
    return checkpoint


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
        return model
    if is_onnx(model):
        from hydractl.systems.onnx import start_onnx

        device = None if compute.device in ("auto", "cpu") else compute.device
        for name, value in {"classes": reading.classes, "dtype": compute.dtype, "device": device}.items():
            if value is not None:
                raise OptionError(f"`{name}`: an ONNX file runs on a CPU in its exported precision: leave it out")
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
    from hydractl.checkpoint.manifest import write

    write(as_checkpoint(model), path, force)
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


def check_places(options: Iterable[Declared], values: Mapping[str, Any]) -> None:
    """Checks that the models and the data of a command line lie where it says.

    Raises:
        CheckpointError: there is no such model, here or on the hub.
        DataError: there are no such data here, and the name is no id of the hub; or no such file of classes.
        OptionError: a model and data stand in each other's place.
    """
    from hydractl.checkpoint.disk import holds_weights
    from hydractl.data.labels import read_classes
    from hydractl.data.reading import parse_data_spec, require_on_hub
    from hydractl.families.load import located

    models, sources, places = list[str](), list[str](), list[str]()
    for each in options:
        texts, metavar = _texts(values.get(each.name)), each.option.metavar or ""
        if metavar in ("MODEL", "MODEL..."):
            models += texts
        elif metavar.startswith("[NAME=]") and metavar.endswith("..."):
            models += [text for text in texts if os.path.exists(text) or not re.search("[=+:]", text)]
        elif each.name == "classes":
            for text in texts:
                read_classes(text)
        elif each.name == "inputs":
            places += texts
        elif metavar.endswith("SOURCE[:SPLIT]") and "SEVERITY" not in metavar:
            # A list with commas is of several tasks, which a search divides.
            sources += [parse_data_spec(text, "near/" in metavar).source for text in texts if "," not in text]
    model_as_data = next((place for place in (*sources, *places) if holds_weights(Path(place))), None)
    for model in models:
        if not holds_weights(located(model)) and model_as_data is not None:
            raise OptionError(f"{model} is not a model, but {model_as_data}, given as data, is one: swap them")
    for source in sources:
        if not os.path.exists(source):
            require_on_hub(source)


def _texts(value: Any) -> Sequence[str]:
    values = value if isinstance(value, list | tuple) else [value]
    return [text for text in values if isinstance(text, str) and text]
