import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hydractl.checkpoint.heads import Head, Unit, member_heads
from hydractl.circuit import saliency
from hydractl.circuit.objective import OBJECTIVES
from hydractl.circuit.search import ablation_scores
from hydractl.circuit.separation import outputs_of, separations
from hydractl.model.hydra import to_checkpoint, without_heads
from hydractl.surgery.choose import by_taylor
from hydractl.surgery.slicing import drop_units
from tests.circuit.conftest import ID, Case, batches
from tests.circuit.naive import score
from tests.surgery.test_slicing import output_projection
from tests.surgery.test_units import unit_reader

QKV = {
    "vit": "vit.layers.{layer}.attention.{part}_proj",
    "bert": "bert.encoder.layer.{layer}.attention.self.{word}",
    "clip": "{tower}_model.encoder.layers.{layer}.self_attn.{part}_proj",
}
WORDS = {"q": "query", "k": "key", "v": "value"}


def losses(case: Case) -> Tensor:
    output = case.reference.model(**case.id_inputs, **case.prompts)
    logits = output.logits_per_image if "logits_per_image" in output else output.logits
    return F.cross_entropy(logits, case.labels, reduction="none")


def their_taylor(case: Case) -> dict[Head, float]:
    model = case.reference.model
    model.zero_grad()
    losses(case).mean().backward()
    scores = {}
    for head in member_heads(case.model.heads, 0):
        width = case.model.spec.tower(head.tower).head_width
        parts = []
        for part in "qkv":
            name = QKV[case.reference.name].format(tower=head.tower, layer=head.layer, part=part, word=WORDS[part])
            weight = model.get_submodule(name).weight
            product = (weight * weight.grad)[head.head * width : (head.head + 1) * width]
            parts.append(product.abs().sum() / product.numel())
        scores[head] = float(sum(parts).detach() / 3)
    return scores


@pytest.mark.parametrize("batch_size", [5, 100])
def test_taylor(case: Case, batch_size: int) -> None:
    assert saliency.taylor_scores(case.model, case.data(batch_size)) == pytest.approx(their_taylor(case), abs=1e-10)


@pytest.mark.parametrize(("kind", "batch_size"), [(Head, 100), (Unit, 5)])
def test_taylor_of_activations(case: Case, kind: type[Head] | type[Unit], batch_size: int) -> None:
    read: dict[tuple[str, int], Tensor] = {}
    for tower in case.model.spec.towers:
        for layer in range(tower.layers):

            def keep(_: object, inputs: tuple[Tensor], place: tuple[str, int] = (tower.name, layer)) -> None:
                inputs[0].retain_grad()
                read[place] = inputs[0]

            reader = output_projection(case.reference, Head(tower.name, layer, 0))
            if kind is Unit:
                reader = unit_reader(case.reference, tower, layer)
            reader.register_forward_pre_hook(keep)
    losses(case).sum().backward()
    scores = saliency.taylor_scores_of_activations(case.model, case.data(batch_size))[kind is Unit]
    for (tower, layer), activations in read.items():
        width = case.model.spec.tower(tower).head_width if kind is Head else 1
        products = (activations * activations.grad).unflatten(-1, (-1, width)).sum(-1)
        expected = products.abs().flatten(0, -2).sum(0)
        found = [scores[kind(tower, layer, piece)] for piece in range(len(expected))]
        assert found == pytest.approx(expected.tolist(), abs=1e-10)


def test_magnitudes_of_units(case: Case) -> None:
    checkpoint = to_checkpoint(case.model)
    gone = [Unit(case.model.spec.towers[0].name, 1, unit) for unit in (0, 3)]
    scores = saliency.magnitudes_of_units(drop_units(checkpoint, gone))
    assert scores.keys() == saliency.magnitudes_of_units(checkpoint).keys() - set(gone)
    unit = Unit(*gone[0][:2], 5)
    rows, columns = (
        checkpoint.tensors[f"{unit.tower}.layers.1.mlp.{name}.weight"].load().double() for name in ("fc1", "fc2")
    )
    assert scores[unit] == pytest.approx(float(torch.cat([rows[5], columns[:, 5]]).norm()), abs=1e-10)


def test_sequential_pruning_takes_gradients_anew_after_each_layer(case: Case) -> None:
    heads = [head for head in member_heads(case.model.heads, 0) if head.tower == case.model.spec.towers[0].name]
    naive, expected = case.naive(), []
    for layer, share in enumerate((2, 2, 1)):
        scores = {head: score for head, score in their_taylor(case).items() if head in heads and head.layer == layer}
        for head in sorted(scores, key=scores.__getitem__)[:share]:
            expected.append(head)
            naive.turn(head, on=False)
    assert by_taylor(case.model, case.data(5), heads, 5) == expected


def test_scores_of_a_network_with_a_layer_without_heads(case: Case) -> None:
    """The last layer, and with it nothing that a gradient goes through; a search may well come to that."""
    gone = {head for head in member_heads(case.model.heads, 0) if head.layer == 2 or head.head == 1}
    pruned, naive = without_heads(case.model, frozenset(gone)), case.naive()
    for head in gone:
        naive.turn(head, on=False)
    left = member_heads(pruned.heads, 0)
    of_heads, of_units = saliency.taylor_scores_of_activations(pruned, case.data(5))
    assert of_heads.keys() == set(left) and of_units
    assert separations(pruned, case.data(5)).keys() == {head for head in left if head.tower == left[0].tower}
    assert ablation_scores(pruned, case.data(5), "avg").keys() == set(left)


def test_separation(case: Case) -> None:
    tower = case.model.spec.towers[0]
    seen: dict[int, Tensor] = {}
    for layer in range(tower.layers):
        projection = output_projection(case.reference, Head(tower.name, layer, 0))
        projection.register_forward_pre_hook(lambda _m, inputs, layer=layer: seen.update({layer: inputs[0][:, 0]}))
    outputs = []
    for inputs in (case.id_inputs, case.ood_inputs):
        with torch.no_grad():
            case.reference.model(**inputs, **case.prompts)
        outputs.append({layer: z.numpy() for layer, z in seen.items()})
    found = separations(case.model, case.data(4))
    assert len(found) == tower.layers * tower.heads
    for head, entry in found.items():
        columns = slice(head.head * tower.head_width, (head.head + 1) * tower.head_width)
        inside, outside = (z[head.layer][:, columns] for z in outputs)
        gap = inside.mean(0) - outside.mean(0)
        assert entry.euclidean == pytest.approx(np.linalg.norm(gap), abs=1e-10)
        expected = np.sqrt(gap @ np.linalg.inv(np.cov(inside.T)) @ gap)
        assert entry.mahalanobis == pytest.approx(expected, rel=1e-8)
        assert entry.mean == (entry.euclidean + entry.mahalanobis) / 2
    heads = [Head(tower.name, 2, 1), Head(tower.name, 0, 3 % tower.heads)]
    said = outputs_of(case.model, batches(case.id_inputs, None, 4), heads, ID, case.data(5).ranks)
    for head in heads:
        columns = slice(head.head * tower.head_width, (head.head + 1) * tower.head_width)
        np.testing.assert_allclose(said[head], outputs[0][head.layer][:, columns], rtol=0, atol=1e-10)


def test_ablation(case: Case) -> None:
    naive, samples = case.naive(), (case.id_inputs, case.labels, case.ood_inputs)
    whole, without = naive.measure(*samples), {}
    for head in naive.heads:
        with naive.without([head]):
            without[head] = naive.measure(*samples)
    for objective in OBJECTIVES:
        expected = {head: score(objective, *whole) - score(objective, *found) for head, found in without.items()}
        assert ablation_scores(case.model, case.data(), objective) == pytest.approx(expected, abs=1e-12)
