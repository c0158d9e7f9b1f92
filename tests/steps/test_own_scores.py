from pathlib import Path

import numpy as np
import pytest

import hydractl as library
from hydractl.errors import CheckpointError
from hydractl.metrics.detection import ood_metrics
from tests.cli.conftest import save_images


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_images(tmp_path_factory.mktemp("data") / "noise", count=4, seed=9)


@pytest.fixture(scope="module")
def warm(vit: Path, noise: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrated")
    held_out = save_images(folder / "held-out", count=8, seed=5)
    library.calibrate(vit, id_data=held_out, ood_score="mahalanobis", accept="80%", output=folder / "warm")
    return folder / "warm"


def test_each_system_is_scored_by_what_its_file_holds(vit: Path, warm: Path, images: Path, noise: Path) -> None:
    sets = {"id_data": images, "ood_data": [f"noise={noise}"], "bootstrap": 100}
    found = library.evaluate({"plain": vit, "warm": warm}, **sets)
    plain, own = found.models["plain"], found.models["warm"]
    inside, outside = (library.predict(warm, str(data)) for data in (images, noise))
    expected = ood_metrics(inside.ood_score, outside.ood_score)
    assert own["score"] == "mahalanobis" and "score" not in plain
    assert own["ood"]["noise"]["auroc"] == pytest.approx(expected.auroc, abs=0.02)  # float32 may turn a pair
    msp = ood_metrics(-inside.msp, -outside.msp)
    assert own["ood"]["noise"]["msp_auroc"] == pytest.approx(msp.auroc, abs=1e-6)
    assert plain["ood"]["noise"]["msp_auroc"] == plain["ood"]["noise"]["auroc"]
    assert own["typicality"] == {"accept": 0.8, "coverage": pytest.approx(1 - np.mean(inside.ood))}
    assert "mahalanobis" in str(found)
    # The first system's score is the MSP, so its column by the MSP has the same interval.
    assert plain["intervals"]["ood"]["noise"]["msp_fpr95"] == plain["intervals"]["ood"]["noise"]["fpr95"]
    by_msp = library.evaluate({"plain": vit, "warm": warm}, ood_score="msp", **sets).models["warm"]
    for group, name in (("ood", "noise"), ("ood_means", "all")):
        for number in ("auroc", "fpr95"):
            for kind in ("difference", "intervals"):
                assert own[kind][group][name][f"msp_{number}"] == by_msp[kind][group][name][number]


def test_saved_predictions_have_the_score_of_their_file_unless_it_is_damaged(
    warm: Path, images: Path, tmp_path: Path
) -> None:
    library.evaluate(warm, id_data=images, bootstrap=0, save_logits=tmp_path)
    assert "score" not in library.evaluate(f"predictions:{tmp_path}/warm", ood_score="msp").models["warm"]
    damaged = tmp_path / "warm" / "ood-score.safetensors"
    damaged.write_bytes(damaged.read_bytes().replace(b'"whiten"', b'"whitem"'))
    with pytest.raises(CheckpointError, match="ood.whiten is missing"):
        library.evaluate(f"predictions:{tmp_path}/warm")


def test_a_score_for_all_systems_overrides_their_own(vit: Path, warm: Path, images: Path, noise: Path) -> None:
    sets = {"id_data": images, "ood_data": [f"noise={noise}"], "bootstrap": 0}
    found = library.evaluate({"plain": vit, "warm": warm}, ood_score="energy", **sets)
    assert all("msp_auroc" not in one["ood"]["noise"] and "typicality" not in one for one in found.models.values())


def test_an_ensemble_of_calibrated_files_is_scored_by_the_msp(
    warm: Path, images: Path, noise: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="hydractl"):
        found = library.evaluate(f"twice={warm}+{warm}", id_data=images, ood_data=[f"noise={noise}"], bootstrap=0)
    assert "score" not in found.models["twice"]
    assert "scored by the MSP" in caplog.text
