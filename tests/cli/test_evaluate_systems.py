"""`hydractl evaluate` on Deep Ensembles, dropout, saved predictions, with temperature and interruptions."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hydractl.evaluation import networks, run
from hydractl.report import table
from tests.cli.conftest import Command, models, numbers


def test_members_in_turn_equal_the_fused_file(
    hydractl: Command, vit: Path, other: Path, images: Path, noise: Path, tmp_path: Path
) -> None:
    hydra = tmp_path / "hydra"
    hydractl("fuse", vit, other, "--separate", "all", "-o", hydra)
    data = ("--id-data", images, "--ood-data", f"far/n={noise}")
    found = models(hydractl, f"DE={vit}+{other}", f"fused={hydra}", *data)
    for key, value in found["DE"]["id"].items():
        assert found["fused"]["id"][key] == pytest.approx(value, abs=1e-6), key
    assert found["DE"]["ood"]["n"]["auroc"] == pytest.approx(found["fused"]["ood"]["n"]["auroc"], abs=1e-6)
    assert found["DE"]["cost"]["members"] == 2
    assert found["DE"]["cost"]["multiply_adds"] == found["fused"]["cost"]["multiply_adds"]
    assert [network["reference"] for network in found["DE"]["networks"]] == [
        os.path.relpath(path) for path in (vit, other)
    ]


def test_dropout_depends_on_the_seed_alone(hydractl: Command, vit: Path, images: Path) -> None:
    system = f"mc={vit},mc-dropout=4,p=0.2"
    first, second, other_seed = (
        numbers(models(hydractl, system, "--id-data", images, "--batch-size", 5, "--seed", seed)["mc"])
        for seed in (0, 0, 1)
    )
    assert first == second
    assert first != other_seed
    assert first["id"]["mutual_information"] > 0


def test_saved_logits_score_as_the_model_did(
    hydractl: Command, vit: Path, other: Path, images: Path, noise: Path, held_out: Path, tmp_path: Path
) -> None:
    data = ("--id-data", f"pets={images}", "--ood-data", f"far/n={noise}", "--calib-data", held_out)
    fit = ("--temperature", "fit", "--conformal", "aps")
    found = models(hydractl, f"DE={vit}+{other}", *data, *fit, "--save-logits", tmp_path / "saved", "--batch-size", 5)
    again = models(hydractl, f"predictions:{tmp_path / 'saved' / 'DE'}", *fit)
    joined = models(hydractl, vit, f"p=predictions:{tmp_path / 'saved' / 'DE'}", *data, *fit)
    for entry in (again["DE"], joined["p"]):
        assert numbers(entry) == numbers(found["DE"])
        assert entry["temperature"] == found["DE"]["temperature"]
        assert entry["conformal"] == found["DE"]["conformal"]
        assert entry["cost"] == found["DE"]["cost"]
    assert found["DE"]["temperature"]["nll_after"] < found["DE"]["temperature"]["nll_before"]


def test_a_temperature_leaves_the_argmax_of_one_network_and_sets_t(hydractl: Command, vit: Path, images: Path) -> None:
    plain = models(hydractl, vit, "--id-data", images)["vit"]
    soft = models(hydractl, vit, "--id-data", images, "--temperature", 3)["vit"]
    assert soft["id"]["accuracy"] == plain["id"]["accuracy"]
    assert soft["id"]["nll"] != plain["id"]["nll"]
    assert soft["temperature"] == {"value": 3.0}


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
    reduce, calls = run._reduce, []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) == 4:  # the second system's second set
            raise KeyboardInterrupt
        return reduce(*args, **kwargs)

    monkeypatch.setattr(run, "_reduce", interrupted)
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
    answer, answered = networks.member_answers, []
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


def test_seeds_of_one_system_are_one_row(hydractl: Command, vit: Path, other: Path, images: Path) -> None:
    arguments = (f"m={vit}", f"m={other}", "--id-data", images)
    single = [models(hydractl, f"m={model}", "--id-data", images)["m"]["id"]["nll"] for model in (vit, other)]
    entry = models(hydractl, *arguments, "--seeds")["m"]
    assert entry["id"]["nll"] == pytest.approx(np.mean(single))
    assert entry["std"]["id"]["nll"] == pytest.approx(np.std(single, ddof=1))


def test_logits_of_seeds_are_saved_apart(
    hydractl: Command, vit: Path, other: Path, images: Path, tmp_path: Path
) -> None:
    arguments = (f"m={vit}", f"m={other}", "--id-data", images, "--seeds")
    entry = models(hydractl, *arguments, "--save-logits", tmp_path)["m"]
    saved = (f"m=predictions:{tmp_path / 'm'}", f"m=predictions:{tmp_path / 'm-2'}", "--seeds")
    assert numbers(models(hydractl, *saved)["m"]) == numbers(entry)
