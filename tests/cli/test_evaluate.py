import json
import os
from collections.abc import Iterable
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import roc_auc_score
from transformers import AutoImageProcessor, ViTForImageClassification

import hydractl as library
from hydractl.artifacts import seen_from
from hydractl.checkpoint.contents import identity
from hydractl.errors import CheckpointError
from hydractl.families.load import read_checkpoint
from hydractl.metrics.detection import ood_metrics
from hydractl.steps.evaluate import named_systems
from tests.cli.conftest import LABELS, Command, models, save_answers, save_clip, save_images


@torch.no_grad()
def probabilities(folder: Path, files: Iterable[Path]) -> np.ndarray:
    """The answers of transformers' own model and processor, `[N,C]`."""
    images = [Image.open(file).convert("RGB") for file in sorted(files)]
    model = ViTForImageClassification.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder)
    return model(**processor(images=images, return_tensors="pt")).logits.softmax(-1).numpy()


def test_a_folder_s_numbers_are_those_of_transformers(hydractl: Command, vit: Path, images: Path, noise: Path) -> None:
    entry = models(hydractl, f"mine={vit}", "--id-data", images, "--ood-data", f"far/noise={noise}")["mine"]
    inside = probabilities(vit, images.glob("*/*.png"))
    outside = probabilities(vit, noise.glob("*.png"))
    labels = np.repeat(np.arange(3), 4)
    scores = -np.concatenate([inside.max(1), outside.max(1)])
    assert entry["id"]["samples"] == 12
    assert entry["id"]["accuracy"] == (inside.argmax(1) == labels).mean()
    assert entry["id"]["nll"] == pytest.approx(-np.log(inside[np.arange(12), labels]).mean(), abs=1e-5)
    assert entry["id"]["brier"] == pytest.approx(((inside - np.eye(3)[labels]) ** 2).sum(1).mean(), abs=1e-5)
    assert entry["ood"]["noise"]["auroc"] == pytest.approx(roc_auc_score([0] * 12 + [1] * 5, scores), abs=1e-6)
    assert entry["ood"]["noise"]["group"] == "far"
    assert entry["ood_means"].keys() == {"far", "all"}
    assert entry["cost"]["parameters"] == ViTForImageClassification.from_pretrained(vit).num_parameters()
    assert entry["model"] == {"reference": os.path.relpath(vit), "sha256": identity(read_checkpoint(vit))}


def test_what_makes_numbers_doubtful_is_said_though_quiet(hydractl: Command, bert: Path, tmp_path: Path) -> None:
    right = save_answers(bert, tmp_path / "right.csv", slice(0))
    wrong = save_answers(bert, tmp_path / "wrong.csv", slice(None))
    calib = ("--calib-data", wrong, "--temperature", "fit", "--allow-leak")
    said = hydractl("evaluate", bert, "--id-data", wrong, *calib, "--quiet").err
    assert ": the accuracy on wrong, 0.0%, is below chance, 33.3%: " in said
    assert " 10000, is at its bound, since almost all answers are wrong" in said
    assert hydractl("evaluate", bert, "--id-data", right, "--quiet").err == ""


def test_texts_that_lose_their_end_are_counted(hydractl: Command, bert: Path, tmp_path: Path) -> None:
    rows = ["a " * 30, "a", "good " * 15]  # the model takes 16 tokens, two of them its own
    (tmp_path / "id.jsonl").write_text("\n".join(json.dumps({"text": text, "label": "cat"}) for text in rows))
    arguments = ("evaluate", bert, "--id-data", tmp_path / "id.jsonl")
    assert hydractl(*arguments).err == ("note: bert: id: 2 of 3 texts are too long for the model and were cut\n")
    assert hydractl(*arguments, "--quiet").err == ""


def test_means_over_kinds_and_severities(hydractl: Command, vit: Path, images: Path, tmp_path: Path) -> None:
    other = save_images(tmp_path / "other", count=2, seed=5)
    sets = [f"--shift-data={name}={images}" for name in ("fog/1", "rain/1", "rain/2")]
    arguments = ["evaluate", vit, "--id-data", images, *sets, f"--shift-data=fog/2={other}", "--bootstrap=0"]
    assert "fog 1" in hydractl("evaluate", vit, "--id-data", images, sets[0]).out  # a single set has no mean
    result = hydractl(*arguments, f"--shift-data=saturate/1={other}", "--json=-")
    found = json.loads(result.out)["models"]["vit"]
    same, differs = found["id"], found["shift"]["fog"]["2"]
    assert {key: found["shift"]["fog"]["1"][key] for key in same} == same
    for metric in ("accuracy", "brier", "nll", "ece", "adaptive_ece"):
        means = {
            where: {name: one[metric] for name, one in found["shift_means"][where].items()}
            for where in ("by_severity", "by_kind")
        }
        half = (same[metric] + differs[metric]) / 2
        assert means["by_severity"] == pytest.approx({"1": same[metric], "2": half})
        # Of the kinds besides the fifteen there is a mean, and they are in no other.
        assert means["by_kind"] == pytest.approx(
            {"fog": half, "rain": same[metric], "saturate": found["shift"]["saturate"]["1"][metric]}
        )
        assert found["shift_means"]["all"][metric] == pytest.approx((3 * same[metric] + differs[metric]) / 4)
    assert found["shift_means"]["all"]["samples"] == 3 * same["samples"] + 6
    alone = json.loads(hydractl("evaluate", vit, "--id-data", images, sets[0], "--json=-").out)
    assert "shift_means" not in alone["models"]["vit"]


@pytest.fixture
def real() -> tuple[Path, Path]:
    """A checkpoint and its real data."""
    data = Path(os.environ.get("HYDRACTL_DATA", Path(__file__).parents[3] / "shared" / "data")) / "cifar10"
    folder = data.parents[1] / "ckpt" / "vit_cifar10"
    if not (data.is_dir() and folder.is_dir()):
        pytest.skip(f"no real data at {data} (HYDRACTL_DATA), or no checkpoint at {folder}")
    return folder, data


@pytest.mark.realdata
@pytest.mark.slow
@pytest.mark.parametrize("score", ["msp", "mahalanobis"])
def test_as_many_real_images_are_accepted_as_promised(real: tuple[Path, Path], score: str) -> None:
    folder, data = real
    half = {"dtype": "float32", "limit": 800}
    fitted = library.calibrate(folder, id_data=f"{data}:validation%1/2", ood_score=score, **half)
    found = library.evaluate({"it": fitted}, id_data=f"{data}:validation%2/2", **half).models["it"]["typicality"]
    chance = 4 * (0.95 * 0.05 * 2 / 800) ** 0.5  # four standard deviations, of fitting and of measuring
    assert found["accept"] == 0.95
    assert 0.95 - chance < found["coverage"] < 1


def test_nothing_is_written_unless_asked_for(vit: Path, images: Path, here: Path) -> None:
    library.evaluate(vit, id_data=images)
    assert list(here.iterdir()) == []
    found = library.evaluate(vit, id_data=images, json="r.json", report="page", save_logits="logits")
    assert {path.name for path in here.iterdir()} == {"r.json", "page", "logits"}
    named = seen_from(here, found.to_json())
    assert json.loads(Path("r.json").read_text()) == named
    assert library.report(["r.json"]).models == named["models"]


def test_models_and_data_as_values(vit: Path, other: Path, images: Path, noise: Path) -> None:
    paths = [(path, label) for label in LABELS for path in sorted((images / label).iterdir())]
    pairs = [(Image.open(path).convert("RGB"), label) for path, label in paths]
    far = datasets.Dataset.from_dict({"image": [str(path) for path in sorted(noise.iterdir())]})
    expected = library.evaluate({"a": vit, "b": [vit, other]}, id_data=images, ood_data={"n": noise})
    loaded = library.load(vit).optimize_for_inference()
    given = {"a": loaded, "b": [loaded, library.load(other)]}
    found = library.evaluate(given, id_data=pairs, ood_data={"n": far}, match_labels="name")
    for name in ("a", "b"):
        assert found.models[name]["id"] == expected.models[name]["id"]
        assert found.models[name]["ood"] == expected.models[name]["ood"]
        assert found.models[name]["model"]["sha256"] == expected.models[name]["model"]["sha256"]


def test_a_zero_shot_model_keeps_the_classes_it_was_told(tmp_path: Path, images: Path) -> None:
    clip = save_clip(tmp_path / "clip", 0)
    model = library.load(clip)
    model.set_classes(LABELS, "{label} a")
    told, anew = library.evaluate({"told": model, "anew": clip}, id_data=images, template="{label}").models.values()
    same = library.evaluate(clip, id_data=images, template="{label} a").models["clip"]
    assert told["id"] == same["id"] != anew["id"]


def test_names_of_systems(vit: Path, other: Path) -> None:
    assert [name for name, _ in named_systems(vit)] == ["vit"]
    assert [name for name, _ in named_systems([str(vit), f"x={other}", [vit, other]])] == ["vit", "x", "vit+other"]
    loaded = library.load(vit)
    assert [name for name, _ in named_systems(loaded)] == ["vit"]
    assert [name for name, _ in named_systems({"mine": f"{vit}+{other}"})] == ["mine"]


@pytest.fixture(scope="module")
def warm(vit: Path, held_out: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("calibrated") / "warm"
    library.calibrate(vit, id_data=held_out, ood_score="mahalanobis", accept="80%", output=output)
    return output


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


def test_a_score_for_all_systems_overrides_their_own_and_an_ensemble_has_none(
    vit: Path, warm: Path, images: Path, noise: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sets = {"id_data": images, "ood_data": [f"noise={noise}"], "bootstrap": 0}
    found = library.evaluate({"plain": vit, "warm": warm}, ood_score="energy", **sets)
    assert all("msp_auroc" not in one["ood"]["noise"] and "typicality" not in one for one in found.models.values())
    with caplog.at_level("INFO", logger="hydractl"):
        found = library.evaluate(f"twice={warm}+{warm}", **sets)
    assert "score" not in found.models["twice"]
    assert "scored by the MSP" in caplog.text
