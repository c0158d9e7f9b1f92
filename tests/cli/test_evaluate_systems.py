import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from hydractl.ood.ood_scores import OOD_SCORES
from hydractl.reports import table
from hydractl.systems import networks
from tests.cli.conftest import Command, interrupt_at, models, numbers, save_bert, save_clip, save_images, save_vit

pytestmark = pytest.mark.usefixtures("place")
SETS = ("id", "ood", "calib", "shift")


def texts(folder: Path) -> None:
    save_bert(folder / "a")
    save_bert(folder / "b", seed=1)
    words = ["good", "bad", "film", "owl", "a film", "bad owl", "good a a", "owl owl owl a"]
    labels = [*["cat", "dog", "owl"] * 2, "cat", "dog"]
    for name, start in zip(SETS, ("a", "film film", "good", "bad"), strict=True):
        pairs = [(f"{start} {word}", label) for word, label in zip(words, labels, strict=True)]
        rows = [json.dumps({"text": text, "label": label}) for text, label in pairs]
        (folder / name).with_suffix(".jsonl").write_text("\n".join(rows))


def pictures(folder: Path, save: Callable[[Path, int], Path]) -> None:
    for seed, name in enumerate("ab"):
        save(folder / name, seed)
    for seed, name in enumerate(SETS):
        save_images(folder / name, count=3, seed=seed)


#: Two networks of one kind, and data for them.
CASES = {"image": partial(pictures, save=save_vit), "text": texts, "zero-shot": partial(pictures, save=save_clip)}


def test_some_members_of_a_file_are_a_system(hydractl: Command, here: Path) -> None:
    CASES["image"](here)
    hydractl("fuse", "a", "b", "a", "--separate", "all", "-o", "hydra")
    found = models(hydractl, "hydra:0", "hydra:0,1", "hydra", "--id-data", "id")
    assert [one["cost"]["members"] for one in found.values()] == [1, 2, 3]
    assert found["hydra:0"]["cost"]["parameters"] < found["hydra:0,1"]["cost"]["parameters"]


@pytest.mark.parametrize("case", CASES)
def test_every_system_and_option(hydractl: Command, here: Path, case: str) -> None:
    CASES[case](here)
    inside, outside, calibration, shift = (f"{name}.jsonl" if case == "text" else name for name in SETS)
    data = ["--id-data", inside, "--ood-data", f"far/n={outside}", "--calib-data", calibration]
    data += ["--shift-data", f"fog/3={shift}", *(["--template={label}"] if case == "zero-shot" else [])]
    fit = ("--temperature", "fit", "--bootstrap", 100)
    hydractl("fuse", "a", "b", "--separate", "all", "-o", "hydra")
    systems = ("a", "DE=a+b", "mc=a,mc-dropout=2,p=0.2", "hydra")
    found = models(hydractl, *systems, *data, *fit, "--save-logits", "logits", "--batch-size", 4)
    for name in ("a", "DE", "mc", "hydra"):
        temperature = found[name]["temperature"]
        assert temperature["nll_after"] < temperature["nll_before"]
        assert found[name]["shift"]["fog"]["3"]["samples"] == found[name]["id"]["samples"]
    assert found["a"]["temperature"]["argmax_changed"] == 0
    for key, value in found["DE"]["id"].items():
        assert found["hydra"]["id"][key] == pytest.approx(value, abs=1e-5), key
    assert found["DE"]["cost"]["members"] == 2
    assert found["DE"]["cost"]["multiply_adds"] == found["hydra"]["cost"]["multiply_adds"]
    assert [network["reference"] for network in found["DE"]["networks"]] == ["a", "b"]
    assert found["mc"]["id"]["mutual_information"] > 0
    # Saved predictions bring their sets along, or are joined with the sets of a network.
    again = models(hydractl, "DE=predictions:logits/DE", *fit)["DE"]
    joined = models(hydractl, "a", "p=predictions:logits/DE", *data, *fit)["p"]
    for entry in (again, joined):
        for key in ("id", "ood", "shift", "intervals", "temperature", "cost"):
            assert entry[key] == found["DE"][key], key


def test_dropout_depends_on_the_seed_alone(hydractl: Command) -> None:
    asked = ("mc=vit,mc-dropout=4,p=0.2", "--id-data=pets", "--batch-size=5")
    first, second, other_seed = (numbers(models(hydractl, *asked, "--seed", seed)["mc"]) for seed in (0, 0, 1))
    assert first == second != other_seed


def test_an_interruption_keeps_what_was_finished(hydractl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("evaluate", "vit", "other", "--id-data=pets", "--ood-data=n=noise")
    whole = json.loads(hydractl(*arguments, "--json", "-").out)
    calls = interrupt_at(monkeypatch, networks, "member_answers", 4)  # the second system's second set
    result = hydractl(*arguments, "--save-logits=logits", "--json=part.json", "--quiet")
    assert result.code == 130
    assert re.fullmatch(r"interrupted at [\d,]+ of [\d,]+ \(.*\): run it again with --resume to go on\n", result.err)
    part = json.loads(Path("part.json").read_text())
    assert part["complete"] is False and part["models"].keys() == {"vit"}
    for key in ("id", "ood", "ood_means", "selective", "cost", "temperature"):
        assert part["models"]["vit"][key] == whole["models"]["vit"][key]
    assert "Interrupted: systems are missing." in result.out
    assert "exists already" in hydractl(*arguments, "--save-logits=logits").err
    calls.clear()
    resumed = hydractl(*arguments, "--save-logits=logits", "--resume", "--json", "-")
    assert json.loads(resumed.out) == whole
    assert len(calls) == 1  # of the four sets only the one that was cut off


def test_what_ends_the_command_at_its_table_costs_no_file(hydractl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object) -> None:
        raise KeyboardInterrupt  # as a reader of the pipe who is gone would

    monkeypatch.setattr(table, "draw", leave)
    hydractl("evaluate", "vit", "--id-data=pets", "--json=r.json", "--report=report")
    assert json.loads(Path("r.json").read_text())["complete"]
    assert Path("report/index.html").exists()


NAMES = [score.name for score in OOD_SCORES if score.fit is not None]


@pytest.fixture
def data(place: Path) -> tuple[str, ...]:
    save_images(place / "calibration", count=18, seed=7)
    return ("--id-data=pets", "--ood-data=far/n=noise", "--calib-data=calibration")


@pytest.mark.parametrize("score", NAMES)
def test_a_fused_file_scores_as_its_members_in_turn_and_again_from_what_was_saved(
    hydractl: Command, data: tuple[str, ...], score: str
) -> None:
    hydractl("fuse", "vit", "other", "--separate=all", "-o", "hydra")
    scored = (f"--ood-score={score}", "--bootstrap=100")
    # The last direction of these features is rounding, which float64 tells from variance.
    asked = (*data, "--batch-size=5", "--dtype=fp64", *scored, "--save-logits=saved")
    found = models(hydractl, "DE=vit+other", "fused=hydra", *asked)
    auroc = found["DE"]["ood"]["n"]["auroc"]
    assert 0 <= auroc <= 1
    assert found["fused"]["ood"]["n"]["auroc"] == pytest.approx(auroc, abs=1e-6)
    again = models(hydractl, "predictions:saved/DE", *scored)["DE"]
    assert numbers(again) == numbers(found["DE"])
    assert again["intervals"] == found["DE"]["intervals"]


def test_passes_with_dropout_and_zero_shot_models_have_features_too(
    hydractl: Command, data: tuple[str, ...], place: Path
) -> None:
    save_clip(place / "clip")
    systems = ("mc=vit,mc-dropout=3,p=0.2", "clip", "--template={label}")
    found = models(hydractl, *systems, *data, "--ood-score=mahalanobis", "--bootstrap=0")
    assert all(0 <= entry["ood"]["n"]["auroc"] <= 1 for entry in found.values())


def test_outside_methods_bring_features_of_their_own(hydractl: Command, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    (tmp_path / "p" / "ood").mkdir(parents=True)
    inside, outside = (0, 0, 9, 9), (9, 9, 0, 0)
    for name, centre, count in (("id", inside, 30), ("calibration", inside, 60), ("ood/far", outside, 20)):
        features = generator.normal(centre, size=(count, 4)).astype(np.float32)
        labels = {} if name == "ood/far" else {"labels": np.arange(count) % 2}
        np.savez(tmp_path / "p" / f"{name}.npz", logits=features[:, 2:], features=features, **labels)
    saved = f"predictions:{tmp_path / 'p'}"
    assert models(hydractl, saved, "--ood-score=mahalanobis")["p"]["ood"]["far"]["auroc"] >= 0.99
    np.savez(tmp_path / "p" / "id.npz", logits=np.zeros((3, 2)), features=np.zeros((4, 2)), labels=np.zeros(3, int))
    assert "expected the same" in hydractl("evaluate", saved, "--ood-score=mahalanobis").err
