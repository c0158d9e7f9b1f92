"""Circuits, ablation scores and selections of models that choose no class, by command."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

import hydractl
from hydractl.circuit.head_files import SearchJournal
from hydractl.errors import DataError, OptionError
from hydractl.steps.build import without_ood_data
from hydractl.tasks.all_tasks import TASKS, find_task
from tests.cli.conftest import interrupt_at
from tests.factories import EMBEDDINGS, NUMBERS, SEVERAL, TAGGED, Kind, save_texts


@dataclass(frozen=True)
class Place:
    """A model, data of its task, and OOD data where answers have a confidence."""

    kind: Kind
    model: Path
    data: Any
    odd: Any = None

    @property
    def task(self) -> Any:
        return find_task(hydractl.load(self.model).spec.task)

    @property
    def given(self) -> dict[str, Any]:
        data = {"id_data": self.data} if self.odd is None else {"id_data": self.data, "ood_data": self.odd}
        return {**data, **self.kind.reading, "batch_size": 4}


OF_KEYS = {"f1": SEVERAL, "r2": NUMBERS, "token_accuracy": TAGGED, "similarity": EMBEDDINGS}


def place(key: str, folder: Path) -> Place:
    kind, odd = OF_KEYS[key], None
    data = kind.labelled(kind.save(folder / key), np.random.default_rng(0), 14)
    if key == "f1":
        odd = [np.full((8, 8, 3), 50 * at, np.uint8) for at in range(5)]
    if key == "token_accuracy":
        rows = [["in", "in", "Lee"][: 1 + at % 3] + ["met"] * at for at in range(5)]
        odd = datasets.Dataset.from_dict({"tokens": rows})
    return Place(kind, folder / key, data, odd)


KEYS = [key for key in dict.fromkeys(task.key for task in TASKS) if key != "accuracy"]


@pytest.mark.parametrize("key", KEYS)
def test_a_circuit_is_searched_followed_and_gone_on_with(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = place(key, tmp_path)
    own = here.given
    found = hydractl.extract_circuit(here.model, **own, budget=3, output=tmp_path / "c.json")
    written = json.loads((tmp_path / "c.json").read_text())
    assert written["objective"] == ("acc" if here.odd is None else "avg")
    assert [*written["baseline"]] == [key, *([] if here.odd is None else ["auroc"]), "nll"]
    assert here.task.measured in found._repr_html_()
    # The first step of the search, taken as scores.
    scored = hydractl.score_heads(here.model, method="ablation", **own)
    best = min(scored.scores.known().items(), key=lambda one: one[1])
    step = written["steps"][0]
    assert best[0] == found.circuit.ranking[0] and scored.artifact["options"]["objective"] == written["objective"]
    whole = written["baseline"]
    score = whole[key] if here.odd is None else (whole[key] + whole["auroc"]) / 2
    assert best[1] == pytest.approx(score - step["score"], abs=1e-12)
    pruned = hydractl.prune(here.model, method="circuit", circuit=found, budget=3)
    assert hydractl.prune(here.model, method="circuit", budget=3, **own).dropped == pruned.dropped
    interrupt_at(monkeypatch, SearchJournal, "save", 2)
    with pytest.raises(KeyboardInterrupt):
        hydractl.extract_circuit(here.model, **own, budget=3, output=tmp_path / "again.json")
    hydractl.extract_circuit(here.model, **own, budget=3, output=tmp_path / "again.json", resume=True)
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "c.json").read_bytes()


@pytest.mark.parametrize("key", ["r2", "similarity"])
def test_what_needs_a_confidence_is_refused_where_there_is_none(key: str, tmp_path: Path) -> None:
    here = place(key, tmp_path)
    own = here.given
    odd = {"ood_data": str(save_texts(tmp_path / "odd.csv", 9))}
    for asked in ({"objective": "avg"}, {"objective": "acc,ood", **odd}):
        with pytest.raises(OptionError, match="`objective` .*choose acc"):
            hydractl.extract_circuit(here.model, **own, **asked, budget=2)
    for call in (
        lambda: hydractl.extract_circuit(here.model, **own, **odd, budget=2),
        lambda: hydractl.score_heads(here.model, method="ablation", **own, **odd),
        lambda: hydractl.prune(here.model, method="circuit", **own, **odd, budget=2),
    ):
        with pytest.raises(OptionError, match="`ood_data` .*: leave"):
            call()


def test_numbers_that_are_all_alike_are_refused_and_leave_nothing_behind(tmp_path: Path) -> None:
    here = place("r2", tmp_path)
    alike = here.data.remove_columns("score").add_column("score", [0.1] * 14)  # whose variance is not 0 when computed
    assert np.full(14, 0.1).var() > 0
    asked = {**here.given, "id_data": alike, "output": tmp_path / "written.json"}
    for call in (
        lambda: hydractl.extract_circuit(here.model, **asked, budget=1),
        lambda: hydractl.select(here.model, **asked, random=2, budgets="1", members="1"),
    ):
        with pytest.raises(DataError, match="the same number"):
            call()
        assert not [*tmp_path.glob("written*")]


@pytest.mark.parametrize("key", ["f1", "r2", "token_accuracy"])
def test_members_are_selected_by_the_measure_of_their_task(key: str, tmp_path: Path) -> None:
    here = place(key, tmp_path)
    own = here.given
    baseline = hydractl.extract_circuit(here.model, **own, budget=1).to_json()
    own.pop("ood_data", None)
    asked = {"random": 4, "budgets": "1,3", "members": "2"}
    chosen = hydractl.select(here.model, **own, **asked, output=tmp_path / "s.json")
    content = json.loads((tmp_path / "s.json").read_text())
    whole = next(iter(baseline.values()))["baseline"]
    whole.pop("auroc", None)
    assert {name: content["baseline"][name] for name in whole} == pytest.approx(whole, abs=1e-6)
    assert content["curve"][0]["nll"] <= content["baseline"]["nll"]
    head = next(iter(chosen.lines()))
    assert f" {here.task.measured} " in head and ("loss" if key == "r2" else "NLL") in head
    assert chosen.checkpoint.members == 2


def write(key: str, folder: Path) -> dict[str, Any]:
    """Writes a model and enough data for each part of a build; returns its options."""
    here, draw = place(key, folder), np.random.default_rng(1)
    here.kind.labelled(here.model, draw, 160).to_parquet(folder / "data.parquet")
    odd = [draw.choice(["in", "met", "Lee", "Berlin"], 3 + n % 5).tolist() for n in range(60)]
    datasets.Dataset.from_dict({"tokens": odd}).to_parquet(folder / "odd.parquet")
    given = {"budgets": "1,2", "members": 2, "device": "cpu", "output": folder / "built"}
    return {"model": str(here.model), "id_data": f"{folder}/data.parquet", **here.kind.reading, **given}


def test_builds_are_planned_for_what_a_task_has(tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    words, numbers = write("token_accuracy", tmp_path / "words"), write("r2", tmp_path)
    odd = {"ood_data": [f"odd={tmp_path}/words/odd.parquet"]}
    stages = hydractl.build(**words, **odd, dry_run=True).stages
    commands = [stage.command for stage in stages if stage.command != "prune"]
    assert commands[:2] == ["select", "score-heads"] and commands[-1] == "evaluate"
    assert all("--ood-data" not in stage.line() for stage in stages if stage.command == "calibrate")
    commands = [stage.command for stage in hydractl.build(**numbers, dry_run=True).stages]
    assert {"select", "calibrate", "evaluate"} <= {*commands} and "finetune" not in commands
    encoder = {**numbers, "model": str(place("similarity", tmp_path).model)}
    for wanted, asked in (
        ("`ood_data` .*: leave it out", {**numbers, **odd}),
        ("build needs labels", encoder),
        ("outlier_weight=0", {**words, **odd, "train_data": words["id_data"]}),
    ):
        with pytest.raises(OptionError, match=wanted):
            hydractl.build(**asked, dry_run=True)


def test_a_build_without_ood_data_is_told_of_them_where_its_task_can_use_them() -> None:
    notes = {task.key: without_ood_data(task, trained=True, measured=False) for task in TASKS}
    assert all("detection is not measured" in note for note in notes.values())
    assert not any("not measured" in without_ood_data(task, trained=True, measured=True) for task in TASKS)
    assert {key for key, note in notes.items() if "give `ood_data`" in note} == {"accuracy", "f1", "token_accuracy"}
    assert {key for key, note in notes.items() if "learn to be uncertain" in note} == {"accuracy", "f1"}


@pytest.mark.slow
@pytest.mark.parametrize("key", ["token_accuracy", "r2"])
def test_a_build_of_another_task_runs_to_its_verdict(key: str, tmp_path: Path) -> None:
    asked = write(key, tmp_path)
    odd = {"ood_data": [f"odd={tmp_path}/odd.parquet"]} if key == "token_accuracy" else {}
    built = hydractl.build(**asked, **odd)
    assert ("accuracy" if odd else "MSE") in built.verdict and built.checkpoint.members == 2
