"""A disk that refuses, at every single write: one line that names the path, nothing half-written, and it goes on."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hydractl
from hydractl.checkpoint import output
from hydractl.checkpoint.output import claim
from hydractl.errors import OutputError
from tests.cli.conftest import contents
from tests.steps.test_resume import RECIPE

PRIMITIVES = ("write", "fsync", "rename", "replace", "mkdir")
Action = Callable[..., Any]


@contextmanager
def refusing(number: int, code: int, folder: Path) -> Iterator[list[int]]:
    """The write primitive of that number, counted over all, fails as on a full disk. Yields the calls so far."""
    calls: list[int] = []
    patch = pytest.MonkeyPatch()

    def counted(function: Action, of_paths: bool) -> Action:
        def call(*args: Any, **kwargs: Any) -> Any:
            # filelock makes a folder that is there already.
            there = function.__name__ == "mkdir" and Path(args[0]).is_dir()
            if of_paths and (there or not str(args[0]).startswith(str(folder))):
                return function(*args, **kwargs)
            calls.append(len(calls))
            if len(calls) == number:
                error = OSError(code, os.strerror(code))
                if isinstance(args[0], output._File):
                    args[0].refusal = error  # as its own `write` remembers it
                raise error
            return function(*args, **kwargs)

        return call

    for name in PRIMITIVES:
        patch.setattr(os, name, counted(getattr(os, name), name not in ("write", "fsync")))
    patch.setattr(output._File, "write", counted(output.FileIO.write, False))
    try:
        yield calls
    finally:
        patch.undo()


@pytest.fixture
def actions(vit: Path, images: Path, noise: Path) -> dict[str, Action]:
    one: dict[str, Any] = {"id_data": str(images), "device": "cpu"}
    data, members = {**one, "ood_data": [str(noise)]}, {"random": 1, "budgets": "1", "members": "1"}
    again = {"resume": True, "force": True}
    tuning = {"train_data": str(images), "val_split": 3, "recipe": replace(RECIPE, steps=1), "device": "cpu"}
    return {
        "finetune": lambda out: hydractl.finetune(vit, **tuning, output=out / "m", resume=True),
        "prune": lambda out: hydractl.prune(vit, method="random", budget=2, output=out / "m", force=True),
        "export": lambda out: hydractl.export(vit, format="hf", output=out / "m", force=True),
        "evaluate": lambda out: hydractl.evaluate({"m": str(vit)}, **data, save_logits=out, resume=True),
        "select": lambda out: hydractl.select(vit, **members, **one, output=out / "s.json", **again),
        "extract": lambda out: hydractl.extract_circuit(vit, budget=1, **data, output=out / "c.json", **again),
        "calibrate": lambda out: hydractl.calibrate(vit, **data, output=out / "m", **again),
    }


def steady(found: dict[str, bytes]) -> dict[str, bytes]:
    """What does not hold times or pictures."""
    return {name: content for name, content in found.items() if not name.endswith(("log.jsonl", ".png"))}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["finetune", "prune", "export", "evaluate", "select", "extract", "calibrate"])
def test_a_disk_that_refuses_any_one_write(name: str, actions: dict[str, Action], tmp_path: Path) -> None:
    run = actions[name]
    (tmp_path / "whole").mkdir()
    with refusing(0, 0, tmp_path) as calls:
        run(tmp_path / "whole")
    whole, count = contents(tmp_path / "whole"), len(calls)
    assert count > 2
    refused = 0
    numbers = range(1, count + 1, max(1, count // 4))
    for number in numbers:
        out = tmp_path / f"{number}"
        out.mkdir()
        with refusing(number, errno.ENOSPC if number % 2 else errno.EACCES, out):
            try:
                run(out)
            except OutputError as error:
                said, refused = str(error), refused + 1
                assert said.startswith(str(out)) and said.count("\n") == 0 and "cannot write" in said
        left = contents(out)
        assert not [path for path in left if path.endswith((".part", ".lock"))], (number, left.keys())
        # What is there is whole: what it is once all is done, or of a run that goes on.
        known = {path: content for path, content in steady(left).items() if path in whole}
        assert known == {path: whole[path] for path in known}, number
        run(out)
        assert steady(contents(out)) == steady(whole), number
    # A folder need not be flushed.
    assert refused >= len(numbers) // 3


@pytest.mark.parametrize("name", ["finetune", "export", "evaluate", "select", "extract", "calibrate"])
def test_a_second_run_on_one_output_is_refused_by_who_holds_it(
    name: str, actions: dict[str, Action], tmp_path: Path
) -> None:
    held = {"select": "s.json", "extract": "c.json.state"}.get(name, "m")
    with claim(tmp_path / held), pytest.raises(OutputError, match=rf"{held}: process {os.getpid()} is writing it"):
        actions[name](tmp_path)
    assert not [path for path in contents(tmp_path) if not path.endswith("m.training/.hydractl.json")]
