"""A model as one traced graph, in ONNX for other runtimes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from hydractl.checkpoint.manifest import to_metadata
from hydractl.checkpoint.output import write_atomically
from hydractl.checkpoint.tower_spec import TextEmbeddings
from hydractl.data.preprocess import as_opened
from hydractl.errors import OutputError
from hydractl.model.hydra import Hydra, to_checkpoint
from hydractl.ood.score import QUANTILES
from hydractl.systems.cost import cost, synthetic_inputs
from hydractl.systems.onnx import FEATURES, HIDDEN
from hydractl.systems.onnx_file import output_names

if TYPE_CHECKING:
    from onnx import ModelProto

#: How far a runtime's probabilities may be from the model's, by the model's precision.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 0.03, torch.float16: 0.005}

REPORT = "report it with the versions of torch and onnx"
LARGEST_ONNX = 2 * 2**30  # a protocol buffer holds no more

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Traced:
    """A traced model, the names of its inputs and outputs in order, and the metadata for its file."""

    program: ExportedProgram
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    metadata: Mapping[str, str]


class _TensorModel(nn.Module):
    """A model as a function from tensors to tensors: those that its graph gives, or what its fits read."""

    def __init__(self, model: Hydra, fitting: bool) -> None:
        super().__init__()
        self.model, self.fitting, self.outputs = model, fitting, graph_outputs(model)

    def forward(
        self,
        pixel_values: Tensor | None = None,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        output = self.model(
            pixel_values=pixel_values,
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            every_layer=self.fitting,
        )
        others = (getattr(output, name) for name in self.outputs[1:])
        read_by_fits = (output.member_logits, output.features, *output.hidden)
        return tuple(map(_wide, read_by_fits if self.fitting else (output.probabilities, *others)))


def _wide(tensor: Tensor) -> Tensor:
    """Returns a tensor in float32 at least, which a graph takes and gives also where it computes in half precision."""
    if tensor.dtype == torch.bool:
        return tensor
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def graph_outputs(model: Hydra) -> tuple[str, ...]:
    """Returns the names of a graph's outputs, in order."""
    return output_names(model.spec, model.calibration)


def trace(model: Hydra, fitting: bool = False) -> Traced:
    """Returns the model as a graph from inputs to `probabilities` `[B,C]` and `member_logits` `[M,B,C]`.

    A model that embeds gives an `embedding` `[B,P]` in place of probabilities.
    A model that promises sets adds `sets` `[B,C]`, booleans.
    A calibrated model adds `ood_score` and `typicality`, both `[B]`, and for a score of all layers `profile` `[B,L]`.

    Batch and, for texts, length stay open.

    Args:
        fitting: give what `calibrate` reads instead: `member_logits`, `features` and each layer, `hidden.0` and so on.

    Raises:
        OptionError: a zero-shot model has no classes yet; they become part of the graph.
    """
    model.task.require_classes(model.class_embeddings)
    model.optimize_for_inference()
    inputs = example_inputs(model, batch=2, tokens=4)
    with torch.no_grad():
        network = _TensorModel(model, fitting).eval()
        program = torch.export.export(network, (), inputs, dynamic_shapes=_open_sizes(model, inputs))
        outputs = network.outputs
        if fitting:
            hidden = model(**inputs, every_layer=True).hidden
            outputs = ("member_logits", FEATURES, *(f"{HIDDEN}{layer}" for layer in range(len(hidden))))
    return Traced(program, tuple(inputs), outputs, _metadata(model, outputs))


def _metadata(model: Hydra, outputs: tuple[str, ...]) -> dict[str, str]:
    """Returns what a program needs beside the graph: the manifest, and what it says only of a file with tensors."""
    # Classes of a zero-shot model may have taken its score away.
    checkpoint = replace(to_checkpoint(model), calibration=model.calibration)
    checkpoint = replace(checkpoint, preprocessing=as_opened(checkpoint))
    metadata = {**to_metadata(checkpoint), "outputs": ", ".join(outputs), "cost": json.dumps(asdict(cost(model)))}
    metadata["precision"] = str(next(model.parameters()).dtype).removeprefix("torch.")
    if model.labels is not None:
        metadata["labels"] = json.dumps(model.labels)
    if model.ood_head is not None:
        metadata[QUANTILES] = json.dumps(model.ood_head.get_buffer(QUANTILES).tolist())
    return metadata


def example_inputs(model: Hydra, batch: int, tokens: int, seed: int = 0) -> Inputs:
    """Returns random inputs by name; the last text of several is padded by a token."""
    device = next(model.parameters()).device
    inputs = synthetic_inputs(model.spec, batch, device, tokens=tokens, seed=seed)
    embeddings = model.spec.towers[0].embeddings
    if not isinstance(embeddings, TextEmbeddings):
        wide = torch.promote_types(next(model.parameters()).dtype, torch.float32)
        return {"pixel_values": inputs["pixel_values"].to(wide)}
    mask = torch.ones_like(inputs["input_ids"])
    mask[1:, -1] = 0
    inputs["attention_mask"] = mask
    if embeddings.token_types:
        inputs["token_type_ids"] = (torch.arange(tokens, device=device) > tokens // 2).long().repeat(batch, 1)
        inputs["token_type_ids"] %= embeddings.token_types
    return inputs


def require_same_answers(path: str, model: Hydra, run: Callable[[Inputs], Tensor]) -> float:
    """Returns the largest difference between a runtime's answers and the model's, over batches of several sizes.

    It is absolute for probabilities, and relative for numbers beyond 1.

    Args:
        run: the exported model, inputs to probabilities.

    Raises:
        OutputError: the difference is larger than the precision explains.
    """
    worst = 0.0
    for seed, (batch, tokens) in enumerate([(1, 3), (3, 4), (5, 9)]):
        inputs = example_inputs(model, batch, min(tokens, _longest(model)), seed)
        with torch.inference_mode():
            expected = model(**inputs).probabilities
        worst = max(worst, float(((run(inputs) - expected).abs() / expected.abs().clamp(min=1)).max()))
    tolerance = TOLERANCES[next(model.parameters()).dtype]
    if not worst <= tolerance:
        problem = f"answers differ from the model's by {worst:.2g}, at most {tolerance:g} is rounding"
        raise OutputError(f"{path}: not written, its {problem}: {REPORT}")
    return worst


def _open_sizes(model: Hydra, inputs: Inputs) -> dict[str, dict[int, Dim]]:
    batch = Dim("batch", min=1)
    if "pixel_values" in inputs:
        return {"pixel_values": {0: batch}}
    tokens = Dim("tokens", min=2, max=_longest(model))
    return {name: {0: batch, 1: tokens} for name in inputs}


def _longest(model: Hydra) -> int:
    embeddings = model.spec.towers[0].embeddings
    return embeddings.max_tokens if isinstance(embeddings, TextEmbeddings) else embeddings.tokens


def write_onnx(model: Hydra, path: Path, force: bool = False) -> float | None:
    """Writes one self-contained ONNX file, its manifest among the metadata, if it answers as the model.

    Returns the largest difference between onnxruntime's probabilities and the model's; None in bfloat16, which
    onnxruntime does not compute on a CPU.

    Raises:
        OptionError: the onnx extra is not installed; or see `trace`.
        OutputError: the file exists and `force` is not set, the model is larger than the format allows, or the file
            does not run or answers otherwise.
    """
    proto = without_notes(to_onnx(trace(model)))
    if (size := proto.ByteSize()) >= LARGEST_ONNX:
        raise OutputError(f"{path}: {size / 1e9:.1f} GB, an ONNX file holds 2: export with `dtype` float16")
    with write_atomically(path, force) as file:
        file.write(proto.SerializeToString())
        file.flush()
        if next(model.parameters()).dtype == torch.bfloat16:
            return None
        with _running(path):
            return require_same_answers(str(path), model, _onnx_runner(file.name))


def to_onnx(traced: Traced) -> ModelProto:
    """Returns a traced model as ONNX."""
    names: dict[str, Any] = {"input_names": list(traced.names), "output_names": list(traced.outputs)}
    with _without_remarks():
        program: Any = torch.onnx.export(traced.program, **names, dynamo=True, verbose=False)
    values = (value for node in program.model.graph for value in node.outputs if not value.is_graph_output())
    for value in values:
        if value.name in traced.outputs:  # as that of a table of embeddings, whose operator gives it its name
            value.name = f"{value.name}_inside"
    proto: ModelProto = program.model_proto
    for key, value in traced.metadata.items():
        proto.metadata_props.add(key=key, value=value)
    return proto


def without_notes(proto: ModelProto) -> ModelProto:
    """Returns a graph without the converter's notes on its parts, which name files of this machine."""
    graph = proto.graph
    for part in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    return proto


def _onnx_runner(file: str) -> Callable[[Inputs], Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])

    def run(inputs: Inputs) -> Tensor:
        arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
        return torch.from_numpy(session.run(None, arrays)[0])

    return run


@contextmanager
def _without_remarks() -> Iterator[None]:
    """Silences what the converter logs about its own work, such as constants that it does not fold."""
    logger = logging.getLogger("onnxscript")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _running(path: Path) -> Iterator[None]:
    """Turns any error of a runtime into one that names the file."""
    try:
        yield
    except OutputError:
        raise
    except Exception as error:
        raise OutputError(f"{path}: not written, its graph does not run ({error}): {REPORT}") from error
