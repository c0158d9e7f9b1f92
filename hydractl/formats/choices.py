"""The formats that a model is written in for other runtimes: what there is to choose from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.errors import OptionError
from hydractl.optional import require

if TYPE_CHECKING:
    import torch

    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.model.hydra import Hydra


@dataclass(frozen=True)
class Request:
    """What is written, and what the options of its format say.

    Attributes:
        report: of `hydractl evaluate`, for a model card.
        dtype: the stored one where left out.
        classes: of a zero-shot model; they become part of a graph.
        template: of its prompts.
    """

    checkpoint: Checkpoint
    output: Path
    force: bool = False
    report: Mapping[str, Any] | None = None
    dtype: torch.dtype | None = None
    classes: tuple[str, ...] | None = None
    template: str = ""
    check: bool = False


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
        suffix: by which its files are known; none of a folder.
        takes: the options that count with it.
        write: writes it; where it was checked, the largest difference between its probabilities and the model's.
    """

    name: str
    help: str
    takes: tuple[str, ...]
    write: Callable[[Request], float | None]
    suffix: str = ""


def _hf(request: Request) -> None:
    from hydractl.checkpoint.folders import write_folder
    from hydractl.formats.folder import write_hydra
    from hydractl.formats.stock import write_stock

    single = request.checkpoint.members == 1
    if single and request.report is not None:
        raise OptionError("`report` is for the model card of several members, a stock folder has none: leave it out")
    with write_folder(request.output, "export", request.force) as folder:
        if single:
            write_stock(request.checkpoint, folder)
        else:
            write_hydra(request.checkpoint, folder, request.report)


def _peft(request: Request) -> None:
    from hydractl.checkpoint.folders import write_folder
    from hydractl.formats.peft import write_adapters

    with write_folder(request.output, "export", request.force) as folder:
        write_adapters(request.checkpoint, folder)


def _onnx(request: Request) -> float | None:
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.formats.graph import trace
    from hydractl.formats.onnx import check_onnx, require_checkable, write_onnx

    require("onnx", "onnxscript", *(["onnxruntime"] if request.check else []))
    refuse_existing(request.output, request.force)
    model = _model(request)
    if request.check:
        require_checkable(model)
    write_onnx(trace(model), request.output, request.force)
    return check_onnx(request.output, model) if request.check else None


def _torch_export(request: Request) -> float | None:
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.formats.graph import trace
    from hydractl.formats.torch_export import check_torch_export, write_torch_export

    refuse_existing(request.output, request.force)
    model = _model(request)
    write_torch_export(trace(model), request.output, request.force)
    return check_torch_export(request.output, model) if request.check else None


def _model(request: Request) -> Hydra:
    from hydractl.inference import load_checkpoint

    model = load_checkpoint(request.checkpoint, dtype=request.dtype)
    if request.classes is not None:
        model.set_classes(request.classes, request.template)
    return model


GRAPH_OPTIONS = ("check", "classes", "template", "dtype")
FORMATS = (
    Format("hf", "a folder for transformers, timm or OpenCLIP", ("report",), _hf),
    Format("peft", "a folder of a LoRA-Ensemble's network and an adapter for each member", (), _peft, ".peft"),
    Format("onnx", "one graph for onnxruntime and others", GRAPH_OPTIONS, _onnx, ".onnx"),
    Format("torch-export", "one graph for torch alone", GRAPH_OPTIONS, _torch_export, ".pt2"),
)


def format_called(name: str) -> Format:
    """The format of a name, which is one of `FORMATS`."""
    return next(each for each in FORMATS if each.name == name)


def format_of(output: Path) -> Format:
    """The format that the name of an output ends in; without an ending a folder.

    Raises:
        OptionError: no format ends so.
    """
    found = next((each for each in FORMATS if each.suffix == output.suffix.lower()), None)
    if found is None:
        endings = ", ".join(f"{each.suffix or 'none'} is {each.name}" for each in FORMATS)
        raise OptionError(f"`format` is missing, and {output} does not end in one ({endings}): name it")
    return found


def taking(option: str) -> tuple[str, ...]:
    """The names of the formats that have an option."""
    return tuple(each.name for each in FORMATS if option in each.takes)
