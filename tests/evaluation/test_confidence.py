"""Failure predictors: a confidence beside logits or in their place is what a system is scored by."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from hydractl import evaluate
from hydractl.errors import DataError

N = 40
GENERATOR = np.random.default_rng(0)
LOGITS = GENERATOR.normal(size=(2, N, 3))
LABELS = GENERATOR.integers(3, size=N)
CONFIDENCE = GENERATOR.normal(size=N)  # no probability, which it need not be
OUTSIDE = GENERATOR.normal(size=30) - 1
SOFTMAX = (np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)).mean(0)
CORRECT = SOFTMAX.argmax(-1) == LABELS


def write(folder: Path, inside: dict[str, Any], outside: dict[str, Any]) -> str:
    (folder / "ood" / "far").mkdir(parents=True)
    np.savez(folder / "id.npz", **inside)
    np.savez(folder / "ood" / "far" / "noise.npz", **outside)
    return f"predictions:{folder}"


@pytest.fixture
def alone(tmp_path: Path) -> str:
    return write(tmp_path / "alone", {"confidence": CONFIDENCE, "correct": CORRECT}, {"confidence": OUTSIDE})


BESIDE = {"logits": LOGITS, "labels": LABELS, "confidence": CONFIDENCE}


def test_a_confidence_scores_errors_and_ood_as_scikit_learn_does(alone: str, tmp_path: Path) -> None:
    beside = write(tmp_path / "beside", BESIDE, {"logits": LOGITS[:, :30], "confidence": OUTSIDE})
    found = evaluate({"alone": alone, "beside": beside}, report=tmp_path / "report", ood_score="energy")
    detected = roc_auc_score(np.repeat([0, 1], [N, 30]), -np.concatenate([CONFIDENCE, OUTSIDE]))
    alarms, caught, _ = roc_curve(~CORRECT, -CONFIDENCE, drop_intermediate=False)
    errors = {"auroc": roc_auc_score(~CORRECT, -CONFIDENCE), "fpr95": alarms[np.argmax(caught >= 0.95)]}
    errors["aupr"] = average_precision_score(~CORRECT, -CONFIDENCE)
    for entry in found.models.values():
        for name, value in errors.items():
            assert entry["selective"][f"misclassification_{name}"] == pytest.approx(value, abs=1e-12)
        assert entry["ood"]["noise"]["auroc"] == pytest.approx(detected, abs=1e-12)
        assert entry["id"]["accuracy"] == CORRECT.mean()
        assert entry["score"] == "own confidence"
    assert found.models["alone"]["selective"] == found.models["beside"]["selective"]
    assert found.models["alone"]["id"].keys() == {"samples", "accuracy"}
    assert found.models["beside"]["id"]["nll"] > 0
    # The same draws: accuracy differs by nothing at all.
    assert found.models["beside"]["difference"]["id"]["accuracy"] == {"value": 0.0, "interval": [0.0, 0.0]}
    assert "Scored by a confidence of their own: alone, beside." in (tmp_path / "report" / "index.html").read_text()


def test_a_temperature_is_fitted_on_logits(alone: str) -> None:
    folder = Path(alone.removeprefix("predictions:"))
    np.savez(folder / "calibration.npz", confidence=CONFIDENCE, correct=CORRECT)
    with pytest.raises(DataError, match="save logits as well"):
        evaluate(alone, temperature="fit")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"confidence": CONFIDENCE}, "does not say what is right: add an array correct, true or false for each"),
        ({"confidence": CONFIDENCE[:3], "correct": CORRECT}, "correct of shape .40.*: expected 3 of true and false"),
        ({"confidence": CONFIDENCE[None], "correct": CORRECT}, "confidence of shape .1, 40."),
        ({"confidence": CONFIDENCE.astype(np.float16), "correct": CORRECT}, "half precision"),
        ({"logits": LOGITS, "labels": LABELS, "correct": CORRECT}, "holds correct beside logits"),
        ({"correct": CORRECT}, "holds no logits, probabilities or confidence: add"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "id.npz", **arrays)
    with pytest.raises(DataError, match=message):
        evaluate(f"predictions:{tmp_path}")


@pytest.mark.parametrize("outside", [{"logits": LOGITS}, {"confidence": OUTSIDE}])
def test_every_set_holds_what_the_id_set_holds(outside: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="noise.npz: "):
        evaluate(write(tmp_path / "a", BESIDE, outside))
