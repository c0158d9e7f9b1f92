"""The logits of many candidates of one network, whose common leading layers are computed once.

Candidates form a trie: those that keep the same heads in all layers up to one share its hidden state. Where they part,
the heads that any of them keeps are mixed once, and each sums up its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor

from hydractl.checkpoint.heads import Head, without
from hydractl.circuit.replay import Hidden, embed
from hydractl.model.attention import FusedAttention
from hydractl.model.encoder import Place, Tower
from hydractl.model.fast.optimize import FastLayer, FastTower
from hydractl.model.hydra import Hydra
from hydractl.model.linear import Stored

Kept = tuple[int, ...]

#: The bytes of candidates' weights that are kept; layers beyond are laid out again when they are needed.
WEIGHT_BYTES = 2**31


@dataclass
class Node:
    """Candidates that keep the same heads in every layer below `layer`."""

    layer: int
    candidates: list[int] = field(default_factory=list)  # their numbers
    # By the heads kept in `layer`, ascending; none after the last layer.
    branches: dict[Kept, Node] = field(default_factory=dict)

    def mixtures(self) -> int:
        """Counts the layers that are mixed below here: one for each hidden state that differs."""
        return sum(1 + node.mixtures() for node in self.branches.values())


def trie(kept: Sequence[Sequence[Kept]]) -> Node:
    """Builds the trie of candidates from the heads that each keeps in each layer of a tower."""
    root = Node(0)
    for number, layers in enumerate(kept):
        node = root
        node.candidates.append(number)
        for layer, heads in enumerate(layers):
            node = node.branches.setdefault(heads, Node(layer + 1))
            node.candidates.append(number)
    return root


class _Tower:
    """A tower that computes the layers that candidates share once."""

    def __init__(self, model: Hydra, name: str, dropped: Sequence[frozenset[Head]]) -> None:
        self.tower = cast(Tower, model.get_submodule(name))
        self.fast = FastTower(self.tower)
        self.before: list[Kept] = [members[0] for members in model.heads[name]]
        kept = [[members[0] for members in without(model.heads, gone)[name]] for gone in dropped]
        self.root = trie(kept)
        attention = sum(p.numel() * p.element_size() for p in self.fast.layers[0].attention.parameters())
        self.layer = lru_cache(maxsize=max(2 * len(self.before), WEIGHT_BYTES // max(attention, 1)))(self._layer)

    def pooled(self, start: Hidden) -> list[Tensor]:
        """Returns the pooled output `[1,B,D]` of each candidate, from the input of the first layer."""
        x, mask, ids = start
        outputs: dict[int, Tensor] = {}
        place = self.tower.place(ids)
        for node, last in self._walk(self.root, x, mask, place):
            outputs |= dict.fromkeys(node.candidates, self.fast.pool_at(place, last, mask))
        return [outputs[number] for number in sorted(outputs)]

    def _walk(self, node: Node, x: Tensor, mask: Tensor | None, place: Place | None) -> Iterator[tuple[Node, Tensor]]:
        if not node.branches:
            yield node, x
            return
        needed = tuple(sorted(set().union(*node.branches)))
        layer = self.layer(node.layer, needed)
        z, residual = layer.mix_at(place, x, mask)
        for heads, branch in node.branches.items():
            attended = self._attended(node.layer, z, needed, heads)
            yield from self._walk(branch, layer.complete(residual, attended), mask, place)

    def _attended(self, number: int, z: Tensor, mixed: Kept, heads: Kept) -> Tensor:
        """Returns the attention output `[1,B,T,D]` of some of the heads that were mixed."""
        if heads == mixed:
            return self.layer(number, heads).attention.output(z)
        width = self.tower.spec.head_width
        columns = [mixed.index(head) * width + i for head in heads for i in range(width)]
        return self.layer(number, heads).attention.output(z[..., columns])

    def _layer(self, number: int, heads: Kept) -> FastLayer:
        """Returns a layer with these heads alone."""
        if heads == self.before[number]:
            return self.fast.layers[number]
        dense = self.tower.layers[number]
        attention = cast(FusedAttention, dense.attention)
        pooled = number == len(self.before) - 1 and self.tower.spec.tokens_read > 0
        return FastLayer(dense, pooled=pooled, attention=self._attention(attention, number, heads)).eval()

    def _attention(self, dense: FusedAttention, number: int, heads: Kept) -> FusedAttention:
        before = self.before[number]
        state = {}
        for name, tensor in dense.state_dict().items():
            axis = None if "_norm." in name else {"o.weight": 1, "o.bias": None}.get(name, 0)
            width = 1 if name == "relative" else dense.head_width
            rows = [before.index(head) * width + i for head in heads for i in range(width)]
            state[name] = (
                tensor if axis is None else tensor.index_select(axis, torch.tensor(rows, device=tensor.device).long())
            )
        shapes = {f"own.{name}": tuple(tensor.shape) for name, tensor in state.items()}
        pruned = FusedAttention(self.tower.spec, number, "own", (heads,), Stored(shapes), self.tower.embeddings)
        pruned.load_state_dict(state, assign=True)
        return pruned.eval().requires_grad_(False)


class CandidateNetworks:
    """Candidates of a network, ready to run."""

    def __init__(
        self, model: Hydra, dropped: Sequence[frozenset[Head]], prompts: Sequence[Mapping[str, Tensor]] = ()
    ) -> None:
        """
        Args:
            model: of one member, as it was loaded.
            dropped: what each candidate lacks of its heads.
            prompts: batches of class prompts, of a zero-shot model.
        """
        self.model, self.size, self.dtype, self.temperature = model, len(dropped), _dtype(model), model.temperature
        self.towers: dict[str, _Tower] = {tower.name: _Tower(model, tower.name, dropped) for tower in model.spec.towers}
        self.prompts: list[Tensor] = []  # [1,C,P] of each candidate
        if prompts:
            parts = [self._pooled("text", batch) for batch in prompts]
            self.prompts = [
                torch.cat([model.embed("text", output) for output in outputs], 1)
                for outputs in zip(*parts, strict=True)
            ]

    @property
    def classes(self) -> int:
        """C."""
        weights = self.prompts[0] if self.prompts else self.model.classifier_weights()[0]
        return weights.shape[1]

    @torch.inference_mode()
    def logits(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Returns logits `[K,B,C]`, in the model's dtype."""
        name = self.model.spec.towers[0].name
        pooled = self._pooled(name, inputs)
        if not self.prompts:
            return torch.cat([self.model.classify(output) for output in pooled])
        images = (self.model.embed(name, output) for output in pooled)
        return torch.cat(
            [self.model.compare(image, prompts) for image, prompts in zip(images, self.prompts, strict=True)]
        )

    @torch.inference_mode()
    def _pooled(self, name: str, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        tower = self.towers[name]
        return tower.pooled(embed(tower.tower, inputs))


class MemberNetworks:
    """Members of one file, each of them a candidate; what they share is computed once."""

    def __init__(self, model: Hydra) -> None:
        """
        Args:
            model: as fused with everything kept separate that differs.
        """
        self.model, self.size = model.optimize_for_inference(), model.members
        self.dtype, self.temperature = _dtype(model), model.temperature

    @property
    def classes(self) -> int:
        """C."""
        return self.model.classifier_weights()[0].shape[1]

    @torch.inference_mode()
    def logits(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Returns logits `[K,B,C]`, in the model's dtype."""
        return self.model(**inputs).member_logits


def _dtype(model: Hydra) -> str:
    """Returns NumPy's name for the dtype of a model's logits."""
    return "float64" if next(model.parameters()).dtype == torch.float64 else "float32"
