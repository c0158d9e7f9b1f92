"""`hydractl.calibrate` fits what the command fits."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hydractl.checkpoint.calibration import OodFit
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.systems.networks import NetworkSystem
from tests.cli.conftest import Command, interrupt_at, models, save_answers


def test_labels_of_another_order_are_refused(hydractl: Command, bert: Path, tmp_path: Path) -> None:
    wrong = save_answers(bert, tmp_path / "wrong.csv", slice(None))
    arguments = ("calibrate", bert, "--ood-score=msp", "--quiet", "-o", tmp_path / "warm")
    done = hydractl(*arguments, "--id-data", wrong)
    assert (done.code, "0 of 27 are right" in done.err, "another order" in done.err) == (1, True, True)
    assert not (tmp_path / "warm").exists()
    # A few samples could be wrong by chance: a warning.
    few = hydractl(*arguments, "--id-data", f"{wrong}:[:6]")
    assert (few.code, "the loss still falls at the highest temperature" in few.err) == (0, True)


def test_classes_without_a_sample_are_named_in_every_fit(run: Command, place: Path) -> None:
    Path("some").mkdir()
    for label in ("cat", "owl"):
        Path("some", label).symlink_to(place / "pets" / label)
    for command in (
        "calibrate vit --id-data some -o warm",
        "score-heads vit --method=taylor --id-data some -o scores",
        "extract-circuit vit --objective=acc --budget=1 --id-data some -o circuit",
        "finetune vit --steps=1 --train-data some -o tuned",
        "export vit --int8 --id-data some -o vit.onnx",
        "evaluate vit --id-data held-out --calib-data some --temperature=fit",
    ):
        done = run(*command.split(), "--quiet", "--json")
        named = [line for line in done.err.splitlines() if "no sample of 1: dog (of 3 classes)" in line]
        assert (done.code, len(named)) == (0, 1), done.err
        assert any("no sample of 1: dog" in text for text in json.loads(done.out)["warnings"])
    assert "no sample" not in run("calibrate", "vit", "--id-data", "pets", "-o", "all").err


def test_a_temperature_far_from_1_is_said_with_its_reason(hydractl: Command, bert: Path, tmp_path: Path) -> None:
    known = save_answers(bert, tmp_path / "known.csv", slice(None, None, 9))  # the logits are near 0, untrained
    given = ("--id-data", known, "--ood-score=msp", "-o")
    done = hydractl("calibrate", bert, *given, tmp_path / "warm", code=0)
    assert "is far below 1" in done.err and "outlier exposure, label smoothing" in done.err
    seen = replace(read_checkpoint(bert), provenance={"options": {"outlier_sets": ["trec"]}})
    write_checkpoint(seen, tmp_path / "seen")
    exposed = hydractl("calibrate", tmp_path / "seen", *given, tmp_path / "out", code=0)
    assert "below 1, as after outlier exposure to trec:" in exposed.err
    measured = hydractl("evaluate", tmp_path / "warm", *given[:2], "--allow-leak", code=0)
    assert "warm: the temperature" in measured.out + measured.err


def test_a_calibrated_file_has_the_numbers_of_a_fitted_temperature(
    hydractl: Command, vit: Path, images: Path, held_out: Path, tmp_path: Path
) -> None:
    result = hydractl("calibrate", vit, "--id-data", held_out, "-o", tmp_path / "warm", "--json", code=0)
    found = json.loads(result.out)
    assert found["nll_after"] < found["nll_before"]
    assert found["argmax_changed"] == 0
    assert read_checkpoint(tmp_path / "warm").calibration.temperature == found["temperature"]
    fitted = models(hydractl, vit, "--id-data", images, "--calib-data", held_out, "--temperature", "fit")["vit"]
    kept = models(hydractl, tmp_path / "warm", "--id-data", images)["warm"]
    assert kept["id"] == fitted["id"]
    assert kept["temperature"]["value"] == fitted["temperature"]["value"]


def test_predict_flags_what_is_less_typical_than_a_share_of_the_data(
    hydractl: Command, vit: Path, held_out: Path, tmp_path: Path
) -> None:
    hydractl("calibrate", vit, "--id-data", held_out, "--accept", "75%", "-o", tmp_path / "warm")
    ood = read_checkpoint(tmp_path / "warm").calibration.ood
    assert ood is not None and replace(ood.fit, baseline=None) == OodFit("layers", 18, 0.75)
    found = json.loads(hydractl("predict", tmp_path / "warm", held_out, "--json").out)["predictions"]
    known = ood.tensors["quantiles"].load().tolist()
    for row in found:
        # Rounding may put a sample on either side of its own quantile.
        fewest, most = (sum(score > row["ood_score"] + slack for score in known) for slack in (1e-7, -1e-7))
        assert fewest <= round(19 * row["typicality"]) - 1 <= most
        assert row["ood"] == (row["typicality"] < 0.25)
    hydractl("prune", tmp_path / "warm", "--method", "random", "--budget", 1, "-o", tmp_path / "m1")
    assert read_checkpoint(tmp_path / "m1").calibration.ood is None  # found for other weights


def test_an_interrupted_fit_goes_on_to_the_same_bytes(
    hydractl: Command, vit: Path, held_out: Path, noise: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = ("calibrate", vit, "--id-data", held_out, "--ood-data", noise, "--ood-score=mahalanobis", "-o")
    # Data of no use leave nothing behind: the next attempt names others.
    assert hydractl("calibrate", vit, "--id-data", noise, "--ood-score=mahalanobis", "-o", tmp_path / "whole").code == 1
    hydractl(*fit, tmp_path / "whole", code=0)
    calls = interrupt_at(monkeypatch, NetworkSystem, "answers", 2)
    assert hydractl(*fit, tmp_path / "m").code == 130
    assert "--resume" in hydractl(*fit, tmp_path / "m").err
    for option, changed in (("--limit=9", "data"), ("--ood-score=msp", "reads"), ("--batch-size=3", "batch_size")):
        refused = hydractl(*fit, tmp_path / "m", "--resume", option)
        assert (refused.code, f"another id {changed} (" in refused.err) == (1, True)
    hydractl(*fit, tmp_path / "m", "--resume", code=0)
    assert [key.path for _, key, *_ in calls] == ["id", "ood/noise", "ood/noise"]
    assert (tmp_path / "m").read_bytes() == (tmp_path / "whole").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "whole"]
