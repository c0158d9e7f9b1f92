"""Numbers of several labels, against scikit-learn's."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn import metrics
from sklearn.metrics import f1_score, log_loss, precision_recall_fscore_support

from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.labels import fit_label_sets, label_set_metrics, label_set_replicates, tabulate_label_sets


@pytest.fixture
def answered() -> tuple[np.ndarray, np.ndarray]:
    """Logits `[2,80,4]`, rounded so that some are equal, and labels that they know something of; one is never there."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, (80, 4))
    labels[:, 3] = 0
    logits = (2 * labels - 1 + 2 * draw.normal(size=(2, 80, 4))).round(1)
    return logits, labels


def test_equals_scikit_learn(answered: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = answered
    thresholds = (0.4, 0.5, 0.6, 0.7)
    found = label_set_metrics(tabulate_label_sets(logits, labels, 2.0, thresholds))
    p = expit(logits / 2).mean(0)
    chosen = p >= thresholds
    assert found.micro_f1 == pytest.approx(f1_score(labels, chosen, average="micro"))
    assert found.precision == pytest.approx(metrics.precision_score(labels, chosen, average="micro"))
    assert found.recall == pytest.approx(metrics.recall_score(labels, chosen, average="micro"))
    assert found.macro_f1 == pytest.approx(f1_score(labels, chosen, average="macro", zero_division=0))
    assert found.mean_ap == pytest.approx(metrics.average_precision_score(labels[:, :3], p[:, :3], average="macro"))
    assert found.label_auroc == pytest.approx(metrics.roc_auc_score(labels[:, :3], p[:, :3], average="macro"))
    assert found.nll == pytest.approx(np.mean([log_loss(labels[:, i], p[:, i], labels=[0, 1]) for i in range(4)]))
    assert found.brier == pytest.approx(np.square(p - labels).mean())
    assert found.accuracy == (chosen == labels).all(1).mean()
    places = np.clip(np.ceil(p * 15) - 1, 0, 14)
    gaps = [abs((labels - p)[places == one].sum()) for one in range(15)]
    assert found.ece == pytest.approx(sum(gaps) / p.size)


def test_numbers_of_each_label_equal_scikit_learn(answered: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = answered
    task, flags = find_task("multi-label-image-classification"), np.arange(80) < 20
    table = tabulate_label_sets(logits, labels)
    found = task.class_numbers(table, "abcd", flags)
    assert found is not None
    precision, recall, _, samples = precision_recall_fscore_support(labels, table.prediction, zero_division=0)
    assert [one.samples for one in found.values()] == samples.tolist()
    assert [one.precision for one in found.values()] == pytest.approx(precision)
    assert [one.recall for one in found.values()][:3] == pytest.approx(recall[:3]) and found["d"].recall is None
    for at, name in enumerate("abc"):
        there = labels[:, at] == 1
        assert found[name].confidence == pytest.approx(table.probabilities[there, at].mean())
        assert found[name].flagged == pytest.approx(flags[there].mean())
        assert found[name].answers is None


def test_per_sample_quantities() -> None:
    logits = np.log([[[9.0, 1 / 4]], [[1.0, 2 / 3]]])  # probabilities 0.9, 0.2 and 0.5, 0.4
    table = tabulate_label_sets(logits, None)
    assert table.prediction.tolist() == [[1, 0]] and table.msp[0] == pytest.approx(0.7 * 0.7)
    assert table.doubt[0] == pytest.approx(np.log(-2 * np.log(0.7)))
    sure = np.array([[[9.0, -5.0], [-20.0, 30.0]]])
    judged = find_task("multi-label-text-classification").judge(sure / 0.01, None, None)
    for doubt in (tabulate_label_sets(sure, None, 0.01).doubt, -judged.confidence):
        assert doubt == pytest.approx([-500, -2000])  # where the answers' probabilities are exactly 1
    assert table.disagreement.tolist() == [0.0]
    assert tabulate_label_sets(logits, None, thresholds=(0.6, 0.5)).disagreement.tolist() == [1.0]


def test_intervals_are_seeded_and_hold_every_number(answered: tuple[np.ndarray, np.ndarray]) -> None:
    table = tabulate_label_sets(*answered)
    found = label_set_replicates(table, 50, seed=1)
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(vars(label_set_metrics(table)), 50)
    for name, value in vars(label_set_metrics(table)).items():
        low, high = found[name].min(), found[name].max()
        assert low < high and low <= value <= high
    assert (label_set_replicates(table, 50, seed=1)["mean_ap"] == found["mean_ap"]).all()


def test_no_temperature_and_no_threshold_is_better(answered: tuple[np.ndarray, np.ndarray]) -> None:
    logits, labels = answered
    fitted = fit_label_sets(logits, labels)

    def nll(temperature: float) -> float:
        return label_set_metrics(tabulate_label_sets(logits, labels, temperature)).nll

    assert fitted.nll_before == pytest.approx(nll(1.0)) and fitted.nll_after == pytest.approx(nll(fitted.temperature))
    assert min(map(nll, np.geomspace(0.05, 50, 100))) >= fitted.nll_after
    p = tabulate_label_sets(logits, labels, fitted.temperature).probabilities
    assert fitted.thresholds[3] == 0.5  # no sample has it
    for scores, own, threshold in zip(p.T[:3], labels.T, fitted.thresholds, strict=False):
        best = max(f1_score(own, scores >= one) for one in scores)
        assert f1_score(own, scores >= threshold) == pytest.approx(best)
