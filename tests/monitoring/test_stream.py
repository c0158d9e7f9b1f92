import json
from dataclasses import replace
from itertools import product
from math import log
from typing import Any

import numpy as np
import pytest

from hydractl.checkpoint.calibration import Baseline
from hydractl.errors import ArtifactError
from hydractl.monitoring.findings import find, prometheus
from hydractl.monitoring.stream import EDGES, EVERY, MOST, SHARES, SPANS, Evidence, Known, Scale, Stream, StreamState
from hydractl.reports.monitored import verdict
from hydractl.schema import Origin, parse_json
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import OneAnswer


def h(start: int) -> float:
    return 1 / (1 + log(start))


def test_steps_and_gaps_of_scores_that_are_stored_whole_and_thinned() -> None:
    assert Scale(9, 9).steps.tolist() == [1, 1, 1, 1, 1, 2] == Scale(9, 9).cells.tolist()
    thinned = Scale(4999, 999)  # each step stands for five samples
    assert thinned.steps.tolist() == [2, 10, 20, 50, 100, 250]
    assert thinned.cells.tolist() == [10, 50, 100, 250, 500, 1250]
    low = Scale(9, 9).low(np.array([0.1, 0.2, 0.3], dtype=np.float32))
    assert low.tolist() == [[True] * 6, [False] * 5 + [True], [False] * 6]


def test_two_inputs_by_hand() -> None:
    scale = Scale(9, 9)
    evidence = Evidence(scale)
    assert evidence.value == 1
    evidence.add(scale.low(np.array(0.1)))  # up to every edge: probabilities 1 / 10, and 2 / 10 for the last
    first = h(1) - h(2)
    odd = np.array(SHARES)
    capital = np.array([first * (1 - odd + odd / 0.1)] * 5 + [first * (1 - odd + odd / 0.2)])
    np.testing.assert_allclose(evidence.capital, capital, rtol=1e-14)
    assert evidence.value == pytest.approx(capital.mean() + h(2), rel=1e-14)
    evidence.add(scale.low(np.array(0.2)))  # up to the last only: now (2 + 1) / (10 + 1)
    capital[:5] *= 1 - odd
    capital[5] *= 1 - odd + odd / (3 / 11)
    np.testing.assert_allclose(evidence.capital, capital, rtol=1e-14)


def test_its_mean_over_calibration_sets_and_streams_is_one_at_any_time() -> None:
    scale, length = Scale(3, 3), 7  # every edge is the first of four gaps
    mean = 0.0
    for path in product([True, False], repeat=length):
        evidence, probability = Evidence(scale), 1.0
        for seen, low in enumerate(path):
            chance = (1 + sum(path[:seen])) / (4 + seen)
            probability *= chance if low else 1 - chance
            evidence.add(np.full(len(EDGES), low))
        mean += probability * float(evidence.value)
    assert mean == pytest.approx(1, rel=1e-12)


def test_starts_have_weights_that_sum_to_one() -> None:
    scale = Scale(299, 299)
    evidence = Evidence(scale)
    for _ in range(2 * EVERY + 1):
        before = evidence.capital
        evidence.add(scale.low(np.array(1.0)))
    # Where nothing is won, what is left is what the starts were given.
    assert evidence.value == pytest.approx(float(evidence.capital.mean()) + h(4), rel=1e-14)
    np.testing.assert_allclose(evidence.capital, (before + h(3) - h(4)) * (1 - np.array(SHARES)), rtol=1e-12)


def test_evidence_ends_when_inputs_are_typical_again() -> None:
    scale = Scale(999, 999)
    evidence = Evidence(scale)
    for _ in range(1000):
        evidence.add(scale.low(np.array(0.001)))
    assert 20 < evidence.value < 1.01 * MOST
    for _ in range(3000):
        evidence.add(scale.low(np.array(0.5)))
    assert evidence.value < 20


@pytest.mark.slow
@pytest.mark.parametrize("samples", [300, 5000])
def test_false_alarms_are_as_rare_as_promised(samples: int) -> None:
    runs, alpha, random = 400, 0.2, np.random.default_rng(samples)
    scale = Scale(samples, samples)
    levels = np.sort(random.random((runs, samples)), axis=1)[:, scale.steps - 1]
    parts = (runs, len(EDGES))
    evidence = Evidence(scale, low=np.zeros(parts), capital=np.zeros((*parts, len(SHARES))))
    highest = np.zeros(runs)
    for _ in range(10_000):
        evidence.add(random.random((runs, 1)) < levels)
        highest = np.maximum(highest, evidence.value)
    alarms = (highest >= 1 / alpha).mean()
    assert 0.01 < alarms < alpha  # rarely never: the bound is not idle


BASELINE = Baseline(samples=300, accuracy=0.9, confidence=0.9, threshold=0.6, labels=(150, 150))
TASK = find_task("image-classification")
KNOWN = Known("a" * 64, Scale(300, 300), 0.95, layers=3, classes=("cat", "dog"), baseline=BASELINE, task=TASK)


def answers(count: int, seed: int = 0, odd: float = 0.0) -> list[OneAnswer]:
    """Typical answers, a share of which is odd by the first layer and by all together."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        profile = (1 + random.integers(301, size=3)) / 301
        typical = (1 + int(random.integers(301))) / 301
        if random.random() < odd:
            typical = profile[0] = 1 / 301
        sure = 0.5 + random.random() / 2
        label = "cat" if random.random() < 0.5 else "dog"
        probabilities = np.array([sure, 1 - sure] if label == "cat" else [1 - sure, sure])
        found.append(OneAnswer(typical, sure, label, probabilities, profile))
    return found


def watched(found: list[OneAnswer], stream: Stream | None = None) -> Stream:
    stream = stream or Stream.start(KNOWN, 0.05)
    for one in found:
        stream.add(one)
    return stream


def as_text(stream: Stream) -> str:
    return json.dumps(stream.state(), default=vars)


def again(text: str, known: Known = KNOWN) -> Stream:
    state = parse_json(text, Origin("state", ArtifactError, "write it again")).read(StreamState)
    return Stream.of(state, known, 0.05)


def test_a_stream_that_goes_on_is_that_of_one_run_to_the_last_bit() -> None:
    every = answers(700)
    for cut in (1, 49, 333):
        assert as_text(watched(every[cut:], again(as_text(watched(every[:cut]))))) == as_text(watched(every))


def test_an_alarm_says_since_when_and_which_layers() -> None:
    quiet = watched(answers(1000))
    assert find(KNOWN, 0.05, [quiet]).since is None
    found = find(KNOWN, 0.05, [watched(answers(400, seed=1, odd=0.2), quiet)])
    assert found.since is not None and 900 <= found.since <= 1050
    assert found.alarm_at is not None and 1000 < found.alarm_at < 1150
    assert [one.moved for one in found.layers] == [True, False, False]
    assert found.inputs == 1400 == sum(found.histogram)


def test_layers_that_find_all_a_little_odd_have_moved_too() -> None:
    quiet, random = watched(answers(300)), np.random.default_rng(5)
    for one in answers(300, seed=6):
        # No typicality is small by layer 1; the other two find nothing.
        profile = np.array([one.profile[0], 0.06 + 0.2 * random.random(), one.profile[2]])
        quiet.add(one._replace(profile=profile, typicality=0.06 + 0.2 * random.random()))
    found = find(KNOWN, 0.05, [quiet])
    assert [one.moved for one in found.layers] == [False, True, False]
    assert found.layers[1].odd.value < 0.05 and found.layers[1].typicality.high < 0.3


def test_the_alarm_stays() -> None:
    stream = watched([*answers(300, odd=0.5), *answers(3000, seed=2)])
    found = find(KNOWN, 0.05, [stream])
    assert found.evidence < 20 <= found.highest and found.since is not None


def test_a_history_of_any_length_has_few_spans_and_loses_nothing() -> None:
    stream = watched(answers(8000))
    assert len(stream.history) <= SPANS + 1
    assert sum(span.inputs for span in stream.history) == 8000
    assert sum(span.low for span in stream.history) == stream.evidence.low[3]
    assert sum(span.confidence for span in stream.history) == pytest.approx(stream.confidence[0])


def test_several_streams_share_the_risk_of_a_false_alarm() -> None:
    odd, quiet = watched(answers(60, odd=0.4)), watched(answers(500, seed=3))
    alone, both = (find(KNOWN, 0.05, streams) for streams in ([odd], [quiet, odd]))
    assert both.highest == alone.highest / 2 and both.inputs == 560
    assert alone.since is not None and (both.since is None) == (alone.highest < 40)


def test_without_profiles_or_labels_the_rest_is_watched() -> None:
    known = replace(KNOWN, layers=0, baseline=None)
    stream = Stream.start(known, 0.05)
    for one in answers(200, odd=0.5):
        stream.add(one._replace(profile=None, probabilities=None))
    found = find(known, 0.05, [stream])
    assert found.since is not None and found.layers == []
    assert found.accepted_accuracy.keys() == {"mean confidence"} and found.classes[0].estimated is None


def test_accuracy_is_estimated_for_accepted_inputs_alone_where_too_many_look_odd() -> None:
    typical, photographs = answers(300), [one._replace(typicality=1 / 301, confidence=0.99) for one in answers(200)]
    quiet = find(KNOWN, 0.01, [watched(typical)])
    assert quiet.estimable and quiet.accuracy.keys() == {"mean confidence", "ATC"} and not quiet.accepted_accuracy
    assert quiet.flagged is not None and quiet.flagged.value > 0
    # Of the accepted, the estimate is that of a stream which never saw the others.
    accepted = [one for one in typical if one.typicality >= 0.05]
    expected = find(KNOWN, 0.01, [watched(accepted)]).accuracy
    for streams in ([watched([*typical, *photographs])], [watched(typical), watched(photographs)]):
        mixed = find(KNOWN, 0.01, streams)
        assert not mixed.estimable and mixed.accuracy == {}
        for name, one in expected.items():
            assert mixed.accepted_accuracy[name].value == pytest.approx(one.value)
        assert "cannot be estimated" in verdict(mixed) and f"{len(accepted)} others" in verdict(mixed)
        lines = prometheus(mixed).splitlines()
        assert "hydractl_accuracy_estimable 0" in lines
        assert not any(line.startswith("hydractl_accuracy_estimate{") for line in lines)
        assert sum(line.startswith("hydractl_accuracy_estimate_accepted{") for line in lines) == 2
    none = find(KNOWN, 0.01, [watched(photographs)])
    assert none.accuracy == none.accepted_accuracy == {} and "others" not in verdict(none)


@pytest.mark.parametrize("accept", [0.5, 0.8, 0.95, 0.99, 1.0])
def test_inputs_like_the_calibration_samples_are_rarely_too_odd(accept: float) -> None:
    """Over calibration sets and streams together, at most alpha of the time."""
    random, wrong = np.random.default_rng(0), 0
    known = replace(KNOWN, scale=Scale(100, 100), accept=accept)
    for _ in range(300):
        scores, calibration = random.random(150), np.sort(random.random(100))
        stream = Stream.start(known, 0.05)
        for score in scores:
            stream.add(OneAnswer((1 + int((calibration >= score).sum())) / 101, 0.9, "cat"))
        wrong += not find(known, 0.05, [stream]).estimable
    assert wrong <= 0.05 * 300 + 3 * (0.05 * 0.95 * 300) ** 0.5


SPAN = {"inputs": 120, "evidence": 1.0, "low": 0, "confidence": 1.0}
HOSTILE: dict[str, list[Any]] = {
    "seen": [-1, 10**30, 121, 120.0],
    "low": [[1] * 5, [121] * 6],
    "capital": [[[0.1] * 3] * 5, [[-0.1] * 3] * 6, [[0.1] * 2] * 6],
    "highest": ["20"],
    "alarm": [121],
    "histogram": [[120], [1] * 20],
    "predicted": [{"cat": 119}, {"cow": 120}],
    "recent": [[[[2, 0.5]]], [[]], [[[0, 1.5]]], [[[0, 0.5]]] * 501],
    "history": [
        [],
        [{**SPAN, "layers": [1, 2], "typical": [1.0, 2.0]}],
        [{**SPAN, "layers": [1, 2, 3], "typical": []}],
    ],
    "right": [1],
    "accepted": [[1.0, 1.0, 121], [1.0, -1.0, 1]],
    "unknown": [1],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in HOSTILE.items() for value in values])
def test_a_state_that_contradicts_itself_is_refused(name: str, value: Any) -> None:
    state = json.loads(as_text(watched(answers(120))))
    assert again(json.dumps(state))
    with pytest.raises((ArtifactError, ValueError)):
        again(json.dumps({**state, name: value}))


def test_metrics_are_prometheus_text() -> None:
    known = replace(KNOWN, classes=('a "cat"\\\n', "dog"))
    stream = Stream.start(known, 0.05)
    for one in answers(100):
        stream.add(one._replace(label=known.classes[0] if one.label == "cat" else "dog"))
    lines = prometheus(find(known, 0.05, [stream])).splitlines()
    assert "hydractl_inputs_total 100" in lines and "hydractl_alarm 0" in lines
    assert any(line.startswith('hydractl_class_share{class="a \\"cat\\"\\\\\\\\n"} 0.') for line in lines)
    assert 'hydractl_typicality_bucket{le="+Inf"} 100' in lines
    values = [line.split(" ")[-1] for line in lines if not line.startswith("#")]
    assert all(float(value) >= 0 for value in values)


@pytest.mark.parametrize(
    ("known", "predicted"),
    [
        (replace(KNOWN, task=find_task("multi-label-image-classification")), {"cat": 80, "dog": 80}),
        (replace(KNOWN, task=find_task("image-regression"), classes=(), baseline=None), {}),
    ],
    ids=["labels", "numbers"],
)
def test_a_state_counts_labels_one_by_one_and_none_without_classes(known: Known, predicted: dict[str, int]) -> None:
    stream = Stream.start(known, 0.05)
    for at, one in enumerate(answers(120)):
        stream.add(known.watched(one._replace(label=("cat", "dog") if at % 3 else ())))
    plain = json.loads(as_text(stream))
    assert plain["predicted"] == predicted and not plain["recent"]
    assert (plain["history"][0]["confidence"] is None) == (not predicted)
    assert as_text(again(as_text(stream), known)) == as_text(stream)
    for wrong in ({"predicted": {"cat": 121 if predicted else 1}}, {"recent": [[[0, 0.5]]]}):
        with pytest.raises(ValueError, match="counts do not fit|class that the model|other lengths"):
            again(json.dumps(plain | wrong), known)
