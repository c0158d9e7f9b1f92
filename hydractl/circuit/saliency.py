"""Head scores from weights, gradients and activations: magnitude, Taylor, deviation; higher = keep.

Source: [HE] D.1.1, after Molchanov et al. 2019 (Taylor).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, Unit, member_heads
from hydractl.checkpoint.layout import Layout, every_unit
from hydractl.checkpoint.spec import ModelSpec
from hydractl.circuit.objective import ScoringData
from hydractl.data.batching import Batch
from hydractl.data.ranks import batch_workers
from hydractl.errors import DataError
from hydractl.model.hydra import Hydra


def magnitude_scores(checkpoint: Checkpoint) -> dict[Head, float]:
    """Returns the L2 norm of each head's slices of W_Q, W_K, W_V and W_O together, float64.

    Args:
        checkpoint: of one member; heads it does not keep have no score.
    """
    scores: dict[Head, float] = {}
    for tower in checkpoint.spec.towers:
        for layer in range(tower.layers):
            squares = []
            for part in "qkvo":
                weight = checkpoint.tensors[f"{tower.name}.layers.{layer}.attention.{part}.weight"].load().double()
                rows = weight.mT if part == "o" else weight  # [H*K, D]
                squares.append(rows.unflatten(0, (-1, tower.head_width)).square().sum((1, 2)))
            norms = sum(squares[1:], squares[0]).sqrt().tolist()
            kept = checkpoint.heads[tower.name][layer][0]
            scores |= {Head(tower.name, layer, head): norm for head, norm in zip(kept, norms, strict=True)}
    return scores


def taylor_scores(model: Hydra, data: ScoringData, heads: Sequence[Head] | None = None) -> dict[Head, float]:
    """Returns the Taylor score of each head: the mean of |W G| over its rows of W_Q, W_K and W_V.

    G is the gradient of the mean cross-entropy over all samples, so the batch size has no effect.

    Args:
        model: of one member.
        heads: some of its heads; None for all.
    """
    heads = member_heads(model.heads, 0) if heads is None else heads
    layers = sorted({(head.tower, head.layer) for head in heads}, key=lambda place: place[1])
    names = [f"{_prefix(*place)}.{part}.weight" for place in layers for part in "qkv"]
    weights = [model.get_parameter(name) for name in names]
    gradients = mean_gradients(model, data, weights)
    products = {
        name: (weight.double() * gradient).abs()
        for name, weight, gradient in zip(names, weights, gradients, strict=True)
    }
    return {
        head: float(torch.stack([part.mean() for part in _of_head(model, products, head, "qkv")]).mean())
        for head in heads
    }


def magnitudes_of_units(checkpoint: Checkpoint) -> dict[Unit, float]:
    """Returns the L2 norm of each MLP unit's rows and column together, float64.

    Args:
        checkpoint: of one member; units it does not keep have no score.
    """
    squares: dict[tuple[str, int], Tensor] = {}
    for name, slot in checkpoint.slots().items():
        if slot.unit_axis is None or len(slot.shape) < 2 or slot.tower is None or slot.layer is None:
            continue
        weight = checkpoint.tensors[name].load().double().movedim(slot.unit_axis, 0)
        place = slot.tower, slot.layer
        squares[place] = squares.get(place, torch.zeros(())) + weight.square().sum(1)
    return _by_unit(checkpoint.layout, checkpoint.spec, {place: square.sqrt() for place, square in squares.items()})


def taylor_scores_of_activations(model: Hydra, data: ScoringData) -> tuple[dict[Head, float], dict[Unit, float]]:
    """Returns the sum over samples and tokens of |a dL/da| for each head and each MLP unit.

    The activation a of a unit is what its layer's last map reads, that of a head its output: a dL/da is a sum over its
    K entries. Both estimate, to first order, how much the losses change without it, so they may be compared. The
    samples of a zero-shot model's text tower are the class prompts, and L is the loss of all images, which share them.

    Args:
        model: of one member.
    """
    device, pieces = next(model.parameters()).device, _pieces(model)
    prompts = [{name: tensor.to(device) for name, tensor in batch.items()} for batch in data.prompts]
    with torch.no_grad():
        embedded = [model.embed_texts(**batch) for batch in prompts]  # [G,C,P] each
    classes = [torch.cat(embedded, 1).requires_grad_()] if embedded else []
    of_texts = set(model.text.modules()) if embedded else set()
    readers = [module for module in pieces.kept if module not in of_texts]

    def of_batch(number: int) -> Tensor:
        losses = partial(cross_entropies, model, data.id[number], prompts={}, device=device)
        return torch.cat(_products(pieces, readers, losses, others=classes))

    mine = range(data.ranks.rank, len(data.id), data.ranks.size)
    sizes = [len(pieces.kept[module][0]) for module in readers] + [tensor.numel() for tensor in classes]
    zeros = torch.zeros(sum(sizes), dtype=torch.float64, device=device)
    model.class_embeddings, before = next(iter(classes), None), model.class_embeddings
    try:  # One batch after the other: hooks belong to the model.
        sums = data.ranks.in_turn(map(of_batch, mine), zeros, len(data.id)).split(sizes)
    finally:
        model.class_embeddings = before
    values = dict(zip(readers, sums, strict=False))
    if classes:
        slopes = sums[-1].view_as(classes[0]).to(classes[0]).split([part.shape[1] for part in embedded], 1)
        readers = [module for module in pieces.kept if module in of_texts]
        for batch, slope in zip(prompts, slopes, strict=True):
            parts = _products(pieces, readers, partial(model.embed_texts, **batch), slope)
            values |= {module: values.get(module, 0) + part for module, part in zip(readers, parts, strict=True)}
    return pieces.scores([values[module] for module in pieces.kept])


def deviations(model: Hydra, data: ScoringData) -> tuple[dict[Head, float], dict[Unit, float]]:
    """Returns the deviation of what each head and each MLP unit adds to the hidden state, over tokens; no label counts.

    That of a unit is the standard deviation of its activation times the norm of its column in the layer's last map;
    that of a head the root of the sum of the squares of its K entries'. Both are in units of the hidden state.

    Args:
        model: of one member.
    """
    device, prompts, pieces = next(model.parameters()).device, data.all_prompts, _pieces(model)
    sizes = [len(each) * width for each, width in pieces.kept.values()]

    def of_batch(number: int) -> Tensor:
        inputs = {name: tensor.to(device) for name, tensor in [*data.id[number].inputs.items(), *prompts.items()]}
        read: dict[torch.nn.Module, Tensor] = {}
        hooks = [module.register_forward_pre_hook(partial(_keep, read)) for module in pieces.kept]
        try:
            with torch.inference_mode():
                model(**inputs)
        finally:
            for hook in hooks:
                hook.remove()
        mask = inputs.get("attention_mask")
        sums = []
        for module in pieces.kept:
            x = read[module][0].double()
            counts = mask.bool() if mask is not None and mask.shape == x.shape[:-1] else ...
            rows = x[counts].flatten(0, -2)
            sums += [rows.new_tensor([len(rows)]), rows.sum(0), rows.square().sum(0)]
        return torch.cat(sums)

    mine = range(data.ranks.rank, len(data.id), data.ranks.size)
    zeros = torch.zeros(sum(1 + 2 * size for size in sizes), dtype=torch.float64, device=device)
    total = data.ranks.in_turn(map(of_batch, mine), zeros, len(data.id)).split([n for s in sizes for n in (1, s, s)])
    values = []
    for place, (module, (each, width)) in enumerate(pieces.kept.items()):
        count, sums, squares = total[3 * place : 3 * place + 3]
        variance = (squares / count - (sums / count).square()).clamp(min=0)
        weight = module.get_parameter("weight").double()  # [D,R]
        values.append((variance * weight.square().sum(0)).view(len(each), width).sum(1).sqrt())
    return pieces.scores(values)


@dataclass(frozen=True)
class _Pieces:
    """The heads and units of a network by the maps that read them: those of attention, then those of MLPs."""

    model: Hydra
    places: Sequence[tuple[str, int]]  # tower and layer, of each map of attention
    # Which pieces each map reads, and how many entries each has.
    kept: Mapping[torch.nn.Module, tuple[Sequence[int], int]]

    def scores(self, values: Sequence[Tensor]) -> tuple[dict[Head, float], dict[Unit, float]]:
        """Returns the values of all maps by head and by unit."""
        attention, layers = values[: len(self.places)], values[len(self.places) :]
        of_heads = {
            Head(*place, head): value
            for place, (pieces, _), of_layer in zip(self.places, self.kept.values(), attention, strict=False)
            for head, value in zip(pieces, of_layer.tolist(), strict=True)
        }
        return of_heads, _by_unit(self.model.layout, self.model.spec, dict(zip(self.places, layers, strict=True)))


def _pieces(model: Hydra) -> _Pieces:
    towers = model.spec.towers
    places = [(tower.name, layer) for tower in towers for layer in range(tower.layers)]
    heads = [(layer[0], tower.head_width) for tower in towers for layer in model.heads[tower.name]]
    units = [(layer[0], 1) for tower in towers for layer in every_unit(model.layout, model.spec, tower.name)]
    parts = [f"{tower}.layers.{layer}.{part}" for part in ("attention.o", "mlp.fc2") for tower, layer in places]
    readers = map(model.get_submodule, parts)
    return _Pieces(model, places, dict(zip(readers, [*heads, *units], strict=True)))


def _products(
    pieces: _Pieces,
    readers: Sequence[torch.nn.Module],
    answer: Callable[[], Tensor],
    slope: Tensor | None = None,
    others: Sequence[Tensor] = (),
) -> list[Tensor]:
    """Returns the sum over samples and tokens of |a da| by piece that each map reads, then the gradients of `others`.

    Args:
        slope: the gradient of the loss by the answer; None where the answer is the losses.
        others: leaves that the answer depends on.
    """
    read = dict.fromkeys(readers, torch.zeros(()))
    hooks = [module.register_forward_pre_hook(partial(_follow, read)) for module in readers]
    with torch.enable_grad():
        try:
            answers = answer()
        finally:
            for hook in hooks:
                hook.remove()
        slopes = torch.autograd.grad(
            answers, [*read.values(), *others], torch.ones_like(answers) if slope is None else slope
        )
    sums = []
    for (module, a), gradient in zip(read.items(), slopes, strict=False):
        each, width = pieces.kept[module]
        products = (a * gradient).unflatten(-1, (len(each), width)).sum(-1)
        sums.append(products.abs().flatten(0, -2).sum(0, dtype=torch.float64))
    return sums + [gradient.double().flatten() for gradient in slopes[len(readers) :]]


def _keep(read: dict[torch.nn.Module, Tensor], module: torch.nn.Module, inputs: tuple[Tensor]) -> None:
    read[module] = inputs[0]


def _follow(read: dict[torch.nn.Module, Tensor], module: torch.nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    # Weights do not train here, so the first layer's activations have no gradient of their own yet.
    read[module] = inputs[0] if inputs[0].requires_grad else inputs[0].detach().requires_grad_()
    return (read[module],)


def _by_unit(layout: Layout, spec: ModelSpec, values: Mapping[tuple[str, int], Tensor]) -> dict[Unit, float]:
    return {
        Unit(tower, layer, unit): value
        for (tower, layer), of_layer in values.items()
        for unit, value in zip(every_unit(layout, spec, tower)[layer][0], of_layer.tolist(), strict=True)
    }


def mean_gradients(model: Hydra, data: ScoringData, weights: Sequence[Tensor]) -> list[Tensor]:
    """Returns the gradients, float64, of the mean cross-entropy over all samples; batches are added in their order."""
    device, prompts = weights[0].device, data.all_prompts

    def gradient(number: int) -> Tensor:
        with torch.enable_grad():
            loss = cross_entropies(model, data.id[number], prompts, device).sum()
            parts = torch.autograd.grad(loss, weights, materialize_grads=True)
        return torch.cat([part.double().flatten() for part in parts])

    sizes = [weight.numel() for weight in weights]
    for weight in weights:
        weight.requires_grad_(True)
    try:
        total = _sum_over_batches(data, gradient, torch.zeros(sum(sizes), dtype=torch.float64, device=device))
    finally:
        for weight in weights:
            weight.requires_grad_(False)
    # Divided at the end: half precision cannot hold a small part of a gradient.
    means = (total / data.id_samples).split(sizes)
    return [mean.view_as(weight) for mean, weight in zip(means, weights, strict=True)]


def cross_entropies(model: Hydra, batch: Batch, prompts: Mapping[str, Tensor], device: torch.device) -> Tensor:
    """Returns the cross-entropy of each sample, `[B]`, or of each labelled word; of a zero-shot model by prompts."""
    labels = required_labels(batch).to(device)
    inputs = {name: tensor.to(device) for name, tensor in [*batch.inputs.items(), *prompts.items()]}
    logits = batch.answered(model(**inputs).member_logits)
    return model.task.losses(logits.to(torch.promote_types(logits.dtype, torch.float32)), labels, 0.0)


def required_labels(batch: Batch) -> Tensor:
    """Returns the labels of a batch.

    Raises:
        DataError: there are none.
    """
    if batch.labels is None:
        raise DataError("the ID samples have no labels: choose labelled data, or name their column with `label_column`")
    return batch.labels


def _sum_over_batches(data: ScoringData, of_batch: Callable[[int], Tensor], total: Tensor) -> Tensor:
    """Returns the sum over all ID batches and ranks, added up in the order of the batches."""
    mine = range(data.ranks.rank, len(data.id), data.ranks.size)
    with batch_workers(total.device) as in_parallel:
        return data.ranks.in_turn(in_parallel(of_batch, mine), total, len(data.id))


def _prefix(tower: str, layer: int) -> str:
    return f"{tower}.layers.{layer}.attention"


def _of_head(model: Hydra, tensors: Mapping[str, Tensor], head: Head, parts: str) -> list[Tensor]:
    """Returns a head's slices of some of its layer's weights."""
    place = model.heads[head.tower][head.layer][0].index(head.head)
    width = model.spec.tower(head.tower).head_width
    return [
        tensors[f"{_prefix(head.tower, head.layer)}.{part}.weight"].narrow(int(part == "o"), place * width, width)
        for part in parts
    ]
