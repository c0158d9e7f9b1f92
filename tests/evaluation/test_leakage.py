from typing import Any

import pytest
from PIL import Image

from hydractl.data.hashes import sketch
from hydractl.data.samples import Samples
from hydractl.errors import ArtifactError, DataError
from hydractl.evaluation.sets import find_leaks, refuse_leaks
from hydractl.systems.system import EvaluationData, SetKey


def samples(*shades: int, name: str = "set") -> Samples:
    return Samples(name, "text", [f"text {shade}" for shade in shades])


def data(inside: Samples, outside: Samples | None = None, calibration: Samples | None = None) -> EvaluationData:
    sets = {SetKey("id", inside.name): inside}
    sets |= {SetKey("ood", outside.name, "far"): outside} if outside else {}
    sets |= {SetKey("calibration", calibration.name): calibration} if calibration else {}
    return EvaluationData(sets)


def step(search_data: object = None, *inputs: dict[str, Any]) -> dict[str, Any]:
    return {"options": {"search_data": search_data}, "inputs": [{"sha256": "", "provenance": p} for p in inputs]}


def test_one_sample_in_a_grandparent_is_refused() -> None:
    seen = {"agnews": sketch(samples(3, 4, 5).content_hashes())}
    history = step(None, step(), step(None, step(seen)))
    assert find_leaks("hydra", [history], data(samples(1, 2))) == []
    refuse_leaks("hydra", [])
    with pytest.raises(DataError, match=r": 1 of 2 .*\(as agnews\)"):
        refuse_leaks("hydra", find_leaks("hydra", [history], data(samples(1, 5))))


def test_a_sample_used_twice_counts_once_and_every_set_is_named() -> None:
    seen = {"id": sketch(samples(1, 2).content_hashes()), "ood": sketch(samples(2, 3).content_hashes())}
    found = find_leaks("m", [step(seen)], data(samples(1, 2, 9), samples(3, 8, name="noise")))
    assert [(leak.set, leak.overlap, leak.samples, leak.used_as) for leak in found] == [
        ("id", 2, 3, ("id", "ood")),
        ("ood/far/noise", 1, 2, ("ood",)),
    ]
    with pytest.raises(DataError, match=": 2 of 3 .*noise: 1 of 2"):
        refuse_leaks("m", found)


def test_calibration_on_what_is_evaluated_is_a_leak_of_every_system() -> None:
    with pytest.raises(DataError, match=": 1 of 2 .*`calib_data`"):
        refuse_leaks("m", find_leaks("m", [], data(samples(1, 2), calibration=samples(2, 3, name="held"))))


def test_nothing_remembered_means_nothing_hashed() -> None:
    class Unreadable(list[Image.Image]):
        def __getitem__(self, _index: Any) -> Any:
            raise AssertionError

    assert find_leaks("m", [step(), {}], data(Samples("set", "image", Unreadable()))) == []


def test_a_damaged_record_lets_nothing_through() -> None:
    with pytest.raises(ArtifactError, match="^m: x: "):
        find_leaks("m", [step({"x": {"samples": 3}})], data(samples(1)))
