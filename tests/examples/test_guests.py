"""BayesVLM, ViLU and OBA write predictions that `evaluate` reads; BayesVLM's factors are the dense matrix."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import hydractl
from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.open import open_samples
from tests.circuit.conftest import build_case
from tests.cli.conftest import images as images
from tests.cli.conftest import noise as noise
from tests.cli.conftest import vit as vit
from tests.training.conftest import clip as clip
from tests.training.conftest import pair_folder as pair_folder

FOLDER = Path(__file__).parents[2] / "examples" / "baselines"
D, P, N = 4, 3, 5
GENERATOR = torch.Generator().manual_seed(0)
TOKENS = torch.randn(N, D, dtype=torch.float64, generator=GENERATOR)
OTHERS = torch.randn(N, P, dtype=torch.float64, generator=GENERATOR)
WEIGHT = torch.randn(P, D, dtype=torch.float64, generator=GENERATOR)
SCALE = torch.tensor(3.0, dtype=torch.float64)


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return __import__(name)


def run(name: str, arguments: Sequence[object], monkeypatch: pytest.MonkeyPatch) -> None:
    module = script(name, monkeypatch)
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    module.main()


@pytest.mark.parametrize("place", range(N))
def test_factors_of_one_sample_are_the_dense_matrix(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bayesvlm = script("bayesvlm", monkeypatch)
    others = torch.nn.functional.normalize(OTHERS, dim=-1)

    def logits(weight: Tensor) -> Tensor:
        return SCALE * torch.nn.functional.normalize(weight @ TOKENS[place], dim=0) @ others.T

    jacobian = torch.func.jacrev(logits)(WEIGHT).flatten(1)
    p = logits(WEIGHT).softmax(0)
    dense = jacobian.T @ (p.diag() - p.outer(p)) @ jacobian
    output = bayesvlm.output_factor((TOKENS[[place]] @ WEIGHT.T)[None], OTHERS[None], SCALE.view(1, 1, 1))[0]
    ours = torch.kron(output, TOKENS[place].outer(TOKENS[place]))
    torch.testing.assert_close(ours, dense, rtol=0, atol=1e-12)


def test_a_sure_posterior_answers_as_the_network(
    clip: Checkpoint, pair_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bayesvlm = script("bayesvlm", monkeypatch)
    model = hydractl.load(clip)
    model.set_classes(("a", "b"))
    width = {tower: model.spec.tower(tower).width for tower in ("vision", "text")}
    none = bayesvlm.ProjectionPosterior(
        {tower: torch.zeros(1, size, size) for tower, size in width.items()},
        {tower: torch.zeros(1, 8) for tower in width},
    )
    data = open_samples(str(pair_folder), "image")
    with torch.no_grad():
        ours = bayesvlm.answers(model, none, data, 4)["logits"]
    theirs = model.predict(data.inputs).member_logits
    torch.testing.assert_close(ours, torch.from_numpy(theirs), rtol=1e-5, atol=1e-5)


def test_bayesvlm_and_vilu_join_the_table(
    clip: Checkpoint, pair_folder: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = ["--id", images, "--ood", f"far/pairs={pair_folder}"]
    run("bayesvlm", [clip.name, tmp_path / "bayesvlm", "--pairs", pair_folder, *sets], monkeypatch)
    run("vilu", [clip.name, tmp_path / "vilu", "--train", images, "--epochs", 2, *sets], monkeypatch)
    models = hydractl.evaluate({name: f"predictions:{tmp_path / name}" for name in ("bayesvlm", "vilu")}).models
    assert models["vilu"]["score"] == "own confidence"
    assert set(models["bayesvlm"]["ood"]) == set(models["vilu"]["ood"]) != set()


@pytest.mark.parametrize("order", [2, 3])
def test_saliencies_are_derivatives_of_their_loss(order: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, others = build_case("vit", tmp_path), ("position", "cls_token", "classifier")
    named = case.reference.model.named_parameters()
    weights = [weight for name, weight in named if weight.ndim > 1 and not any(part in name for part in others)]
    with sdpa_kernel(SDPBackend.MATH):
        value = torch.nn.functional.cross_entropy(case.reference.model(**case.id_inputs).logits, case.labels)
        for _ in range(order - 1):
            gradients = torch.autograd.grad(value, weights, create_graph=True)
            value = sum((g * w.detach()).sum() for g, w in zip(gradients, weights, strict=True))
        gradients = torch.autograd.grad(value, weights)
    theirs = torch.cat([(g * w).detach().abs().flatten() for g, w in zip(gradients, weights, strict=True)])
    ours = script("oba", monkeypatch).saliencies(case.model, case.data(5), order)
    found = torch.cat([saliency.flatten() for saliency in ours.values()])
    torch.testing.assert_close(found.sort().values, theirs.sort().values, rtol=1e-9, atol=1e-12)


def test_oba_keeps_its_zeros_through_training(
    vit: Path, images: Path, noise: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oba = script("oba", monkeypatch)
    found: list[Tensor] = []
    train = oba.finetune

    def finetune(model: object, samples: object, kept: list[tuple[Tensor, Tensor]], options: object) -> None:
        train(model, samples, kept, options)
        found.extend(weight[~stays] for weight, stays in kept)

    monkeypatch.setattr(oba, "finetune", finetune)
    run("oba", [vit, tmp_path / "oba", "--train", images, "--keep", 0.8, "--steps", 2, "--batch-size", 4,
                "--id", images, "--ood", noise], monkeypatch)  # fmt: skip
    assert sum(part.numel() for part in found) > 0
    assert not any(part.any() for part in found)
    assert "oba" in hydractl.evaluate({"oba": f"predictions:{tmp_path / 'oba'}"}).models
