"""The one model: M >= 1 members in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.errors import OptionError
from hydractl.model.encoder import Tower
from hydractl.model.linear import Linear, empty


class HydraOutput(NamedTuple):
    """What one forward pass returns.

    Attributes:
        member_logits: `[M,B,C]`, in the model's dtype.
        probabilities: `[B,C]`, the mean over members of their softmax probabilities, at least float32.
        logits: `[B,C]`, the logarithm of `probabilities`, always finite.
    """

    member_logits: Tensor
    probabilities: Tensor
    logits: Tensor


class Hydra(nn.Module):
    """A classifier of M members that share what they can ([HE] 4.2).

    Its parameters carry the names and shapes of the file. Built by `from_checkpoint`; `hydractl.load` adds the
    preprocessing that `predict` needs.
    """

    vision: Tower
    text: Tower

    def __init__(self, spec: ModelSpec, heads: KeptHeads, shared: frozenset[str], shapes: Mapping[str, tuple[int, ...]]):
        super().__init__()
        self.spec, self.heads, self.shared = spec, heads, shared
        self.members = len(next(iter(heads.values()))[0])
        for tower in spec.towers:
            self.add_module(tower.name, Tower(tower, heads, shared, shapes))
        if spec.task == "zero-shot":
            self.logit_scale = empty(shapes["logit_scale"])
            for tower in spec.towers:
                module = self.get_submodule(tower.name)
                module.add_module("projection", Linear(shapes[f"{tower.name}.projection.weight"], None))
        else:
            self.dropout = nn.Dropout(spec.classifier_dropout)
            self.classifier = Linear(shapes["classifier.weight"], shapes["classifier.bias"])
        self.labels: tuple[str, ...] | None = None
        self.temperature = 1.0
        self.class_embeddings: Tensor | None = None  # [G,C,P], of the prompts a zero-shot model compares with

    def forward(
        self,
        pixel_values: Tensor | None = None,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> HydraOutput:
        """Classifies a batch.

        Args:
            pixel_values: `[B,C,H,W]` images, for a model with a vision tower.
            input_ids: `[B,T]` texts; for a zero-shot model `[C,T]` class prompts, unless `encode_classes` has them.
            attention_mask: as `input_ids`, non-zero where a token counts; all count where it is left out.
            token_type_ids: as `input_ids`.

        Raises:
            OptionError: an input that this model's task needs is left out.
        """
        if self.spec.task == "zero-shot":
            return self._finish(self._zero_shot(pixel_values, input_ids, attention_mask))
        if self.spec.task == "image-classification":
            pooled = self.vision.forward_image(_given(pixel_values, "pixel_values"))
        else:
            pooled = self.text.forward_text(_given(input_ids, "input_ids"), attention_mask, token_type_ids)
        return self._finish(self.classifier(self.dropout(pooled)))

    def _zero_shot(self, pixel_values: Tensor | None, input_ids: Tensor | None, mask: Tensor | None) -> Tensor:
        images = self.embed("vision", self.vision.forward_image(_given(pixel_values, "pixel_values")))
        classes = self.class_embeddings if input_ids is None else self.embed_texts(input_ids, mask)
        if classes is None:
            raise OptionError("a zero-shot model needs classes: set_classes(labels), or --classes FILE")
        return torch.matmul(images, classes.to(images.dtype).mT) * self.logit_scale.exp().view(-1, 1, 1)

    def embed(self, tower: str, pooled: Tensor) -> Tensor:
        """Unit-length embeddings `[G,B,P]` of pooled tokens `[G,B,D]`, in the space that both towers share."""
        projected: Tensor = self.get_submodule(f"{tower}.projection")(pooled)
        return projected / projected.norm(dim=-1, keepdim=True)

    def embed_texts(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Unit-length embeddings `[G,C,P]` of class prompts `[C,T]`."""
        return self.embed("text", self.text.forward_text(input_ids, attention_mask))

    def _finish(self, member_logits: Tensor) -> HydraOutput:
        member_logits = member_logits.expand(self.members, -1, -1)
        scaled = member_logits.to(torch.promote_types(member_logits.dtype, torch.float32)) / self.temperature
        logits = scaled.log_softmax(-1).logsumexp(0) - log(self.members)
        # log p of a class far below the best can underflow in the sum over one member only where it is finite in all.
        return HydraOutput(member_logits, logits.exp(), logits)


def _given(tensor: Tensor | None, name: str) -> Tensor:
    if tensor is None:
        raise OptionError(f"this model needs {name}")
    return tensor


def from_checkpoint(checkpoint: Checkpoint, device: torch.device | str = "cpu", dtype: torch.dtype | None = None) -> Hydra:
    """The model a checkpoint holds, in eval mode, its weights read once.

    Args:
        dtype: of the weights; the stored one where left out.

    Raises:
        CheckpointError: a tensor cannot be read or holds NaN.
    """
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    model = Hydra(checkpoint.spec, checkpoint.heads, checkpoint.shared, shapes)
    state = {name: tensor.load().to(device, dtype or tensor.dtype) for name, tensor in checkpoint.tensors.items()}
    model.load_state_dict(state, assign=True)
    model.labels = checkpoint.labels
    model.temperature = checkpoint.temperature or 1.0
    return model.eval().requires_grad_(False)


def to_checkpoint(model: Hydra, origin: Checkpoint) -> Checkpoint:
    """The checkpoint `origin` with the numbers that `model` holds now."""
    from dataclasses import replace

    tensors = {name: _held(tensor) for name, tensor in model.state_dict().items()}
    return replace(origin, tensors=tensors, labels=model.labels)


def _held(tensor: Tensor) -> LazyTensor:
    return LazyTensor(tuple(tensor.shape), tensor.dtype, lambda: tensor.detach().cpu())


__all__ = ["Any", "Callable", "Hydra", "HydraOutput", "Sequence", "from_checkpoint", "to_checkpoint"]
