"""The logits of a network with one head more turned off, replayed from the attention output of that head's layer.

Candidates of a layer share everything below it and its attention; turning a head off takes its own contribution
from the attention output. Candidates replayed together lie along G, the first axis of the activations `[G,B,T,D]`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hydractl.checkpoint.heads import Head
from hydractl.checkpoint.tower_spec import TextEmbeddings, TowerSpec
from hydractl.circuit.ranking import Group
from hydractl.model.attention import FusedAttention
from hydractl.model.encoder import Tower
from hydractl.model.fast.optimize import FastTower
from hydractl.model.fast.packing import PackedAttention
from hydractl.model.fast.pooled import PooledAttention
from hydractl.model.hydra import Hydra, copied

#: Receives a layer's number and its heads' outputs `[1,B,T,H*K]`; returns the outputs to continue with.
View = Callable[[int, Tensor], Tensor]


class Hidden(NamedTuple):
    """A hidden state `[G,B,T,D]`, the mask `[B,T]` of tokens that count, and the ids `[B,T]` of texts."""

    x: Tensor
    mask: Tensor | None
    ids: Tensor | None


def embed(tower: Tower, inputs: Mapping[str, Tensor]) -> Hidden:
    """Returns the hidden state that a tower's first layer reads."""
    if "pixel_values" in inputs:
        return Hidden(tower.embeddings(inputs["pixel_values"]), None, None)
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    return Hidden(tower.embeddings(ids, inputs.get("token_type_ids")), mask.bool() if mask is not None else None, ids)


def pooled(tower: Tower, inputs: Mapping[str, Tensor], view: View) -> Tensor:
    """Returns the tower's pooled tokens, `[1,B,D]`, and shows every layer's heads to `view` on the way."""
    x, mask, ids = embed(tower, inputs)
    for number, layer in enumerate(tower.layers):
        attention = layer.attention
        assert isinstance(attention, FusedAttention)  # of a model that is not optimised for inference
        z = view(number, attention.mix(layer.attention_input(x), mask))
        x = layer.complete(x, attention.output(z))
    return tower.pool(x, ids, mask)


def kept_counts(model: Hydra, tower: str) -> list[int]:
    """Returns the number of heads of a single-member model in each layer of a tower."""
    return [len(members[0]) for members in model.heads[tower]]


#: How many numbers the activations `[G,B,T,D]` of candidates replayed together may have. On a CPU that is the least
#: that keeps its cores busy, so that the activations of a layer stay in the cache; on a GPU it is enough to fill it.
GROUP_NUMBERS = {"cpu": 2**18, "cuda": 2**26}

#: How large the widest activation of the samples may be that are replayed together on a CPU.
ACTIVATION_BYTES = 24 * 2**20


def replay(
    tower: FastTower, kept: Sequence[Sequence[int]], start: Hidden, candidates: Sequence[Head]
) -> Iterator[tuple[Group, Tensor]]:
    """Yields the pooled tokens with each candidate off, `[G,B,D]` for G at a time; last with none off, `[1,B,D]`.

    Args:
        kept: the heads of each layer, in the order of its weights.
        candidates: heads to turn off, one at a time; each of them kept.
    """
    x, mask, ids = start
    place = tower.place(ids)

    def pooled(x: Tensor, layer: int) -> Tensor:
        """Returns the tower's pooled tokens, given the input of layer number `layer`."""
        return tower.pool_at(place, tower.encode_at(place, x, mask, layer), mask)

    for number, layer in enumerate(tower.layers):
        z, x = layer.mix_at(place, x, mask)
        attended = layer.attention.output(z)
        for group in _groups([head for head in candidates if head.layer == number], x):
            rows = [kept[number].index(head.head) for head in group]
            assert isinstance(layer.attention, PackedAttention | PooledAttention)  # of one network
            y = layer.complete(x, with_one_off(layer.attention, attended, z, rows))
            yield group, pooled(y, number + 1)
        x = layer.complete(x, attended)
    yield (), pooled(x, len(tower.layers))


def _groups(heads: Sequence[Head], x: Tensor) -> Iterator[Group]:
    size = max(1, GROUP_NUMBERS.get(x.device.type, GROUP_NUMBERS["cuda"]) // max(1, x[0].numel()))
    for start in range(0, len(heads), size):
        yield tuple(heads[start : start + size])


def with_one_off(
    attention: PackedAttention | PooledAttention, attended: Tensor, z: Tensor, rows: Sequence[int]
) -> Tensor:
    """The attention output `[G,B,T,D]` with one of G heads off in each copy: its contribution `Z_h W_O` taken away.

    Args:
        attended: `[1,B,T,D]` with all of them on.
        z: `[1,B,T,H*K]` what the heads see.
        rows: the heads' places among those of the layer.
    """
    k = attention.head_width
    values = z[0].unflatten(-1, (-1, k))[:, :, list(rows)].flatten(0, 1).transpose(0, 1)  # [G,B*T,K]
    weights = attention.output_weights[0].unflatten(1, (-1, k))[:, list(rows)].permute(1, 2, 0)  # [G,K,D]
    base = attended.flatten(1, 2).expand(len(rows), -1, -1)
    return torch.baddbmm(base, values, weights, alpha=-1).unflatten(1, attended.shape[1:3])


def tokens_of(tower: TowerSpec) -> int:
    """Counts the tokens of a sample; for texts, whose lengths differ, the most that one may have."""
    return tower.embeddings.max_tokens if isinstance(tower.embeddings, TextEmbeddings) else tower.embeddings.tokens


class Replay:
    """Logits of a single-member network with each candidate off, and with none off.

    A candidate in one tower of a zero-shot model reuses the embeddings of the other; class prompts are replayed
    once for all samples.
    """

    def __init__(self, model: Hydra, candidates: Sequence[Head], prompts: Sequence[Mapping[str, Tensor]] = ()) -> None:
        """
        Args:
            prompts: batches of class prompts, of a zero-shot model.
        """
        self.model, self.candidates = copied(model).optimize_for_inference(), candidates
        self.classes: dict[Group, Tensor] = {}  # [G,C,P]
        parts: dict[Head | None, list[Tensor]] = {}
        for batch in prompts:
            for group, pooled in self._replay("text", batch):
                for head, embedding in zip(group or (None,), self.model.embed("text", pooled), strict=True):
                    parts.setdefault(head, []).append(embedding)
        for head, rows in parts.items():
            self.classes[(head,) if head else ()] = torch.cat(rows)[None]

    def logits(self, inputs: Mapping[str, Tensor]) -> Iterator[tuple[Group, Tensor]]:
        """Yields logits `[G,B,C]` of the network with each of G candidates off, then with none off, G = 1."""
        model = self.model
        if not self.classes:
            for group, pooled in self._replay(model.spec.towers[0].name, inputs):
                yield group, model.classify(pooled)
            return
        for group, pooled in self._replay("vision", inputs):
            images = model.embed("vision", pooled)
            yield group, model.compare(images, self.classes[()])
        for group, classes in self.classes.items():
            if group:
                yield group, model.compare(images, classes)

    def at_once(self, inputs: Mapping[str, Tensor]) -> int:
        """Returns how many samples to replay together: on a CPU, few enough for its cache."""
        ids, device = inputs.get("input_ids"), next(self.model.parameters()).device
        if device.type != "cpu":
            return len(next(iter(inputs.values())))
        tower = self.model.spec.towers[0]
        tokens = tokens_of(tower) if ids is None else ids.shape[1]
        return max(ACTIVATION_BYTES // (tokens * tower.mlp_width * torch.float32.itemsize), 1)

    def _replay(self, name: str, inputs: Mapping[str, Tensor]) -> Iterator[tuple[Group, Tensor]]:
        tower: FastTower = getattr(self.model, name)
        kept = [members[0] for members in self.model.heads[name]]
        heads = [head for head in self.candidates if head.tower == name]
        return replay(tower, kept, embed(tower, inputs), heads)
