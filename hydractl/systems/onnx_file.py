"""ONNX files that `export` wrote, looked through before any part of them runs, and run without torch.

A file may come from a stranger. It is read once, checked whole, and the bytes that were checked are those that run: one
graph of ONNX's own operators with its numbers inside, the inputs of its network, and metadata of one strict form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from hydractl.checkpoint.calibration import Calibration
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.manifest import KEY, described
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import ImageEmbeddings
from hydractl.errors import CheckpointError, require
from hydractl.ood.ood_scores import OOD_SCORES, find_ood_score
from hydractl.ood.score import QUANTILES
from hydractl.schema import Checked, Items, Origin, Schema, document, parse_json, read_limited
from hydractl.systems.system import Cost
from hydractl.tasks.all_tasks import find_task

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

SUFFIX = ".onnx"
LARGEST = 2**31  # bytes; a protocol buffer holds no more
OWN_DOMAINS = ("", "ai.onnx")
#: The kinds of numbers, as ONNX numbers them, that images and texts come as.
FLOATS, WHOLE = {1: np.float32, 11: np.float64}, {7: np.int64}

Arrays = dict[str, NDArray[Any]]


class _Beside(Schema, extra="ignore"):
    """The metadata beside the manifest; other programs may add their own."""

    outputs: str
    cost: Cost
    precision: Annotated[str, Checked(pattern="^(float|bfloat|int)[0-9]{1,2}$")]
    labels: Items[Annotated[str, Checked(max_length=10**4)]] | None = None
    quantiles: Items[float] = field(default=())


@dataclass(frozen=True, eq=False)
class OnnxFile:
    """A file that was found to be one of ours.

    Attributes:
        name: its path.
        checkpoint: the network it holds, without tensors; the labels of a zero-shot model are those of its graph.
        inputs: the kind of numbers of each input.
        outputs: the names of its outputs.
        precision: what its products compute in, such as float32 or int8.
        quantiles: OOD scores of calibration samples, ascending; empty without a score.
        opset: the version of ONNX's operators.
        size: bytes.
        sha256: of its bytes.
    """

    name: str
    checkpoint: Checkpoint
    inputs: Mapping[str, type]
    outputs: Sequence[str]
    cost: Cost
    precision: str
    quantiles: Sequence[float]
    opset: int
    size: int
    sha256: str

    @property
    def texts(self) -> bool:
        """True if it reads texts."""
        return self.checkpoint.spec.modality == "text"

    def start(self, threads: int = 0) -> OnnxGraph:
        """Returns its graph with the weights in memory, ready to run.

        Args:
            threads: that a pass runs on; 0 for one per core.

        Raises:
            CheckpointError: it has changed, or the runtime refuses it.
        """
        origin = _origin(self.name)
        content = read_limited(self.name, origin, LARGEST)
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise origin.refusal("has changed while it was used", "run the command again")
        try:
            session = _session(content, threads)
        except Exception as error:  # it raises errors of its own and RuntimeError
            raise origin.refusal(f"its graph does not load ({error})") from error
        return OnnxGraph(self, session)


def _session(content: bytes, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # what it finds wrong comes as an error
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True, eq=False)
class OnnxGraph:
    """The graph of a file in memory."""

    file: OnnxFile
    session: Any

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        """Returns the outputs by name for preprocessed inputs; a mask that is missing lets every token count.

        Raises:
            CheckpointError: the graph fails on them.
        """
        feeds = {name: _as_input(name, kind, inputs) for name, kind in self.file.inputs.items()}
        try:
            values = self.session.run(list(self.file.outputs), feeds)
        except Exception as error:
            raise _origin(self.file.name).refusal(f"its graph does not run ({error})") from error
        return dict(zip(self.file.outputs, values, strict=True))


def _as_input(name: str, kind: type, inputs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    if name in inputs:
        return np.ascontiguousarray(inputs[name], kind)
    return np.full(inputs["input_ids"].shape, int(name == "attention_mask"), kind)


def _origin(path: str | Path) -> Origin:
    return Origin(str(path), CheckpointError, "export it again with hydractl")


def is_onnx(model: object) -> bool:
    """Returns whether a model is named by a path to an ONNX file."""
    return isinstance(model, str | Path) and Path(model).suffix.lower() == SUFFIX


def open_onnx(path: str | Path, expected: Sequence[str] | None = None) -> OnnxFile:
    """Opens an ONNX file of ours; nothing of it is run.

    Args:
        expected: its outputs, where it is no file for users.

    Raises:
        CheckpointError: it is missing, damaged, or not what `export` writes.
        OptionError: onnx or onnxruntime is not installed.
    """
    require("onnx", "onnxruntime")
    origin = _origin(path)
    content = read_limited(path, origin, LARGEST)
    proto = _parsed(content, origin)
    _refuse_foreign(proto, origin)
    beside, checkpoint = _described(proto, str(path), origin)
    outputs = tuple(beside.outputs.split(", "))
    _check_outputs(proto, outputs, checkpoint, expected, origin=origin)
    inputs = _checked_inputs(proto, checkpoint.spec, origin)
    return OnnxFile(
        str(path),
        checkpoint,
        inputs,
        outputs,
        cost=beside.cost,
        precision=beside.precision,
        quantiles=beside.quantiles,
        opset=max((each.version for each in proto.opset_import if each.domain in OWN_DOMAINS), default=0),
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _parsed(content: bytes, origin: Origin) -> ModelProto:
    import onnx

    try:
        return onnx.ModelProto.FromString(content)
    except Exception as error:  # protocol buffers raise errors of several libraries
        raise origin.refusal("is not an ONNX file, or is cut short") from error


def _refuse_foreign(proto: ModelProto, origin: Origin) -> None:
    """Raises CheckpointError for operators of others, nested graphs, and numbers that lie in other files."""
    import onnx

    if proto.functions or proto.training_info or proto.graph.sparse_initializer:
        raise origin.refusal("holds functions, training or sparse numbers, which hydractl never exports")
    tensors = list(proto.graph.initializer)
    for node in proto.graph.node:
        if node.domain not in OWN_DOMAINS:
            raise origin.refusal(f"has the custom operator {node.domain}.{node.op_type}")
        for attribute in node.attribute:
            if attribute.HasField("g") or attribute.graphs or attribute.sparse_tensors:
                raise origin.refusal(f"operator {node.op_type} holds a graph of its own")
            tensors += [attribute.t, *attribute.tensors]
    for tensor in tensors:
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
            raise origin.refusal(f"tensor {tensor.name} lies in another file")


def _described(proto: ModelProto, name: str, origin: Origin) -> tuple[_Beside, Checkpoint]:
    metadata = {each.key: each.value for each in proto.metadata_props}
    if len(metadata) < len(proto.metadata_props):
        raise origin.refusal("its metadata name something twice")
    if KEY not in metadata:
        raise origin.refusal("its metadata hold no manifest")
    texts = {key: metadata[key] for key in ("outputs", "precision") if key in metadata}
    parsed = {key: parse_json(metadata[key], origin).value for key in ("cost", "labels", QUANTILES) if key in metadata}
    beside, checkpoint = document({**texts, **parsed}, origin).read(_Beside), described(name, metadata, {})
    fit = checkpoint.calibration.fit
    if fit is not None and all(row.name != fit.score for row in OOD_SCORES):
        raise origin.refusal(f"its OOD score {fit.score} is not known", "update hydractl")
    if bool(beside.quantiles) != (fit is not None):
        raise origin.refusal(f"{QUANTILES} and an OOD score go together")
    return beside, checkpoint if checkpoint.spec.classes else replace(checkpoint, labels=beside.labels)


def _check_outputs(
    proto: ModelProto, outputs: tuple[str, ...], checkpoint: Checkpoint, expected: Sequence[str] | None, origin: Origin
) -> None:
    forms = {each.name: _form(each) for each in proto.graph.output}
    required = tuple(expected or output_names(checkpoint.spec, checkpoint.calibration))
    if tuple(forms) != outputs or outputs != required:
        raise origin.refusal(f"its outputs are {', '.join(forms)}, should be {', '.join(required)}")
    (_, sizes), task = forms["member_logits"], find_task(checkpoint.spec.task)
    classes = task.count(checkpoint.spec, checkpoint.labels)
    if len(sizes) != len(task.axes) or sizes[-1] != classes or sizes[0] != checkpoint.members:
        raise origin.refusal(f"its logits are of other members or classes than {checkpoint.members} and {classes}")


def output_names(spec: ModelSpec, calibration: Calibration) -> tuple[str, ...]:
    """Returns the names of a graph's outputs, in order, by the score and the sets that it was fitted."""
    names = [find_task(spec.task).output, "member_logits", *([] if calibration.sets is None else ["sets"])]
    if (fit := calibration.fit) is not None:
        names += ["ood_score", "typicality", *(["profile"] if find_ood_score(fit.score).parts else [])]
    return tuple(names)


def input_names(spec: ModelSpec) -> tuple[str, ...]:
    """Returns the names of a graph's inputs, in order."""
    embeddings = spec.towers[0].embeddings
    if isinstance(embeddings, ImageEmbeddings):
        return ("pixel_values",)
    return ("input_ids", "attention_mask", *(["token_type_ids"] if embeddings.token_types else []))


def _checked_inputs(proto: ModelProto, spec: ModelSpec, origin: Origin) -> dict[str, type]:
    """Returns the kind of each input's numbers; raises CheckpointError unless they are those of the network."""
    initializers = {each.name for each in proto.graph.initializer}
    inputs = {each.name: each for each in proto.graph.input if each.name not in initializers}
    required = input_names(spec)
    if set(inputs) != set(required):
        raise origin.refusal(f"its inputs are {', '.join(sorted(inputs))}, should be {', '.join(required)}")
    embeddings = spec.towers[0].embeddings
    images = isinstance(embeddings, ImageEmbeddings)
    fixed = (embeddings.channels, *embeddings.image_size) if isinstance(embeddings, ImageEmbeddings) else (0,)
    kinds = FLOATS if images else WHOLE
    for name in required:
        kind, sizes = _form(inputs[name])
        if kind not in kinds or len(sizes) != 1 + len(fixed) or tuple(sizes[1:]) != fixed or sizes[0]:
            raise origin.refusal(f"its input {name} has another kind or shape than the network takes")
    return {name: kinds[_form(inputs[name])[0]] for name in required}


def _form(value: ValueInfoProto) -> tuple[int, list[int]]:
    """Returns the kind and the sizes of an input; 0 for one that stays open."""
    tensor = value.type.tensor_type
    return tensor.elem_type, [axis.dim_value for axis in tensor.shape.dim]
