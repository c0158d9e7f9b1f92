"""The scripts of examples/analyses: their numbers by autograd and by hand, and their command lines."""

import json
import runpy
from collections.abc import Callable
from dataclasses import replace
from math import log, sqrt
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import hydractl
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head
from hydractl.circuit.objective import ScoringData
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads
from tests.circuit.conftest import Case
from tests.circuit.conftest import vit as tiny
from tests.cli.conftest import save_circuit
from tests.references import with_tensors

__all__ = ["tiny"]  # a fixture
ANALYSES = Path(__file__).parents[2] / "examples" / "analyses"
DROPPED = {Head("vision", 1, 2)}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, from which the scripts can be imported."""
    monkeypatch.syspath_prepend(ANALYSES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def noisy(case: Case) -> ScoringData:
    """The OOD samples, with labels of their own."""
    return replace(case, id_inputs=case.ood_inputs, labels=torch.arange(11) % 5).data(6)


def pieces(case: Case) -> list[tuple[str, tuple[slice, ...]]]:
    """The names of the parameters that count and what pruning takes of each, in the table's order: no bias of keys."""
    (head,) = DROPPED
    width = case.model.spec.tower(head.tower).head_width
    rows = slice(head.head * width, (head.head + 1) * width)
    prefix = f"{head.tower}.layers.{head.layer}.attention"
    names = [f"{prefix}.{name}" for name in ("q.weight", "q.bias", "k.weight", "v.weight", "v.bias")]
    return [(name, (rows,)) for name in names] + [(f"{prefix}.o.weight", (slice(None), rows))]


def loss_of(case: Case, data: ScoringData) -> Callable[[Tensor], Tensor]:
    """The mean loss as a function of the weights that pruning takes, one after the other."""
    model, taken = case.model, pieces(case)
    sizes = [model.get_parameter(name)[place].numel() for name, place in taken]

    def loss(flat: Tensor) -> Tensor:
        changed = {}
        for (name, place), values in zip(taken, flat.split(sizes), strict=True):
            changed[name] = model.get_parameter(name).detach().clone()
            changed[name][place] = values.view(changed[name][place].shape)
        total = torch.zeros((), dtype=torch.float64)
        for batch in data.id:
            inputs = {**batch.inputs, **data.all_prompts}
            logits = torch.func.functional_call(model, changed, (), inputs).member_logits[0]
            total = total + F.cross_entropy(logits, batch.labels, reduction="sum")
        return total / data.id_samples

    return loss


def taken_weights(case: Case) -> Tensor:
    return torch.cat([case.model.get_parameter(name)[place].flatten() for name, place in pieces(case)])


def curved(case: Case, data: ScoringData, direction: Tensor) -> Tensor:
    """The Hessian over the weights that pruning takes, times a direction."""
    with sdpa_kernel(SDPBackend.MATH):
        return torch.autograd.functional.vhp(loss_of(case, data), taken_weights(case), direction)[1]


def test_draws_are_products_with_the_hessian(tiny: Case) -> None:
    from noise import measure, random_signs

    found = measure(tiny.model, DROPPED, tiny.data(), [("fog", 3, noisy(tiny))], 3, 4)
    weights = len(taken_weights(tiny))
    assert (found.dropped, found.weights, found.draws) == (1, weights, 3)
    signs = [random_signs(weights, 4, draw, torch.device("cpu")) for draw in range(3)]
    drawn = torch.stack([v * (curved(tiny, noisy(tiny), v) - curved(tiny, tiny.data(), v)) for v in signs])
    (effect,) = found.noisy
    assert effect.curvature.value == pytest.approx(float(drawn.mean()), abs=1e-9)
    assert effect.curvature.error == pytest.approx(float(drawn.mean(1).std()) / sqrt(3), abs=1e-9)
    assert effect.positive.value == pytest.approx(float((drawn.mean(0) > 0).double().mean()), abs=1e-12)
    shares = torch.stack([(drawn[[i for i in range(3) if i != left]].sum(0) > 0).double().mean() for left in range(3)])
    assert effect.positive.error == pytest.approx(sqrt(2 / 3 * float((shares - shares.mean()).square().sum())))


def test_answers_and_changes_of_members_by_hand(dense: Checkpoint) -> None:
    from members import similarity, weights_cosine

    def with_bias(more: list[float]) -> Checkpoint:
        bias = dense.tensors["classifier.bias"].load()
        return with_tensors(dense, {"classifier.bias": bias + torch.tensor(more, dtype=bias.dtype)})

    # Member 0 says 3 to 1 for the first class both times; member 1 says 1 to 3 to the first sample, then the same as 0.
    logits = torch.tensor([[[log(3), 0.0], [log(3), 0.0]], [[0.0, log(3)], [log(3), 0.0]]])
    found = similarity(fuse([dense, with_bias([1, 1, 1, 1, 1])]), logits)
    assert found.disagreement.tolist() == [[0, 0.5], [0.5, 0]]
    kl = (0.75 * log(3) + 0.25 * log(1 / 3)) / 2
    np.testing.assert_allclose(found.kl, [[0, kl], [kl, 0]], atol=1e-7)
    np.testing.assert_allclose(found.logits_cosine, [[1, 0], [0, 1]], atol=1e-7)  # -1 and 1
    cosines = weights_cosine(fuse([dense, with_bias([3, 4, 0, 0, 0]), with_bias([0, 2, 0, 0, 0])]))
    np.testing.assert_allclose(cosines[1:, 1:], [[1, 0.8], [0.8, 1]], atol=1e-12)
    # A head that is gone has given up all its weights: those of another point elsewhere.
    pruned = [drop_heads(dense, [Head("vision", 0, head)]) for head in (0, 1)]
    np.testing.assert_allclose(weights_cosine(fuse([dense, *pruned], ["all"]))[1, 2], 0, atol=1e-12)


def test_overlaps_of_circuits_by_hand(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    model = {"reference": "vit", "sha256": "a" * 64, "towers": {"vision": [2, 4]}}
    files = [
        save_circuit("1.json", (0, 0), (1, 0), (1, 3), objective="acc", model=model),
        save_circuit("2.json", (0, 0), (0, 1), objective="ood", model=model),
        save_circuit("3.json", (0, 0), (1, 0), objective="avg", model=model),
    ]
    monkeypatch.setattr("sys.argv", ["overlap", *files, "--json", "o.json", "--plot", "o.svg"])
    runpy.run_path(str(ANALYSES / "overlap.py"), run_name="__main__")
    content, shown = json.loads(Path("o.json").read_text()), capsys.readouterr().out
    assert (content["budget"], content["shared_by_all"]) == (2, [{"tower": "vision", "layer": 0, "head": 0}])
    # Of 8 heads two random pairs share 2 x 2 / 8. Circuits lose heads of layers 0 and 1, or twice of layer 0.
    rows = [line.split() for line in shown.splitlines()]
    assert ["acc", "ood", "1", "(50%)", "0.5", "0.3113", "0.5000"] in rows
    assert ["acc", "avg", "2", "(100%)", "0.5", "0.0000", "0.0000"] in rows
    assert ["layer", "1", "·■■■", "■■■■", "·■■■"] in rows
    assert ">dropped by how many: vision<" in Path("o.svg").read_text()


def test_heads_of_circuits_scores_and_pruned_models_alike(vit: Path) -> None:
    from overlap import overlap

    hydractl.score_heads(vit, method="magnitude", output="s.json")
    hydractl.prune(vit, method="scores", scores="s.json", budget=3, scope="layer", output="layer.safetensors")
    found = overlap(["s.json", "layer.safetensors"], scope="layer").to_json()
    assert [one["kind"] for one in found["choices"]] == ["scores", "model"]
    assert (found["budget"], len(found["shared_by_all"])) == (3, 3)


def test_budgets_are_evaluations_of_pruned_networks(vit: Path, images: Path, noise: Path) -> None:
    from budgets import budgets

    save_circuit("c.json", (1, 2), (0, 1), (1, 0), (0, 3), objective="avg")
    hydractl.score_heads(vit, method="magnitude", output="s.json")
    hydractl.prune(vit, method="circuit", circuit="c.json", budget=2, output="two")
    methods = {"circuit": ["c.json"], "scores": ["s.json"], "id_data": images, "ood_data": [f"noise={noise}"]}
    points = budgets(vit, ["two"], budgets="1/layer", **methods).to_json()["points"]
    assert [(one["method"], one["dropped"]) for one in points] == [
        ("dense", 0), ("avg", 2), ("magnitude", 2), ("two", 2)]  # fmt: skip
    # The circuit's first head of each layer is also its first two heads.
    for name in ("accuracy", "nll", "mean_auroc", "mean_fpr95", "mean_aupr_out"):
        assert points[1][name] == points[3][name]
    assert points[2]["nll"] != points[0]["nll"]
