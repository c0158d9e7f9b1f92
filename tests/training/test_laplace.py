"""BayesVLM: factors and evidence against a dense Laplace by autograd, moments against Monte Carlo, the whole file."""

from __future__ import annotations

from dataclasses import replace
from math import log, pi
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import hydractl
from hydractl.checkpoint.attached import Attached
from hydractl.checkpoint.contents import Checkpoint, identity
from hydractl.errors import CheckpointError, OptionError
from hydractl.families.open import read_checkpoint, write_checkpoint
from hydractl.inference import load_checkpoint
from hydractl.model.posterior import Embedded, ProjectionPosterior, cosine_moments
from hydractl.training.laplace import Factors, Fit, covariances, output_factor, prior_precision, sum_factors
from hydractl.training.pairs import open_pairs, stream_pairs
from tests.training.test_run import float64

D, P, N = 4, 3, 5
GENERATOR = torch.Generator().manual_seed(0)
TOKENS = torch.randn(N, D, dtype=torch.float64, generator=GENERATOR)
OTHERS = torch.randn(N, P, dtype=torch.float64, generator=GENERATOR)
WEIGHT = torch.randn(P, D, dtype=torch.float64, generator=GENERATOR)
SCALE = torch.tensor(3.0, dtype=torch.float64)
CLASSES = ("a b", "c", "d")


def dense(places: list[int]) -> Tensor:
    """The Gauss-Newton matrix [P*D,P*D] of the contrastive loss of some samples by the projection, by autograd."""
    total = torch.zeros(P * D, P * D, dtype=torch.float64)
    others = torch.nn.functional.normalize(OTHERS, dim=-1)
    for place in places:

        def logits(weight: Tensor, tokens: Tensor = TOKENS[place]) -> Tensor:
            return SCALE * torch.nn.functional.normalize(weight @ tokens, dim=0) @ others.T

        jacobian = torch.func.jacrev(logits)(WEIGHT).flatten(1)
        p = logits(WEIGHT).softmax(0)
        total += jacobian.T @ (p.diag() - p.outer(p)) @ jacobian
    return total


def outputs(places: list[int]) -> Tensor:
    return output_factor((TOKENS[places] @ WEIGHT.T)[None], OTHERS[None], SCALE.view(1, 1, 1))[0]


@pytest.mark.parametrize("place", range(N))
def test_of_one_sample_the_factors_are_the_dense_matrix(place: int) -> None:
    ours = torch.kron(outputs([place]), TOKENS[place].outer(TOKENS[place]))
    torch.testing.assert_close(ours, dense([place]), rtol=0, atol=1e-12)


def test_of_equal_inputs_the_factors_are_the_dense_matrix_of_all() -> None:
    # One input contrasted N times: the expectation of the product is the product of the expectations.
    summed = torch.kron(outputs([2] * N) / N**0.5, N * TOKENS[2].outer(TOKENS[2]) / N**0.5)
    torch.testing.assert_close(summed, dense([2] * N), rtol=0, atol=1e-12)


def test_factors_are_sums_over_samples_however_rows_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = outputs(list(range(N)))
    torch.testing.assert_close(whole, sum(outputs([place]) for place in range(N)), rtol=0, atol=1e-12)
    monkeypatch.setattr("hydractl.training.laplace.ROWS", 2)
    torch.testing.assert_close(outputs(list(range(N))), whole, rtol=0, atol=1e-12)


def test_the_precision_maximises_the_evidence_of_the_dense_posterior() -> None:
    factors = Factors((TOKENS.T @ TOKENS)[None], outputs(list(range(N)))[None])
    a, b = factors.inputs[0] / N**0.5, factors.outputs[0] / N**0.5

    def evidence(precision: float) -> float:
        eyes = (precision**0.5 * torch.eye(size, dtype=torch.float64) for size in (P, D))
        matrix = torch.kron(b + next(eyes), a + next(eyes))
        prior = torch.distributions.Normal(0.0, precision**-0.5).log_prob(WEIGHT).sum()
        return float(prior + P * D / 2 * log(2 * pi) - torch.logdet(matrix) / 2)

    found = prior_precision(factors, N, WEIGHT[None])
    best = evidence(found)
    assert all(evidence(found * factor) < best for factor in (0.5, 0.99, 1.01, 2.0))
    assert best == pytest.approx(max(evidence(x) for x in np.geomspace(1e-4, 1e4, 400)), abs=1e-3)


def test_the_variance_of_embeddings_is_that_of_the_dense_covariance() -> None:
    factors = Factors((TOKENS.T @ TOKENS)[None], outputs(list(range(N)))[None])
    inputs, variances = covariances(factors, N, pseudo_count=7.0, precision=2.0)
    sides = (factors.outputs[0] / N**0.5, factors.inputs[0] / N**0.5)
    precision = [7**0.5 * one + 2**0.5 * torch.eye(len(one), dtype=torch.float64) for one in sides]
    dense_covariance = torch.linalg.inv(torch.kron(*precision))
    lift = torch.kron(torch.eye(P, dtype=torch.float64), TOKENS[1][None])  # embedding = lift @ vec(W)
    posterior = ProjectionPosterior({"vision": inputs}, {"vision": variances})
    found = posterior.embed("vision", TOKENS[None], (TOKENS @ WEIGHT.T)[None])
    torch.testing.assert_close(found.variance[0, 1], (lift @ dense_covariance @ lift.T).diagonal(), rtol=1e-10, atol=0)


def test_the_moments_of_the_cosine_are_those_of_monte_carlo() -> None:
    x, y = (Embedded(m[None], (0.05 + m.square() / 20)[None]) for m in (TOKENS[:2, :P], OTHERS[:3]))
    mean, variance = cosine_moments(x, y)
    drawn = []
    for one in (x, y):
        noise = torch.randn(200_000, *one.mean.shape[1:], dtype=torch.float64, generator=GENERATOR)
        drawn.append(one.mean + one.variance.sqrt() * noise)
    lengths = [one.square().sum(-1).mean(0).sqrt() for one in drawn]
    cosine = (drawn[0] / lengths[0][:, None]) @ (drawn[1] / lengths[1][:, None]).mT
    torch.testing.assert_close(mean[0], cosine.mean(0), rtol=0, atol=0.005)
    torch.testing.assert_close(variance[0], cosine.var(0), rtol=0.03, atol=0)
    exact = torch.nn.functional.cosine_similarity(drawn[0][:, :, None], drawn[1][:, None], dim=-1)
    assert (exact.mean(0) - mean[0]).abs().max() < 0.05  # the paper's approximation, of lengths by their expectation


def test_pairs_are_streamed_to_the_same_factors(clip: Checkpoint, pair_folder: Path) -> None:
    model = load_checkpoint(float64(clip))
    read = [open_pairs(str(pair_folder)), stream_pairs(str(pair_folder))]
    (one, count), (two, again) = (sum_factors(model, pairs, Fit(contrast=4, batch_size=3)) for pairs in read)
    assert count == again == 10
    for tower in ("vision", "text"):
        torch.testing.assert_close(one[tower].inputs, two[tower].inputs, rtol=0, atol=1e-12)
        torch.testing.assert_close(one[tower].outputs, two[tower].outputs, rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def bayesian(clip: Checkpoint, pair_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bayes") / "bayes"
    made = hydractl.calibrate(float64(clip), method="bayesvlm", data=str(pair_folder), output=path)
    assert made.fitted.pairs == 10 and made.fitted.pseudo_count == 10
    return path


def probabilities(model: object, pair_folder: Path) -> Tensor:
    loaded = hydractl.load(model)  # type: ignore[arg-type]
    loaded.set_classes(CLASSES, "{label}")
    return loaded.predict([image for image, _ in open_pairs(str(pair_folder)).inputs]).probabilities


def test_predictions_are_less_sure_and_those_of_a_sure_posterior_the_networks(
    bayesian: Path, clip: Checkpoint, pair_folder: Path
) -> None:
    plain, ours = probabilities(float64(clip), pair_folder), probabilities(bayesian, pair_folder)
    assert ours.max(-1).values.mean() < plain.max(-1).values.mean()
    checkpoint = read_checkpoint(bayesian)
    assert checkpoint.attached is not None
    tensors = {
        name: replace(tensor, load=lambda tensor=tensor: tensor.load() * 1e-12)  # type: ignore[misc]
        for name, tensor in checkpoint.attached.tensors.items()
    }
    sure = replace(checkpoint, attached=Attached(checkpoint.attached.form, tensors))
    torch.testing.assert_close(probabilities(sure, pair_folder), plain, rtol=0, atol=1e-9)


def test_evaluate_uses_it_and_takes_no_temperature(bayesian: Path, pair_folder: Path, tmp_path: Path) -> None:
    images = [image for image, _ in open_pairs(str(pair_folder)).inputs]
    data = [(image, place % 3) for place, image in enumerate(images)]
    options = {"id_data": data, "classes": CLASSES, "match_labels": "index", "template": "{label}", "batch_size": 4}
    found = hydractl.evaluate({"bayes": str(bayesian)}, temperature=3.0, save_logits=tmp_path / "logits", **options)
    entry = found.models["bayes"]
    assert entry["temperature"]["value"] == 1.0
    saved = load_file(tmp_path / "logits" / "bayes" / "id.safetensors")["logits"]
    torch.testing.assert_close(saved.softmax(-1)[0], probabilities(bayesian, pair_folder), rtol=0, atol=1e-12)
    plain = hydractl.evaluate({"clip": load_plain(bayesian)}, **options).models["clip"]["cost"]
    assert entry["cost"]["parameters"] - plain["parameters"] == 2 * (16 * 16 + 8)
    # The spread of one image, and two products with the texts.
    assert entry["cost"]["multiply_adds"] - plain["multiply_adds"] == 16 * 16 + 2 * 3 * 8 + 16 * 8


def load_plain(path: Path) -> Checkpoint:
    return replace(read_checkpoint(path), attached=None)


def test_a_file_holds_all_of_it_or_is_refused(bayesian: Path, clip: Checkpoint, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(bayesian)
    assert checkpoint.attached is not None
    assert identity(checkpoint) == identity(float64(clip))  # the network is the same
    kept = dict(checkpoint.attached.tensors)
    missing = replace(
        checkpoint, attached=Attached(checkpoint.attached.form, {k: v for k, v in kept.items() if "vision" not in k})
    )
    with pytest.raises(CheckpointError, match=r"bayesvlm.vision.input_covariance is missing, expected .1, 16, 16."):
        write_checkpoint(missing, tmp_path / "missing")
    more = replace(checkpoint, attached=Attached(checkpoint.attached.form, {**kept, "x": kept["text.output_variance"]}))
    with pytest.raises(CheckpointError, match=r"bayesvlm.x has shape .1, 8., nothing claims it"):
        write_checkpoint(more, tmp_path / "more")


def test_what_does_not_go_together_is_refused(
    bayesian: Path, vit: Checkpoint, pair_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match="takes no temperature"):
        hydractl.calibrate(bayesian, data=str(pair_folder))
    with pytest.raises(OptionError, match="is no zero-shot model"):
        hydractl.calibrate(vit, method="bayesvlm", data=str(pair_folder))
    for option, value in (("classes", ["a"]), ("template", "a {label}"), ("match_labels", "index")):
        with pytest.raises(OptionError, match=f"`{option}` has no effect"):
            hydractl.calibrate(bayesian, method="bayesvlm", data=str(pair_folder), **{option: value})
    with pytest.raises(OptionError, match="`contrast` has no effect with `method` temperature"):
        hydractl.calibrate(bayesian, data=str(pair_folder), contrast=4)
    with pytest.raises(OptionError, match="bayesvlm has no place in another format"):
        hydractl.export(bayesian, format="hf", output=tmp_path / "hf")


def test_what_changes_the_network_leaves_it_out(bayesian: Path) -> None:
    assert hydractl.prune(bayesian, method="random", budget=1).checkpoint.attached is None
