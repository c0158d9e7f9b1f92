import numpy as np
import pytest

from hydractl.checkpoint.calibration import Calibration
from hydractl.evaluation.results import Difference, LabelledMetrics, Ood, Resampled, SystemResult
from hydractl.evaluation.run import SystemPredictions
from hydractl.evaluation.system_numbers import SystemNumbers, assemble, group_means, numbers_of, resample
from hydractl.metrics.classification import tabulate
from hydractl.metrics.detection import ood_metrics
from hydractl.systems.saved_file import SAVED
from hydractl.systems.system import Cost, SetKey, plain

COST = Cost(members=2, parameters=10, multiply_adds=20, performed=20, tokens=4)
ID = SetKey("id", "pets")
SETS = (("a", "near", 30), ("b", "far", 30), ("c", "far", 9), ("d", None, 11))


def predictions(seed: int, sharpness: float = 1.0) -> SystemPredictions:
    generator = np.random.default_rng(seed)
    labels = generator.integers(4, size=60)
    logits = generator.normal(size=(2, 60, 4))
    logits[:, np.arange(60), labels] += sharpness
    tables = {ID: tabulate(logits, labels)}
    for name, group, samples in SETS:
        tables[SetKey("ood", name, group)] = tabulate(generator.normal(size=(2, samples, 4)))  # type: ignore[arg-type]
    return SystemPredictions(SAVED, Calibration(), None, tables, {key: -table.msp for key, table in tables.items()})


def test_means_are_flat_over_the_sets_of_a_group() -> None:
    found = predictions(0)
    result = numbers_of(found, COST)
    inside = -found.tables[ID].msp
    auroc = {key.name: ood_metrics(inside, found.scores[key]).auroc for key in found.scores if key.role == "ood"}
    assert {name: one.auroc for name, one in result.ood.items()} == auroc
    assert result.ood_means["near"].auroc == auroc["a"]
    assert result.ood_means["far"].auroc == pytest.approx((auroc["b"] + auroc["c"]) / 2)
    assert result.ood_means["all"].auroc == pytest.approx(sum(auroc.values()) / 4)
    assert result.ood_means["all"].samples == 30 + 30 + 9 + 11
    assert group_means({}) == {}


def test_json_leaves_out_what_was_not_measured() -> None:
    entry = plain(numbers_of(predictions(0), COST))
    assert list(entry) == ["id", "selective", "ood", "ood_means", "temperature", "cost"]
    assert ("group" in entry["ood"]["a"], "group" in entry["ood"]["d"]) == (True, False)
    assert entry["temperature"] == {"value": 1.0}
    assert entry["cost"] == vars(COST)
    assert plain(numbers_of(predictions(0), None))["cost"] is None


def test_replicates_are_the_metrics_of_resampled_samples() -> None:
    found = predictions(0)
    drawn = resample(found, 3, seed=5)
    scores = {key.name: scores for key, scores in found.scores.items()}
    generator = np.random.default_rng(5)
    for r in range(3):
        inside, *outside = (generator.integers(n, size=n) for n in (60, 30, 30, 9, 11))
        drawn_sets = zip("abcd", outside, strict=True)
        expected = [ood_metrics(scores["pets"][inside], scores[name][rows]).auroc for name, rows in drawn_sets]
        assert [drawn.ood[name]["auroc"][r] for name in "abcd"] == pytest.approx(expected)
        assert drawn.ood_means["all"]["auroc"][r] == pytest.approx(np.mean(expected))


def test_intervals_hold_the_number_and_differences_are_paired() -> None:
    weak, strong = predictions(0), predictions(0, sharpness=4.0)
    named = (("weak", weak), ("again", weak), ("strong", strong))
    parts = [SystemNumbers(name, numbers_of(found, None), resample(found, 200, 0)) for name, found in named]
    systems = assemble(parts, compare="strong")
    first, again, other = (systems[name] for name in ("weak", "again", "strong"))
    low, high = first.intervals.ood_means["all"]["auroc"]
    assert low < first.ood_means["all"].auroc < high
    assert first.difference is None
    # The same predictions differ by nothing at all: draws are the same for every system.
    assert again.difference.id["accuracy"] == Difference(0.0, (0.0, 0.0))
    found = other.difference.id["accuracy"]
    assert found.value == other.id.accuracy - first.id.accuracy
    assert 0 < found.interval[0] < found.value < found.interval[1]
    # Another system with the predictions of the first is as far away.
    assert other.rivals == {"again": other.difference} and again.rivals is None
    assert assemble(parts, compare="weak")["weak"].rivals == {
        "again": again.difference,
        "strong": assemble(parts[::-1])["weak"].difference,
    }


def test_shares_of_0_and_1_have_intervals_with_a_width() -> None:
    right, even = np.ones(40), {"auroc": np.ones(40), "fpr95": np.zeros(40)}
    ood = {"far": Ood(samples=3, auroc=1.0, fpr95=0.0, ood_share=3 / 103)}
    system = SystemResult(id=LabelledMetrics(samples=100, accuracy=1.0, nll=0.5), ood=ood)
    drawn = Resampled({"accuracy": right, "nll": 0.5 * right}, {"far": even})
    intervals = assemble([SystemNumbers("m", system, drawn)])["m"].intervals
    # Wilson: N / (N + 1.96^2)
    assert intervals.id["accuracy"] == pytest.approx((100 / 103.8415, 1), abs=1e-5)
    assert intervals.ood["far"]["auroc"] == pytest.approx((3 / 6.8415, 1), abs=1e-4)
    assert intervals.ood["far"]["fpr95"] == pytest.approx((0, 3.8415 / 6.8415), abs=1e-4)
    assert intervals.id["nll"] == (0.5, 0.5)


def test_an_interval_holds_its_number_where_resampling_is_biased() -> None:
    drawn = Resampled({"ece": np.array([0.04, 0.05, 0.06]), "accuracy": np.array([0.9, 1.0, 1.0])})
    system = SystemResult(id=LabelledMetrics(ece=0.02, accuracy=1.0), ood={})
    found = assemble([SystemNumbers("m", system, drawn)])["m"].intervals
    assert found.id["ece"] == pytest.approx([0.0105, 0.0295], abs=1e-5)  # about .02, not about .05
    assert found.id["accuracy"][1] == 1.0  # never beyond what can be
