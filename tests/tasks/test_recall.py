"""A promise of recall: thresholds by hand, coverage by simulation, and the same answers wherever the file goes."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from scipy.special import logit

import hydractl
from hydractl.calibration.promises import WantedPromises, fit_recall, measure_recall
from hydractl.checkpoint.calibration import Calibration, FittedOod, OodFit, PromisedRecall
from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import CheckpointError, DataError, OptionError
from hydractl.evaluation.checkup import promises_of
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.metrics.scaling import least_probability
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Answers
from tests.cli.conftest import LABELS
from tests.factories import TAGS

DRAWS, FRESH = 200, 300


def of_labels(p: Any, truth: Any) -> Answers:
    task = find_task("multi-label-image-classification")
    return Answers(task=task, member_logits=logit(np.array(p))[None], truth=np.array(truth))


def of_words(p: Any, tags: list[list[str]]) -> Answers:
    places = [(sentence, at) for sentence, row in enumerate(tags) for at in range(len(row))]
    truth = np.array([TAGS.index(tag) for row in tags for tag in row])
    logits = np.log(np.array(p))[None]
    task = find_task("token-classification")
    return Answers(task=task, member_logits=logits, truth=truth, classes=TAGS, places=np.array(places))


def promised(answers: Answers, promise: PromisedRecall | None) -> Answers:
    return replace(answers, calibration=replace(answers.calibration, recall=promise))


def test_labels_worked_out_by_hand() -> None:
    # Samples with labels a and b, a, b, and none. With the bound .4 the first misses half of its labels: of three
    # samples that is a share of .5 / 3, and (.5 + 1) / (3 + 1) is at most one half; with .6 it is 2.5 / 4.
    answers = of_labels([[0.9, 0.2], [0.6, 0.3], [0.45, 0.4], [0.7, 0.1]], [[1, 1], [1, 0], [0, 1], [0, 0]])
    promise = fit_recall(answers, WantedPromises(recall=0.5))
    assert promise == PromisedRecall(0.5, (3,), (pytest.approx(0.4),))
    assert promised(answers, promise).labels == [("LABEL_0",), ("LABEL_0",), ("LABEL_0", "LABEL_1"), ("LABEL_0",)]
    done = measure_recall(promised(answers, promise))
    # Answered with .5: a of the samples 1, 2 and 4, of which two are right; with .4 also both of the third.
    assert done is not None and (done.kept, done.before) == (pytest.approx(2.5 / 3), pytest.approx(2 / 3))
    assert done.precision == pytest.approx(3 / 5) and done.kept_interval is not None
    by_label = fit_recall(answers, WantedPromises(recall=0.5, by_class=True))
    assert by_label is not None and by_label.samples == (2, 2)
    assert by_label.least == pytest.approx((0.6, 0.2))  # (0 + 1) / 3 is at most one half, (1 + 1) / 3 is not


def test_spans_worked_out_by_hand() -> None:
    tags = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"], ["O"]]
    p = [
        [0.1, 0.6, 0.2, 0.05, 0.05], [0.5, 0.2, 0.1, 0.1, 0.1], [0.4, 0.05, 0.05, 0.3, 0.2], [0.1, 0.1, 0.1, 0.6, 0.1],
        [0.9, 0.02, 0.03, 0.02, 0.03], [0.5, 0.05, 0.05, 0.2, 0.2], [0.96, 0.01, 0.01, 0.01, 0.01],
    ]  # fmt: skip
    answers = of_words(p, tags)
    # The spans have .3 (the least of .8 and .3) and .7 in the first sentence, .4 in the second; the third has none.
    parts = answers.task.true_parts(answers)
    assert parts is not None and parts.right == pytest.approx([0.3, 0.7, 0.4])
    assert (parts.samples.tolist(), parts.labels.tolist()) == ([0, 0, 1], [0, 1, 1])
    promise = fit_recall(answers, WantedPromises(recall=0.4))
    assert promise == PromisedRecall(0.4, (2,), (pytest.approx(0.4),))  # (.5 + 1) / 3 <= .6, with .7 it is 2.5 / 3
    texts = {"texts": ["Anna Lee in Rome", "in Rome", "in"]}
    places = [[(0, 4), (5, 8), (9, 11), (12, 16)], [(0, 2), (3, 7)], [(0, 2)]]
    told = replace(promised(answers, promise), spans=places, **texts)
    assert [[span[:4] for span in row] for row in told.offered] == [
        [("PER", "Anna", 0, 4), ("LOC", "in Rome", 9, 16)], [("LOC", "Rome", 3, 7)], [],
    ]  # fmt: skip
    assert told.offered[0][1].confidence == pytest.approx(0.5) and told.row(0)["offered"][0]["label"] == "PER"
    assert replace(told, calibration=Calibration()).offered is None
    done = measure_recall(promised(answers, promise))
    # Three of four offered words are part of a span of their kind; of the answer Anna and the first Rome, both.
    assert done is not None and (done.kept, done.before) == (0.75, 1.0) and done.precision == pytest.approx(3 / 4)


def test_with_one_label_a_sample_it_is_the_rank_of_prediction_sets() -> None:
    generator = np.random.default_rng(0)
    for count in (19, 20, 57, 200):
        right = generator.random(count)
        rank = int(np.ceil(round(0.95 * (count + 1), 6)))
        assert least_probability(right, 0.95) == np.sort(right)[count - rank]
        assert least_probability(right, 0.95, generator.permutation(count)) == np.sort(right)[count - rank]
    assert least_probability(generator.random(18), 0.95) is None


def drawn_labels(count: int, seed: int) -> Answers:
    """Rare and frequent labels, some samples without any; a hard sample hides all of its labels."""
    generator = np.random.default_rng(seed)
    truth = (generator.random((count, 4)) < [0.5, 0.3, 0.2, 0.15]).astype(np.int64)
    scores = generator.normal(size=(count, 4)) + 3 * truth - 1 - 2 * generator.random((count, 1)) * truth
    return replace(of_labels(np.full((1, 4), 0.5), truth), member_logits=scores[None])


def drawn_words(count: int, seed: int) -> Answers:
    """Sentences of three to eight words with spans of one or two words, in a third of them none."""
    generator, tags = np.random.default_rng(seed), []
    for size, spans in zip(generator.integers(3, 9, count), generator.integers(0, 3, count), strict=True):
        row = ["O"] * int(size)
        for at in generator.permutation(size - 1)[:spans]:
            row[at : at + 2] = [f"B-{(kind := generator.choice(['PER', 'LOC']))}", f"I-{kind}"]
        tags.append(row)
    words = of_words(np.full((sum(map(len, tags)), 5), 0.2), tags)
    truth = np.eye(5)[words.truth]
    return replace(words, member_logits=(generator.normal(size=truth.shape) + 3 * truth)[None])


@pytest.mark.parametrize(("draw", "by_class"), [(drawn_labels, False), (drawn_labels, True), (drawn_words, False)])
def test_fresh_samples_keep_it(draw: Any, by_class: bool) -> None:
    shares, alarms, wanted = [], 0, WantedPromises(recall=0.95, by_class=by_class)
    fit = OodFit("msp", 300, 0.95)
    for seed in range(DRAWS):
        promise, fresh = fit_recall(draw(300, seed), wanted), draw(FRESH, 10_000 + seed)
        assert promise is not None and len(promise.least) == (4 if by_class else 1)
        parts = fresh.task.true_parts(fresh)
        groups = parts.groups(fresh.names if by_class else None).values()
        shares.append([group.kept(promise.least)[1].mean() for group in groups])
        judged = promises_of(promised(replace(fresh, calibration=Calibration(ood=FittedOod(fit, {}))), promise), [])
        assert {each.name for each in judged} == {"recall"} and len(judged) == len(promise.least)
        alarms += any(each.state == "broken" for each in judged)
        assert judged[0].seen.value == pytest.approx(shares[-1][0])
    means, errors = np.mean(shares, axis=0), np.std(shares, axis=0) / DRAWS**0.5
    assert (means > 0.95 - 4 * errors).all()
    # A bound by ranks keeps at most 2 / (n + 1) more than is promised.
    assert (means < 0.95 + 2 / (np.min(promise.samples) + 1) + 4 * errors).all() and alarms <= DRAWS // 20
    if not by_class:  # with many samples it is not far above
        assert means[0] < 0.96
    worse = promised(drawn_labels(2000, 1), PromisedRecall(0.95, (2000,), (0.9,)))
    assert [each.state for each in promises_of(worse, [])] == ["broken"]


@pytest.fixture(scope="module", params=[False, True], ids=["for all", "by label"])
def file(request: pytest.FixtureRequest, labelled: Path) -> Path:
    output = labelled / f"{request.param}.safetensors"
    given: Any = {"id_data": f"{labelled}/train.parquet", "label_column": "tags", "by_class": request.param}
    made = hydractl.calibrate(labelled / "vit", recall="80%", output=output, **given)
    assert "answers hold 80 % of what is there" in str(made) and made.to_json()["recall"]["promised"] == 0.8
    assert f"at a precision of {100 * made.recall.precision:.1f} %" in str(made) and made.recall.kept >= 0.8
    return output


def test_every_form_of_a_file_answers_the_same_labels(labelled: Path, file: Path) -> None:
    promise = read_checkpoint(file).calibration.recall
    assert promise is not None and len(promise.least) in (1, 3) and len(promise.samples) == len(promise.least)
    images = datasets.load_dataset("parquet", data_files=f"{labelled}/test.parquet", split="train")
    answers = hydractl.predict(file, f"{labelled}/test.parquet")
    bounds = promise.least * (3 // len(promise.least))
    wanted = [
        tuple(name for name, p, least in zip(LABELS, row, bounds, strict=True) if p >= least - 1e-7)
        for row in answers.probabilities.astype(np.float64)
    ]
    assert answers.labels == wanted and "80 % of the labels that are there" in answers.promise.meaning
    assert hydractl.load(file).predict(images["image"]).labels == wanted
    rows = list(csv.DictReader(io.StringIO(answers.to_csv())))
    assert [row["label"] for row in rows] == [", ".join(row) for row in wanted]
    assert "answers hold 80 % of what is there" in str(hydractl.inspect(file))
    hot = [[(name in tags, name in row) for name in LABELS] for tags, row in zip(images["tags"], wanted, strict=True)]
    shares = [np.mean([held for there, held in row if there]) for row in hot if any(there for there, _ in row)]
    data: Any = {"id_data": f"{labelled}/test.parquet", "label_column": "tags"}
    report = hydractl.evaluate({"a": file}, **data, bootstrap=0)
    entry = report.models["a"]
    assert entry["recall"]["promised"] == 0.8 and entry["recall"]["kept"] == pytest.approx(np.mean(shares))
    assert f"Answers of a hold {100 * np.mean(shares):.1f} % (95 %" in str(report)
    others = [hydractl.evaluate({"a": file}, **data, bootstrap=0, temperature=t).models["a"] for t in (2.0, 20.0)]
    assert "recall" not in others[0]  # thresholds were fitted at the temperature of the file
    assert others[0]["id"]["micro_f1"] == others[1]["id"]["micro_f1"]
    checkup = hydractl.check(file, **data, probes=2).checkup
    judged = [each for each in checkup.promises if each.name == "recall"]
    assert [each.of for each in judged] == (["", *LABELS][:1] if len(promise.least) == 1 else [*LABELS])
    assert not checkup.open  # thresholds cannot be those of a precision too


def test_unlabelled_samples_end_the_promise_and_say_so(labelled: Path, file: Path) -> None:
    data = datasets.load_dataset("parquet", data_files=f"{labelled}/train.parquet", split="train")
    made = hydractl.calibrate(file, id_data=data.select_columns(["image"]))
    assert made.checkpoint.calibration.recall is None and "`recall` 80%" in made.warnings[0]
    assert made.checkpoint.calibration.thresholds == read_checkpoint(file).calibration.thresholds


def test_a_file_whose_promise_has_another_size_is_refused(file: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(file)
    for promise in (PromisedRecall(0.8, (9, 9), (0.1, 0.1)), PromisedRecall(0.8, (9, 9), (0.1,))):
        calibration = replace(checkpoint.calibration, recall=promise)
        with pytest.raises(CheckpointError, match=r"recall\.least"):  # what is written is read again first
            write_checkpoint(replace(checkpoint, calibration=calibration), tmp_path / "bad")


def test_a_tagger_offers_spans_beside_its_answer(tagged: Path, tmp_path: Path) -> None:
    given: Any = {"id_data": f"{tagged}/train.parquet", "accuracy": "50%"}  # which marks spans of the answer
    made: Checkpoint = hydractl.calibrate(tagged / "tuned", recall="90%", output=tmp_path / "m", **given).checkpoint
    promise = made.calibration.recall
    assert promise is not None and made.calibration.fit.confidence is not None and promise.samples == (60,)
    answers = hydractl.predict(tmp_path / "m", f"{tagged}/test.parquet")
    offered = {
        (row, word.start, span.label)
        for row, spans in enumerate(answers.offered)
        for span in spans
        for word in answers.words[row]
        if span.start <= word.start < span.end
    }
    starts = [(row, word.start) for row, words in enumerate(answers.words) for word in words]
    rows = list(csv.DictReader(io.StringIO(answers.to_csv())))
    kinds = [{kind for kind in ("PER", "LOC") if (*start, kind) in offered} for start in starts]
    assert [set(filter(None, row["offered"].split(", "))) for row in rows] == kinds
    plain, texts = answers.to_json()["predictions"], [[span.text for span in row] for row in answers.offered]
    assert [[span["text"] for span in row["offered"]] for row in plain] == texts
    assert "offered" in answers.columns and "offered" in hydractl.predict(tmp_path / "m", text="Anna").to_csv()
    data = f"{tagged}/test.parquet"
    entry = hydractl.evaluate({"a": tmp_path / "m"}, id_data=data, bootstrap=0).models["a"]["recall"]
    checkup = hydractl.check(tmp_path / "m", id_data=data, probes=2).checkup
    [judged] = [each for each in checkup.promises if each.name == "recall"]
    assert judged.cases == 70 and judged.seen.value == pytest.approx(entry["kept"])


def test_what_cannot_be_promised_is_refused_with_a_remedy(labelled: Path, tagged: Path) -> None:
    table = datasets.load_dataset("parquet", data_files=f"{labelled}/train.parquet", split="train")
    known: Any = {"id_data": table, "label_column": "tags"}
    empty = table.remove_columns("tags").add_column("tags", [[]] * 100, feature=table.features["tags"])
    rare = [["owl"] if at < 3 else ["cat", "dog"] for at in range(100)]
    few = table.remove_columns("tags").add_column("tags", rare, feature=table.features["tags"])
    words = datasets.load_dataset("parquet", data_files=f"{tagged}/train.parquet", split="train")
    outside = words.remove_columns("tags").add_column("tags", [["O"] * len(row) for row in words["tokens"]])
    long = words.map(lambda row: {name: row[name] * 40 for name in ("tokens", "tags")})
    vit, tuned = labelled / "vit", tagged / "tuned"
    by_class, there = {"id_data": words, "by_class": True}, sum(map(bool, table["tags"]))
    for error, words_of_it, model, options in (
        (OptionError, "`accuracy` and `recall` both set", vit, {**known, "accuracy": "50%"}),
        (OptionError, "`by_class` with `recall` is not for labels of words", tuned, by_class),
        (OptionError, "`recall` needs labels", vit, {"id_data": table.select_columns(["image"])}),
        (OptionError, "`recall`.*1.5", vit, {**known, "recall": "1.5"}),
        (OptionError, "`recall` 1: no number of samples", vit, {**known, "recall": "100%"}),
        (DataError, f"`recall` 99.9 % needs at least 999 .* there are {there}:", vit, {**known, "recall": "99.9%"}),
        (DataError, "needs at least 9 .* of each class, but there are 3 of class 'owl'.*`by_class`", vit,
         {"id_data": few, "label_column": "tags", "by_class": True}),
        (DataError, "no calibration sample has one", vit, {"id_data": empty, "label_column": "tags"}),
        (DataError, "no calibration sample has one", tuned, {"id_data": outside}),
        (DataError, "of .* calibration texts have words with labels behind the last", tuned, {"id_data": long}),
    ):  # fmt: skip
        with pytest.raises(error, match=words_of_it):
            hydractl.calibrate(model, **{"recall": "90%", **options})
