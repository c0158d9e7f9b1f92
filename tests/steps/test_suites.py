import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

import hydractl
from hydractl.data.reading import parse_data, parse_data_sets
from hydractl.errors import OptionError
from hydractl.evaluation.sets import SUITES, Suite, SuiteTask, find_suite
from hydractl.options import declared
from hydractl.steps.evaluate import Evaluate
from tests.cli.conftest import Command, save_images, save_vit


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: Path, noise: Path) -> Path:
    """A suite of two tasks, the second with a shifted set; the current folder holds nothing else."""
    monkeypatch.chdir(tmp_path)
    other = save_images(tmp_path / "other", count=2, seed=5)
    text = f"""
    about = "two tasks"
    [tasks.pets]
    id_data = "{images}"
    ood_data = ["far/noise={noise}"]
    [tasks.others]
    id_data = "{other}"
    ood_data = ["near/noise={noise}", "far/pets={images}"]
    shift_data = ["fog/1={images}", "fog/2={other}"]
    """
    Path("mine.toml").write_text(text)
    return Path("mine.toml")


def test_tasks_as_if_alone_and_their_means(run: Command, suite: Path, vit: Path, images: Path, noise: Path) -> None:
    second = save_vit(Path("second"), seed=3)
    done = run("evaluate", f"a={vit}", f"b={second}", "--suite", suite, "--bootstrap=0", "--json=s.json", code=0)
    found = json.loads(Path("s.json").read_text())
    assert (found["format"], found["suite"], list(found["tasks"])) == ("hydractl-suite", "mine", ["pets", "others"])
    alone = hydractl.evaluate({"a": vit, "b": second}, id_data=images, ood_data=[f"far/noise={noise}"], bootstrap=0)
    assert found["tasks"]["pets"]["models"]["a"]["id"] == alone.models["a"]["id"]
    for system in ("a", "b"):
        pets, others = (found["tasks"][task]["models"][system] for task in ("pets", "others"))
        mean = found["means"][system]
        for metric in ("accuracy", "nll", "ece"):
            assert mean["id"][metric] == pytest.approx((pets["id"][metric] + others["id"][metric]) / 2)
        aurocs = [others["ood"][name]["auroc"] for name in ("noise", "pets")]
        expected = (pets["ood"]["noise"]["auroc"] + sum(aurocs) / 2) / 2  # the second task's own mean counts once
        assert mean["ood_means"]["all"]["auroc"] == pytest.approx(expected)
        assert "shift_means" not in mean  # the first task has none
    header, *rows = done.out.splitlines()
    assert header.split()[:3] == ["task", "system", "acc"] and "shift acc %" in header
    assert [row.split()[0] for row in rows] == ["pets", "pets", "others", "others", "mean", "mean"]


def test_python_takes_a_suite_as_a_value_and_saves_logits_by_task(suite: Path, vit: Path) -> None:
    whole = find_suite(suite)
    one = Suite("one", {"pets": whole.tasks["pets"]})
    found = hydractl.evaluate({"a": vit}, suite=one, bootstrap=0, save_logits="saved")
    assert Path("saved/pets/a").is_dir()
    assert "mean of" not in repr(found) and "<th>acc %</th>" in found._repr_html_()
    assert "<td>&lt;b&gt;</td>" in replace(found, reports={"<b>": found.reports["pets"]})._repr_html_()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "tasks"),
        ("[tasks.a]\nid_data = 3", "id_data"),
        ("[tasks.a]\nid_data = 'x'\nspeed = 1", "speed"),
        ("[tasks.a]\nid_data = 'x'\ncorrupt = 'fog:6'", "severities from 1 to 5"),
        ("[tasks.'../a']\nid_data = 'x'", "tasks"),
    ],
)
def test_what_is_no_suite(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(OptionError, match=message):
        find_suite(tmp_path / "s.toml")


def test_a_task_names_options_of_an_evaluation() -> None:
    assert set(SuiteTask.__dataclass_fields__) < {option.name for option in declared(Evaluate)}


def test_suites_are_listed_and_shown_as_files(run: Command, tmp_path: Path) -> None:
    assert [line.split()[0] for line in run("list", "suites").out.splitlines()] == list(SUITES)
    for name, suite in SUITES.items():
        shown = run("list", "suites", name).out
        (tmp_path / f"{name}.toml").write_text(shown)
        assert find_suite(tmp_path / f"{name}.toml") == suite
        assert tomllib.loads(shown)["tasks"].keys() == suite.tasks.keys()
        for task in suite.tasks.values():
            parse_data(task.id_data)
            assert len(parse_data_sets(task.ood_data)) == len(task.ood_data)
