"""The numbers that the effort of a build stands for, and the notes about its steps."""

from pathlib import Path

import pytest

from hydractl.families.load import read_checkpoint
from hydractl.options import with_options
from hydractl.pipeline.build_options import EFFORTS, BuildData, BuildOptions, Sizes, passes, settled
from hydractl.pipeline.stages import Stage, run_stages
from hydractl.watch import LOG, Log
from tests.conftest import build_reference

SIZES = Sizes(inside=1000, outside=[600], measured=[7000, 600])
BUILD = BuildOptions(model="vit", data=BuildData(id_data="pets", ood_data=["noise"]))


def test_an_effort_gives_what_no_option_gives() -> None:
    for effort in EFFORTS:
        found = settled(with_options(BUILD, {"effort": effort.name}), SIZES, False, LOG)
        assert found.choice.random == effort.random
        assert settled(with_options(found, {"random": 3}), SIZES, False, LOG).choice.random == 3
        assert found.reading.limit == (effort.limit if effort.limit < 7000 else None)  # else it bounds nothing


def test_draws_are_made_where_members_lose_no_units_and_else_if_asked() -> None:
    assert settled(BUILD, SIZES, True, LOG).choice.random is None
    assert settled(BUILD, SIZES, False, LOG, untrained=3).choice.random is None
    for option, value, draws in (("random", 1, 1), ("budgets", "3", 12)):
        asked = settled(with_options(BUILD, {option: value}), SIZES, False, LOG, untrained=3)
        assert asked.choice.random == draws


def test_training_is_bounded_by_its_steps_and_not_by_the_limit_of_an_effort() -> None:
    sizes = Sizes(9000, [], [9000], training=400_000)
    found = settled(BUILD, sizes, False, LOG)
    assert (found.reading.limit, found.train_samples) == (5000, 400_000)
    assert found.learning.settings == ["steps=1500"]


def test_passes_are_what_the_plan_implies(tmp_path: Path) -> None:
    network = read_checkpoint(build_reference("vit").save(tmp_path / "vit"))  # of 12 heads
    given = {"budgets": "1,2", "members": 2, "random": 5}
    found = passes(with_options(BUILD, given), network, Sizes(100, [50], [70, 50]), "0")
    assert found["select"] == (1 + 2 * 5) * 200  # on the part of the data for refits too
    assert found["evaluate"] == 3 * 120 and "finetune" not in found
    assert "prune" not in found
    tried = passes(with_options(BUILD, given), network, Sizes(100, [50], [70, 50]), "0", [True, False])
    assert (tried["prune"], tried["score-heads"]) == (3 * 2 * 100 / 2, 3 * 100)
    assert tried["select"] == (1 + 2 * 5) * 100 + 2 * 3 * 100


#: Steps of no options, whose commands are called like them.
First, Second, Third, Finetune = (type(name, (), {}) for name in ("First", "Second", "Third", "Finetune"))


class Notes(Log):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


def test_a_step_longer_than_all_others_says_so_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Notes()
    stages = [Stage(step, (name,)) for step, name in ((First(), "a"), (Second(), "b"), (Third(), "c"))]
    monkeypatch.setattr(Stage, "run", lambda stage, folder, watch: watch.note(f"run {stage.command}"))
    run_stages(stages, tmp_path, {"first": 10, "second": 100}, watch)
    assert [note.split(",")[0].split(":")[0] for note in watch.notes] == [
        "[1/3] first", "run first", "[2/3] second", "note", "run second", "[3/3] third", "run third"
    ]  # fmt: skip
    assert "left" not in watch.notes[0] and "left" in watch.notes[2]
    assert "second" in watch.notes[3] and "`effort`" in watch.notes[3]


def test_the_time_left_is_told_once_its_kind_of_step_has_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, clock = Notes(), iter([0.0, 10.0, 99.0, 100.0, 130.0, 130.0, 160.0, 160.0, 165.0])
    steps = (First(), Third(), Finetune(), Finetune(), Second())
    stages = [Stage(step, (name,)) for step, name in zip(steps, "abcde", strict=True)]
    monkeypatch.setattr(Stage, "run", lambda stage, folder, watch: None)
    monkeypatch.setattr("hydractl.pipeline.stages.time.monotonic", lambda: next(clock))
    run_stages(stages, tmp_path, {"first": 10, "finetune": 30, "second": 5}, watch)
    # A pass of either kind takes a second: 30 and 5 are left, then 5. The third step has none, and foretells nothing.
    assert [note.partition(", ")[2] for note in watch.notes if note.startswith("[")] == [
        "", "", "", "about 35 seconds left", "about 5 seconds left"
    ]  # fmt: skip
