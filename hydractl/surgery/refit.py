"""Refits maps of a pruned network by least squares, so that its hidden states return to those it had before.

Heads that go take what they said with them, but those that stay can say most of it again. Going up the layers, each
output projection is solved for on inputs without labels: the state after it shall be the whole network's, so that it
also corrects what went wrong below. Where MLP units went, the MLP's last map likewise. Nothing is added at inference,
and nothing trains.

Source: ours; alike CORP (arXiv 2602.05243), GRAIL (2602.23795), SlimGPT (2412.18110) and K-prune (2308.03449).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple, cast

import torch
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.tensors import LazyTensor, rounded
from hydractl.circuit.replay import embed
from hydractl.data.batching import Batch
from hydractl.data.ranks import InParallel, Ranks, batch_workers
from hydractl.errors import DataError, NotFiniteError
from hydractl.model.attention import FusedAttention
from hydractl.model.encoder import Layer, Place, Tower, scaled
from hydractl.model.hydra import Hydra, from_checkpoint
from hydractl.model.linear import Linear

#: Weights of the distance to the old map, in mean squares of what a map reads; by the last its bias alone changes.
RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, inf)
#: Parts of the inputs; for the choice of a ridge each measures the maps that are solved on the others.
FOLDS = 4
#: Share of the most that maps explain of inputs left out, beyond their bias, which the chosen ridge must reach.
NEARLY_MOST = 0.75
#: The memory for hidden states between layers; those of further inputs are computed again for each layer.
HELD_BYTES = 2**31
#: Directions that what a map reads has less of than the root of this share of its largest: rounding, not numbers.
SINGULAR = 1e-13
#: The maps that are refitted.
OUTPUT, LAST = "attention.o", "mlp.fc2"


@dataclass(frozen=True)
class Refitting:
    """Says how maps are refitted.

    Attributes:
        ridge: 0 or more, see `RIDGES`; with 0 the least change of the old map that solves the least squares. None
            chooses one for each map, see `choose_ridge`.
        every_mlp: whether the last maps of all MLPs are refitted, not only where units went; members of an ensemble
            then share no MLP.
        ranks: the processes that share the work; the result does not depend on their number.
        advance: called when a batch has passed a layer that is refitted, once for each of its maps.
    """

    ridge: float | None = None
    every_mlp: bool = False
    ranks: Ranks = field(default_factory=Ranks)
    advance: Callable[[], None] = lambda: None


def refit(target: Hydra, changed: Checkpoint, inputs: Mapping[str, Sequence[Batch]], how: Refitting) -> Checkpoint:
    """Returns a network with maps that bring its hidden states near those of another.

    Nothing below the first layer in which the two differ changes.

    Args:
        target: the network before its surgery, of one member.
        changed: what the surgery left of it, of one member.
        inputs: batches by the name of the tower that reads them, the same on every rank; labels do not count.

    Raises:
        DataError: a tower that differs has no inputs.
        NotFiniteError: hidden states are not finite.
    """
    weight = next(target.parameters())
    network, tensors = from_checkpoint(changed, weight.device, weight.dtype), dict(changed.tensors)
    for name in (tower.name for tower in changed.spec.towers):
        first = first_difference(target, network, name)
        if first is None:
            continue
        if not inputs.get(name):
            raise DataError(f"the {name} tower lost heads, but has no inputs to refit it on: give some")
        before, after = (cast(Tower, model.get_submodule(name)) for model in (target, network))
        with torch.inference_mode(), batch_workers(weight.device) as in_parallel:
            refitted = _Climb(before, after, first, batches=inputs[name], how=how, in_parallel=in_parallel).refit()
        for key, parameter in refitted.items():
            full = f"{name}.layers.{key}"
            tensors[full] = _stored(parameter, tensors[full])
    return replace(changed, tensors=tensors)


def first_difference(target: Hydra, network: Hydra, tower: str) -> int | None:
    """Returns the first layer of a tower that reads or computes other numbers in one of two networks, if any does."""
    before, after = target.state_dict(), network.state_dict()
    names = (name.removeprefix(f"{tower}.") for name in before if name.startswith(f"{tower}."))
    different = [name for name in names if not torch.equal(before[f"{tower}.{name}"], after[f"{tower}.{name}"])]
    layers = [int(name.split(".")[1]) for name in different if name.startswith("layers.")]
    return 0 if any(name.startswith("embeddings.") for name in different) else min(layers, default=None)


def _stored(parameter: Tensor, before: LazyTensor) -> LazyTensor:
    """Returns a tensor of a file with new numbers."""
    numbers = rounded(parameter.double().cpu(), before.dtype).view(before.shape)
    return LazyTensor(before.shape, before.kind, lambda: numbers)


class _States(NamedTuple):
    """The hidden states `[1,B,T,D]` of a batch at a layer, before and after the surgery, and what they hold."""

    layer: int
    target: Tensor
    network: Tensor
    mask: Tensor | None  # [B,T], true where a token counts
    place: Place | None  # of the pooled tokens


class _Rows(NamedTuple):
    """The tokens of a batch that a map is solved on."""

    read: Tensor  # [n,R], what the map reads
    missing: Tensor  # [n,D], what it leaves to say
    sample: Tensor  # [n], the token's sample in the batch


@dataclass(eq=False)
class _Climb:
    """The way up the layers of a tower, with the states of both networks."""

    target: Tower
    network: Tower
    first: int  # the layer in which they differ
    batches: Sequence[Batch]
    how: Refitting
    in_parallel: InParallel
    held: dict[int, _States] = field(default_factory=dict)  # by batch

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def refit(self) -> dict[str, Tensor]:
        """Returns the new weights and biases by their names, which start with the layer's number."""
        maps: dict[str, Linear] = {}
        for number in range(self.first, len(self.network.layers)):
            layer = self.network.layers[number]
            attention = cast(FusedAttention, layer.attention)
            maps[f"{number}.{OUTPUT}"] = self._solve(number, attention.o, self._attention_rows)
            lost = layer.mlp.fc2.weight.shape != self.target.layers[number].mlp.fc2.weight.shape
            if lost or self.how.every_mlp:
                maps[f"{number}.{LAST}"] = self._solve(number, layer.mlp.fc2, self._mlp_rows)
        return {
            f"{name}.{part}": tensor
            for name, linear in maps.items()
            for part, tensor in (("weight", linear.weight), ("bias", linear.bias))
            if tensor is not None
        }

    def _solve(self, number: int, linear: Linear, rows: Callable[[_States], _Rows]) -> Linear:
        """Gives a map of the network's layer the weights that solve its least squares."""
        ranks, (width, reads) = self.how.ranks, linear.weight.shape
        folds = FOLDS if self.how.ridge is None else 1

        def of_batch(batch: int) -> tuple[_States, Tensor]:
            states = self._states(batch, number)
            read, missing, sample = rows(states)
            part = self.batches[batch].positions.to(sample.device)[sample] % folds  # whatever the size of a batch
            sums = [_sums(read[part == number], missing[part == number]) for number in range(folds)]
            return states, torch.stack(sums)

        def parts() -> Iterator[Tensor]:
            mine = range(ranks.rank, len(self.batches), ranks.size)
            for batch, (states, sums) in zip(mine, self.in_parallel(of_batch, mine), strict=True):
                self._hold(batch, states)
                self.how.advance()
                yield sums

        total = torch.zeros(folds, reads + 1, reads + 1 + width, dtype=torch.float64, device=linear.weight.device)
        sums = ranks.in_turn(parts(), total, len(self.batches))
        if not torch.isfinite(sums).all():
            raise NotFiniteError(f"the network's states in layer {number} are not finite: it cannot be refitted")
        ridge = choose_ridge(sums, linear) if self.how.ridge is None else self.how.ridge
        weight, bias = solve(sums.sum(0), linear, ridge)
        linear.weight.copy_(ranks.from_rank(weight, 0))
        if linear.bias is not None:
            linear.bias.copy_(ranks.from_rank(bias, 0).view(linear.bias.shape))
        return linear

    def _states(self, batch: int, number: int) -> _States:
        """Returns the states at the input of a layer."""
        states = self.held.get(batch)
        if states is None:
            inputs = {name: tensor.to(self.device) for name, tensor in self.batches[batch].inputs.items()}
            x, mask, ids = embed(self.target, inputs)
            other = x if self.first else embed(self.network, inputs).x
            states = _States(0, x, other, mask=mask, place=self.network.place(ids))
        at, before, after, mask, place = states
        for layer in range(at, number):
            before = self.target.layers[layer](before, mask)
            after = before if layer < self.first else self.network.layers[layer](after, mask)
        return _States(number, before, after, mask=mask, place=place)

    def _hold(self, batch: int, states: _States) -> None:
        room = HELD_BYTES - sum(2 * held.target.nbytes for held in self.held.values())
        if batch in self.held or 2 * states.target.nbytes <= room:
            self.held[batch] = states

    def _attention_rows(self, states: _States) -> _Rows:
        """Returns what the output projection reads, and what it leaves to say."""
        whole, layer = self.target.layers[states.layer], self.network.layers[states.layer]
        attention = cast(FusedAttention, layer.attention)
        z = attention.mix(layer.attention_input(states.network), states.mask)
        said = states.network + scaled(attention.output(z), layer.attention_scale)
        missing = _after_attention(whole, states.target, states.mask) - said
        return self._rows(states, z, missing, layer.attention_scale)

    def _mlp_rows(self, states: _States) -> _Rows:
        """Returns what the MLP's last map reads, and what it leaves to say."""
        whole, layer = self.target.layers[states.layer], self.network.layers[states.layer]
        start, of_whole = (
            _mlp_start(each, _after_attention(each, x, states.mask))
            for each, x in ((layer, states.network), (whole, states.target))
        )
        read = layer.mlp.activated(_mlp_reads(layer, start))
        said = start + scaled(layer.mlp.fc2(read), layer.mlp_scale)
        missing = of_whole + scaled(whole.mlp(_mlp_reads(whole, of_whole)), whole.mlp_scale) - said
        return self._rows(states, read, missing, layer.mlp_scale)

    def _rows(self, states: _States, read: Tensor, missing: Tensor, scale: Tensor | None) -> _Rows:
        """Returns the tokens that count of `[1,B,T,...]`; of the last layer those that are read."""
        if scale is not None:  # where it is 0, the map says nothing whatever it is
            missing = torch.where(scale.view(-1) == 0, 0, missing / scale.view(-1))
        mask = states.mask
        if states.place is not None and states.layer == len(self.network.layers) - 1:
            read, missing, mask = states.place.of(read), states.place.of(missing), None
        counts = torch.ones(read.shape[1:3], dtype=torch.bool, device=read.device) if mask is None else mask
        return _Rows(read[0][counts], missing[0][counts], counts.nonzero()[:, 0])


def _after_attention(layer: Layer, x: Tensor, mask: Tensor | None) -> Tensor:
    """Returns the sum of a hidden state `[1,B,T,D]` and its attention output."""
    return x + scaled(layer.attention(layer.attention_input(x), mask), layer.attention_scale)


def _mlp_start(layer: Layer, summed: Tensor) -> Tensor:
    """Returns the state that the MLP's output is added to."""
    return summed if layer.pre_norm else layer.attention_norm(summed)


def _mlp_reads(layer: Layer, start: Tensor) -> Tensor:
    return layer.mlp_norm(start) if layer.pre_norm else start


def _sums(read: Tensor, missing: Tensor) -> Tensor:
    """Returns `[R+1,R+1+D]`: the products of `[n,R]` and ones with themselves and with `[n,D]`, in float64."""
    ones = read.new_ones(len(read), 1, dtype=torch.float64)
    left = torch.cat([read.double(), ones], 1)
    return left.mT @ torch.cat([left, missing.double()], 1)


def choose_ridge(sums: Tensor, linear: Linear) -> float:
    """Returns the least ridge whose maps, each solved on all parts but one, explain nearly the most of that one.

    A weak ridge fails where inputs are few. A stronger one than needed costs detection of OOD.

    Args:
        sums: `[K,R+1,R+1+D]`, see `_sums`, of each part of the inputs.
    """
    total, explained = sums.sum(0), dict.fromkeys(RIDGES, 0.0)
    for part in sums:
        for ridge in RIDGES:
            change, shift = _solved(total - part, linear.bias is not None, ridge)
            solution = torch.cat([change, shift[:, None]], 1)
            explained[ridge] += float(
                (2 * solution * part[:, len(part) :].mT - solution @ part[:, : len(part)] * solution).sum()
            )
    constant, most = explained[inf], max(explained.values())
    return next(ridge for ridge in RIDGES if explained[ridge] - constant >= NEARLY_MOST * (most - constant))


def solve(sums: Tensor, linear: Linear, ridge: float) -> tuple[Tensor, Tensor]:
    """Returns the weight `[D,R]` and bias `[D]`, float64, of the least squares whose sums are given.

    With W_0 and b_0 the present ones and e what they leave to say of z, they minimise the mean of
    |(W - W_0) z + b - b_0 - e|^2 + ridge * s * |W - W_0|^2, where s is the mean variance of an entry of z. Without a
    bias b and b_0 are 0, and nothing is centred.

    Args:
        sums: `[R+1,R+1+D]`, see `_sums`.
    """
    change, shift = _solved(sums, linear.bias is not None, ridge)
    old = linear.bias.double().view(-1) if linear.bias is not None else torch.zeros_like(shift)
    return linear.weight.double() + change, old + shift


def _solved(sums: Tensor, biased: bool, ridge: float) -> tuple[Tensor, Tensor]:
    """Returns the change `[D,R]` of the weight and that of the bias, `[D]`; 0 without a bias."""
    reads = len(sums) - 1
    count = sums[-1, reads].clamp(min=1)
    squares, products = sums[:reads, :reads], sums[:reads, reads + 1 :]
    means, missing = sums[reads, :reads] / count, sums[reads, reads + 1 :] / count
    if biased:
        squares = squares - count * means[:, None] * means
        products = products - count * means[:, None] * missing
    spread = squares.diagonal().mean()
    if ridge == inf or not reads or spread <= SINGULAR * sums.diagonal()[:reads].mean():  # constant, but for rounding
        change = torch.zeros_like(products.mT)
    elif ridge:
        strength = ridge * spread
        factor = torch.linalg.cholesky(squares + strength * torch.eye(reads).to(squares))
        change = torch.cholesky_solve(products, factor).mT
    else:
        change = (torch.linalg.pinv(squares, rtol=SINGULAR, hermitian=True) @ products).mT
    return change, (missing - change @ means) * biased
