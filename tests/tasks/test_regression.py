"""Numbers a sample, as they are or by a sigmoid: what a Hydra answers, its losses, and every command on the way."""

import csv
import io
import json
from math import log, sqrt
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import pytest
import torch
import transformers
from scipy import stats
from torch.testing import assert_close

import hydractl
import hydractl.auto
from hydractl.checkpoint.calibration import Calibration, FittedOod, Intervals, OodFit
from hydractl.errors import DataError, OptionError
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.surgery.fusion import fuse
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.numbers import NumberTable, fit_intervals, number_metrics, number_replicates
from hydractl.tasks.task import Answers
from tests import references
from tests.cli.conftest import WORDS, save_bert
from tests.factories import CROSS_ENCODER, REGRESSION
from tests.references import answers, drawn, uneven_members

ZERO_SHOT = ("clip", "chinese-clip", "siglip-zero-shot", "open-clip")
CLASSIFIERS = [name for name in references.family_variants() if name not in ZERO_SHOT]


def test_worked_out_by_hand() -> None:
    members = np.array([[[1.0, 0.0]], [[3.0, 0.0]]])
    calibration = Calibration(intervals=Intervals(0.9, (2.0, 1.0), (1.5, 4.0), (2.0, 0.5)))
    found = Answers(
        task=find_task("image-regression"), member_logits=members, classes=("size", "age"), calibration=calibration
    )
    assert found.values.tolist() == [[2.0, 0.0]] and found.spread.tolist() == [[1.0, 0.0]]
    assert found.deviation is not None and found.low is not None and found.high is not None
    assert found.deviation.tolist() == [[2.5, 4.0]]
    assert (found.low.tolist(), found.high.tolist()) == ([[-3.0, -2.0]], [[7.0, 2.0]])
    assert "value(size)" in repr(found) and "2.0000" in repr(found) and "numbers" in found._repr_html_()
    by_sigmoid = Answers(
        task=find_task("text-probability"),
        member_logits=np.array([[[log(9.0)]], [[0.0]]]),
        calibration=Calibration(intervals=Intervals(0.9, (1.0,), (1.0,), (1.0,))),
    )
    assert by_sigmoid.values.item() == pytest.approx(0.7) and by_sigmoid.spread.item() == pytest.approx(0.2)
    assert (by_sigmoid.low.item(), by_sigmoid.high.item()) == (0.0, 1.0)


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_intervals_are_checked_on_labels_of_0_and_1_too(kind: type) -> None:
    fitted = Calibration(
        intervals=Intervals(0.9, (0.0,), (0.1,), (3.0,)), ood=FittedOod(OodFit("msp", samples=99, accept=0.95), {})
    )
    task, logits, labels = find_task("text-probability"), np.array([[[log(4)], [0.0]]]), np.ones((2, 1), kind)
    labelled = Answers(task=task, member_logits=logits, truth=labels, calibration=fitted)  # 0.8 and 0.5, 0.3 each way
    assert [(each.promise, each.kept.tolist()) for each in task.trials(labelled)] == [("interval", [True, False])]


def test_losses_are_those_of_transformers() -> None:
    draw = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(2, 5, 3, generator=draw), torch.randn(5, 3, generator=draw)
    theirs, task = [torch.nn.MSELoss()(one, labels) for one in logits], find_task("image-regression")
    assert_close(task.losses(logits, labels).view(2, 5).mean(1), torch.stack(theirs))
    assert_close(task.taught_losses(logits, labels).sum((1, 2)) / 5, torch.stack(theirs))
    with pytest.raises(OptionError, match="label_smoothing"):
        task.losses(logits, labels, 0.1)


def test_metrics_are_those_of_scipy() -> None:
    draw = np.random.default_rng(0)
    values, labels = draw.normal(size=(50, 1)).round(1), draw.normal(size=(50, 1)).round(1)
    plain = NumberTable(values, np.ones_like(values), labels)
    table = NumberTable(values, np.ones_like(values), labels, np.full_like(values, 2.0), values - 1.05, values + 1.05)
    found = number_metrics(table)
    assert found.spearman == pytest.approx(stats.spearmanr(values, labels).statistic)
    assert found.nll == pytest.approx(-stats.norm(values, 2.0).logpdf(labels).mean())
    assert found.coverage == (np.abs(values - labels) <= 1.05).mean() and found.width == pytest.approx(2.1)
    assert found.mse == pytest.approx(np.square(values - labels).mean())
    assert found.mae == pytest.approx(np.abs(values - labels).mean()) and number_metrics(plain).nll != 0
    drawn = number_replicates(table, 300)
    assert drawn["mse"].std() == pytest.approx(np.square(values - labels).std() / sqrt(50), rel=0.15)


def test_intervals_keep_their_promise_on_errors_of_any_form() -> None:
    draw = np.random.default_rng(0)
    spread = draw.uniform(0.1, 2, size=(20_000, 2))
    labels = draw.standard_t(3, size=spread.shape) * 3 * spread
    fitted = fit_intervals(np.zeros((2000, 2)), spread[:2000], labels[:2000], 0.9)
    scale, floor, width = (np.array(getattr(fitted.intervals, name)) for name in ("scale", "floor", "width"))
    reach = width * np.hypot(scale * spread[2000:], floor)
    assert (np.abs(labels[2000:]) <= reach).mean(0) == pytest.approx(0.9, abs=0.02)
    assert fitted.nll_after < fitted.nll_before and (floor < 0.3 * scale).all()
    errors = np.where(np.arange(400) % 2, 0.1, 1.0)[:, None] * labels[:400, :1]  # hard and easy pairs in turn
    single = fit_intervals(np.zeros((400, 1)), np.zeros((400, 1)), errors, 0.9)
    # Of 200 samples the 181st largest error, rank 201 * 0.9 rounded up.
    reach = single.intervals.width[0] * single.intervals.floor[0]
    assert reach == pytest.approx(np.sort(np.abs(errors[np.random.default_rng(0).permutation(400)[:200], 0]))[180])
    assert (np.abs(errors) <= reach).mean() == pytest.approx(0.9, abs=0.03)
    with pytest.raises(DataError, match="give 18 or more"):
        fit_intervals(np.zeros((17, 1)), np.zeros((17, 1)), labels[:17, :1], 0.9)


@pytest.mark.parametrize("variant", CLASSIFIERS)
def test_every_family_answers_with_a_number_as_its_library(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "CLASSES", 1)
    reference = drawn(variant, 0)
    dense = read_checkpoint(reference.save(tmp_path / "theirs"))
    assert dense.spec.task == f"{dense.spec.modality}-regression" and dense.spec.classes == 1
    assert_close(answers(dense, reference.inputs)[0], reference.logits(), rtol=0, atol=1e-10)
    members = uneven_members(dense)
    fused = fuse(members)
    together = torch.cat([answers(one, reference.inputs) for one in members])
    output = from_checkpoint(fused)(**reference.inputs)
    assert_close(output.member_logits, together, rtol=0, atol=1e-10)
    assert_close(output.probabilities, together.mean(0), rtol=0, atol=1e-10)
    assert_close(output.logits, find_task("image-regression").link(together, 1.0), rtol=0, atol=1e-10)
    hydractl.export(members[0], format="hf", output=tmp_path / "stock")
    again = read_checkpoint(tmp_path / "stock")
    assert_close(answers(again, reference.inputs), together[:1], rtol=0, atol=1e-10)
    hydractl.export(fused, format="hf", output=tmp_path / "folder")
    kind = transformers.AutoModelForImageClassification
    kind = kind if dense.spec.modality == "image" else transformers.AutoModelForSequenceClassification
    theirs = kind.from_pretrained(tmp_path / "folder", dtype=torch.float64)
    assert_close(theirs(**reference.inputs).logits, together.mean(0), rtol=0, atol=1e-10)
    labels = torch.arange(len(output.logits), dtype=torch.float64)  # as Trainer gives them
    wanted = torch.stack([torch.nn.MSELoss()(one.squeeze(), labels) for one in together]).mean()
    assert_close(theirs(**reference.inputs, labels=labels).loss, wanted.float(), rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of one number, and tables of pairs of texts with a score, an age, a share, and whether it is large."""
    folder = tmp_path_factory.mktemp("numbers")
    save_bert(folder / "bert", **REGRESSION)
    save_bert(folder / "sigmoid", **CROSS_ENCODER)
    draw = np.random.default_rng(0)
    pairs = [draw.choice(WORDS[5:], (2, 4)) for _ in range(160)]
    shares = np.array([np.isin(first, second).mean() for first, second in pairs])
    columns = {"text1": [" ".join(first) for first, _ in pairs], "text2": [" ".join(second) for _, second in pairs]}
    numbers = {"score": np.abs(5 * shares + draw.normal(size=160)), "age": draw.integers(-1, 9, 160)}
    table = datasets.Dataset.from_dict({**columns, **numbers, "share": shares, "relevant": (shares > 0.5).astype(int)})
    for name, part in (("train", range(80)), ("calibration", range(80, 120)), ("test", range(120, 160))):
        table.select(part).to_csv(folder / f"{name}.csv")
    (folder / "odd.csv").write_text("text1,text2\n" + "".join(f"owl owl,bad film {'a ' * n}\n" for n in range(12)))
    return folder


def test_a_sigmoid_answers_shares_or_whether(shared: Path, tmp_path: Path) -> None:
    sigmoid, calibration, test = shared / "sigmoid", f"{shared}/calibration.csv", f"{shared}/test.csv"
    for column in ("share", "relevant"):
        train: Any = {"label_column": column, "train_data": f"{shared}/train.csv"}
        tuned = hydractl.finetune([sigmoid], **train, steps=2)
        labelled = {"id_data": f"{shared}/train.csv", "label_column": column}
        member = hydractl.prune(tuned.checkpoint, method="taylor", budget=2, **labelled).checkpoint
        hydra = hydractl.fuse([tuned.checkpoint, member])
        if column == "relevant":  # half of the answers are right, so that there is something to calibrate
            table = pandas.read_csv(calibration)
            table.loc[::2, column] = (hydractl.predict(hydra, calibration).values[::2, 0] >= 0.5).astype(int)
            calibration = str(tmp_path / "calibration.csv")
            table.to_csv(calibration, index=False)
        ready = hydractl.calibrate(hydra, id_data=calibration, label_column=column)
        by_number = column == "share"
        assert (ready.checkpoint.calibration.intervals is not None, ready.temperature == 1) == (by_number,) * 2
        named = {"label_column": column, "bootstrap": 100}
        named |= {"ood_data": {"odd": shared / "odd.csv"}, "report": tmp_path / column}
        report = hydractl.evaluate({"h": ready.checkpoint, "again": ready.checkpoint}, id_data=test, **named)
        assert any((tmp_path / column).glob("*.html")) and report.models["h"]["ood"]["odd"]["auroc"] >= 0
        wanted = ("mse", "spearman", "coverage", "width") if by_number else ("label_auroc", "brier", "nll", "ece")
        assert report.models["h"]["id"].keys() >= set(wanted)
        assert report.models["h"]["intervals"]["id"].keys() >= set(wanted)
    before = hydractl.load(hydra.checkpoint).double()
    logits = before(**before.preprocessor([("a good film", "owl")])).member_logits
    soft = torch.tensor([[0.3]], dtype=torch.float64)
    theirs = torch.nn.BCEWithLogitsLoss()(logits[0], soft.expand(1, 1))
    assert_close(find_task("text-probability").losses(logits[:1], soft, 0.0).mean(), theirs)


def test_metrics_of_shares_of_numbers_and_of_classes_are_not_compared(shared: Path, tmp_path: Path) -> None:
    systems = [str(shared / "bert"), str(shared / "sigmoid"), str(save_bert(tmp_path / "classes"))]
    for pair in (systems[:2], systems[1:], systems[::2]):
        with pytest.raises(OptionError, match="metrics of different tasks cannot be compared"):
            hydractl.evaluate(pair, id_data=f"{shared}/test.csv", label_column="relevant", bootstrap=0)


def test_several_numbers_and_a_new_classifier_take_columns(shared: Path, tmp_path: Path) -> None:
    plain, train = save_bert(tmp_path / "plain"), f"{shared}/train.csv"
    new = {"steps": 1, "settings": {"new_classifier": "zeros"}}
    tuned = hydractl.finetune([plain], train_data=train, label_column="score,age", **new).checkpoint
    assert (tuned.spec.task, tuned.labels) == ("text-regression", ("score", "age"))
    ready = hydractl.calibrate(tuned, id_data=f"{shared}/calibration.csv", label_column="score,age")
    assert ready.checkpoint.calibration.intervals is not None and len(ready.checkpoint.calibration.intervals.width) == 2
    found = hydractl.predict(ready.checkpoint, text=["a film"])
    assert found.columns[1:5] == ("value(score)", "spread(score)", "low(score)", "high(score)")
    [row] = csv.DictReader(io.StringIO(found.to_csv()))
    assert float(row["high(age)"]) == pytest.approx(found.high[0, 1])
    trained = hydractl.finetune([plain], train_data=train, label_column="score", val_split=10, **new).networks[0]
    one = trained.checkpoint
    assert hydractl.predict(one, text=["a film"]).columns[1:3] == ("value", "spread")
    assert one.labels == ("score",) and trained.validation.mse is not None and "MSE" in str(trained)
    hydractl.export(one, format="hf", output=tmp_path / "hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["problem_type"] == "regression"
    pairs = [(("a", "film"), (0.5, -1.0)), (("owl", "bad"), (1.5, 2.0))]
    assert hydractl.evaluate({"t": tuned}, id_data=pairs, bootstrap=0).models["t"]["id"]["samples"] == 2
    with pytest.raises(DataError, match="names of classes"):
        hydractl.evaluate({"one": one}, id_data=[("a film", "good"), ("owl", "bad")])


def test_errors_name_the_row_and_the_remedy(shared: Path, tmp_path: Path) -> None:
    bert, data, test = shared / "bert", f"{shared}/train.csv", f"{shared}/test.csv"
    score = {"label_column": "score"}
    (tmp_path / "odd.csv").write_text("text,score\na film,1.5\nowl,N/A!\n")
    (tmp_path / "gap.csv").write_text("text,score\na film,1.5\nowl,\n")

    def evaluated(model: Path = bert, data: object = data, **given: Any) -> None:
        hydractl.evaluate(model, id_data=data, **{**score, **given})

    def calibrated(**given: Any) -> None:
        hydractl.calibrate(bert, id_data=data, **{**score, **given})

    for kind, wanted, call in (
        (DataError, "sample 1 is 'N/A!', not a number", lambda: evaluated(data=tmp_path / "odd.csv")),
        (DataError, "sample 1 is nan: give a number", lambda: evaluated(data=tmp_path / "gap.csv")),
        (DataError, "2 numbers, but the model gives 1", lambda: evaluated(label_column="score,age")),
        (DataError, "from 0 to 1, as the model.s sigmoid", lambda: evaluated(shared / "sigmoid")),
        (OptionError, "calibrate the model, or choose", lambda: evaluated(ood_data=test)),
        (OptionError, "`temperature` .* predicts neither: leave it out", lambda: evaluated(temperature=2.0)),
        (OptionError, "`interval` 1", lambda: calibrated(interval="1")),
        (OptionError, "no typicality to watch", lambda: hydractl.Monitor(bert)),
    ):
        with pytest.raises(kind, match=wanted):
            call()
