"""A model as one traced graph: what it takes, what it returns, and which sizes stay open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from hydractl.checkpoint.manifest import to_metadata
from hydractl.checkpoint.spec import TextEmbeddings
from hydractl.errors import OptionError, OutputError
from hydractl.evaluation.synthetic import synthetic_inputs
from hydractl.model.build import to_checkpoint
from hydractl.model.hydra import Hydra

OUTPUTS = ("probabilities", "member_logits")
#: How far a runtime's probabilities may be from the model's, by the model's precision.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 0.03, torch.float16: 0.005}

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Traced:
    """A traced model, the names of its inputs in order, and the mapping a file says of itself."""

    program: ExportedProgram
    names: tuple[str, ...]
    metadata: Mapping[str, str]


class _Images(nn.Module):
    def __init__(self, model: Hydra) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        output = self.model(pixel_values=pixel_values)
        return output.probabilities, output.member_logits


class _Texts(nn.Module):
    def __init__(self, model: Hydra) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        output = self.model(input_ids=input_ids, attention_mask=attention_mask)
        return output.probabilities, output.member_logits


class _TypedTexts(nn.Module):
    def __init__(self, model: Hydra) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, Tensor]:
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return output.probabilities, output.member_logits


def trace(model: Hydra) -> Traced:
    """The model as a graph from inputs to `probabilities` `[B,C]` and `member_logits` `[M,B,C]`.

    Batch and, for texts, length stay open.

    Raises:
        OptionError: a zero-shot model has no classes yet; they become part of the graph.
    """
    if model.spec.task == "zero-shot" and model.class_embeddings is None:
        raise OptionError("a zero-shot model needs its classes before it is exported: name them with `classes`")
    model.optimize_for_inference()
    inputs = example_inputs(model, batch=2, tokens=4)
    with torch.no_grad():
        program = torch.export.export(_wrapped(model), (), inputs, dynamic_shapes=_open_sizes(model, inputs))
    return Traced(program, tuple(inputs), {**to_metadata(to_checkpoint(model)), "outputs": ", ".join(OUTPUTS)})


def example_inputs(model: Hydra, batch: int, tokens: int, seed: int = 0) -> Inputs:
    """Random inputs by name, every one that the graph takes; the last text of several is padded by a token."""
    device = next(model.parameters()).device
    inputs = synthetic_inputs(model.spec, batch, device, tokens, seed)
    embeddings = model.spec.towers[0].embeddings
    if not isinstance(embeddings, TextEmbeddings):
        return {"pixel_values": inputs["pixel_values"].to(next(model.parameters()).dtype)}
    mask = torch.ones_like(inputs["input_ids"])
    mask[1:, -1] = 0
    inputs["attention_mask"] = mask
    if embeddings.token_types:
        inputs["token_type_ids"] = (torch.arange(tokens, device=device) > tokens // 2).long().repeat(batch, 1)
        inputs["token_type_ids"] %= embeddings.token_types
    return inputs


def require_same_answers(path: str, model: Hydra, run: Callable[[Inputs], Tensor]) -> float:
    """The largest difference between a runtime's probabilities and the model's, over batches of several sizes.

    Args:
        run: the exported model, inputs to probabilities.

    Raises:
        OutputError: the difference is larger than the precision explains.
    """
    worst = 0.0
    for seed, (batch, tokens) in enumerate([(1, 3), (2, 4), (5, 9)]):
        inputs = example_inputs(model, batch, min(tokens, _longest(model)), seed)
        with torch.inference_mode():
            expected = model(**inputs).probabilities
        worst = max(worst, float((run(inputs) - expected).abs().max()))
    tolerance = TOLERANCES[next(model.parameters()).dtype]
    if not worst <= tolerance:
        found = f"answers differ from the model's by {worst:.2g}, at most {tolerance:g} is rounding"
        raise OutputError(f"{path}: {found}: do not use it")
    return worst


def _wrapped(model: Hydra) -> nn.Module:
    embeddings = model.spec.towers[0].embeddings
    if not isinstance(embeddings, TextEmbeddings):
        return _Images(model).eval()
    return (_TypedTexts if embeddings.token_types else _Texts)(model).eval()


def _open_sizes(model: Hydra, inputs: Inputs) -> dict[str, dict[int, Dim]]:
    batch = Dim("batch", min=1)
    if "pixel_values" in inputs:
        return {"pixel_values": {0: batch}}
    tokens = Dim("tokens", min=2, max=_longest(model))
    return {name: {0: batch, 1: tokens} for name in inputs}


def _longest(model: Hydra) -> int:
    embeddings = model.spec.towers[0].embeddings
    return embeddings.max_tokens if isinstance(embeddings, TextEmbeddings) else embeddings.tokens
