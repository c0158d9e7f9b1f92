"""`hydractl evaluate` on every kind of system, of images, texts and zero-shot models, and where it is interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hydractl.evaluation import networks
from hydractl.model.fast import optimize
from hydractl.report import table
from tests.cli.conftest import LABELS, Command, models, numbers, save_bert, save_clip, save_images, save_vit

SETS = ("id", "ood", "calib", "shift")


def texts(folder: Path) -> None:
    save_bert(folder / "a")
    save_bert(folder / "b", seed=1)
    words = ["good", "bad", "film", "owl", "a film", "bad owl", "good a a", "owl owl owl a"]
    for name, start in zip(SETS, ("a", "film film", "good", "bad"), strict=True):
        rows = [json.dumps({"text": f"{start} {word}", "label": LABELS[at % 3]}) for at, word in enumerate(words)]
        (folder / name).with_suffix(".jsonl").write_text("\n".join(rows))


def pictures(folder: Path, save: Callable[[Path, int], Path]) -> None:
    for seed, name in enumerate("ab"):
        save(folder / name, seed)
    for seed, name in enumerate(SETS):
        save_images(folder / name, count=3, seed=seed)


#: Two networks of one kind, and data for them.
CASES = {"image": partial(pictures, save=save_vit), "text": texts, "zero-shot": partial(pictures, save=save_clip)}


@pytest.mark.parametrize("case", CASES)
def test_every_system_and_option(hydractl: Command, here: Path, case: str) -> None:
    CASES[case](here)
    inside, outside, calibration, shift = (f"{name}.jsonl" if case == "text" else name for name in SETS)
    data = ["--id-data", inside, "--ood-data", f"far/n={outside}", "--calib-data", calibration]
    data += ["--shift-data", f"fog/3={shift}", *(["--template={label}"] if case == "zero-shot" else [])]
    fit = ("--temperature", "fit", "--conformal", "aps", "--bootstrap", 10)
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
        for key in ("id", "ood", "shift", "conformal", "intervals", "temperature", "cost"):
            assert entry[key] == found["DE"][key], key


def test_a_compiled_model_says_the_same(
    hydractl: Command, vit: Path, other: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another backend than a user's, which would call a C++ compiler for a minute.
    monkeypatch.setattr(optimize, "compile_model", partial(optimize.compile_model, backend="aot_eager"))
    arguments = (f"DE={vit}+{other}", f"mc={vit},mc-dropout=2,p=0.2", "--id-data", images, "--batch-size", 5)
    plain, compiled = models(hydractl, *arguments), models(hydractl, *arguments, "--compile")
    for name in ("DE", "mc"):
        assert compiled[name]["cost"] == plain[name]["cost"]
        for key, value in plain[name]["id"].items():
            assert compiled[name]["id"][key] == pytest.approx(value, abs=1e-6), key


def test_dropout_depends_on_the_seed_alone(hydractl: Command, vit: Path, images: Path) -> None:
    system = f"mc={vit},mc-dropout=4,p=0.2"
    first, second, other_seed = (
        numbers(models(hydractl, system, "--id-data", images, "--batch-size", 5, "--seed", seed)["mc"])
        for seed in (0, 0, 1)
    )
    assert first == second
    assert first != other_seed
    assert first["id"]["mutual_information"] > 0


def test_prediction_sets_cover(hydractl: Command, vit: Path, images: Path, held_out: Path) -> None:
    arguments = (vit, "--id-data", images, "--calib-data", held_out, "--conformal", "lac")
    found = models(hydractl, *arguments, "--coverage", "0.99")["vit"]["conformal"]
    assert found == {"coverage": 1.0, "mean_size": 3.0}  # 18 samples promise 99 % only with every class


def test_an_interruption_keeps_what_was_finished(
    hydractl: Command,
    vit: Path,
    other: Path,
    images: Path,
    noise: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = ("evaluate", vit, other, "--id-data", images, "--ood-data", f"n={noise}")
    whole = json.loads(hydractl(*arguments, "--json", "-").out)
    answer, calls = networks.member_answers, []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) == 4:  # the second system's second set
            raise KeyboardInterrupt
        return answer(*args, **kwargs)

    monkeypatch.setattr(networks, "member_answers", interrupted)
    saving = ("--save-logits", tmp_path / "logits")
    result = hydractl(*arguments, *saving, "--json", tmp_path / "part.json")
    assert (result.code, result.err) == (130, "interrupted\n")
    part = json.loads((tmp_path / "part.json").read_text())
    assert part["complete"] is False
    # A file names its models as seen from its folder, standard output as seen from the current one.
    assert part["models"].keys() == {"vit"}
    for key in ("id", "ood", "ood_means", "selective", "cost", "temperature"):
        assert part["models"]["vit"][key] == whole["models"]["vit"][key]
    assert "Interrupted: systems are missing." in result.out
    monkeypatch.undo()
    assert "exists already" in hydractl(*arguments, *saving).err
    answered: list[Any] = []
    monkeypatch.setattr(networks, "member_answers", lambda *args: answered.append(args) or answer(*args))
    resumed = hydractl(*arguments, *saving, "--resume", "--json", "-")
    assert json.loads(resumed.out) == whole
    assert len(answered) == 1  # of the four sets only the one that was cut off


def test_what_ends_the_command_at_its_table_costs_no_file(
    hydractl: Command, vit: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: object) -> None:
        raise KeyboardInterrupt  # as a reader of the pipe who is gone would

    monkeypatch.setattr(table, "draw", leave)
    files = ("--json", tmp_path / "r.json", "--report", tmp_path / "report")
    hydractl("evaluate", vit, "--id-data", images, *files)
    assert json.loads((tmp_path / "r.json").read_text())["complete"]
    assert (tmp_path / "report" / "index.html").exists()


def test_seeds_of_one_system_are_one_row_and_their_logits_are_saved_apart(
    hydractl: Command, vit: Path, other: Path, images: Path, tmp_path: Path
) -> None:
    single = [models(hydractl, f"m={model}", "--id-data", images)["m"]["id"]["nll"] for model in (vit, other)]
    arguments = (f"m={vit}", f"m={other}", "--id-data", images, "--seeds")
    entry = models(hydractl, *arguments, "--save-logits", tmp_path)["m"]
    assert entry["id"]["nll"] == pytest.approx(np.mean(single))
    assert entry["std"]["id"]["nll"] == pytest.approx(np.std(single, ddof=1))
    saved = (f"m=predictions:{tmp_path / 'm'}", f"m=predictions:{tmp_path / 'm-2'}", "--seeds")
    assert numbers(models(hydractl, *saved)["m"]) == numbers(entry)
