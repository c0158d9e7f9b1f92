"""What a model has seen is found however deep in its history it lies."""

from __future__ import annotations

from typing import Any

import pytest
from PIL import Image

from hydractl.data.seen import sketch
from hydractl.data.sources import Samples
from hydractl.errors import ArtifactError, DataError
from hydractl.evaluation.leakage import refuse_used


def samples(*shades: int) -> Samples:
    return Samples("set", "text", [f"text {shade}" for shade in shades])


def step(search_data: object = None, *inputs: dict[str, Any]) -> dict[str, Any]:
    return {"options": {"search_data": search_data}, "inputs": [{"sha256": "", "provenance": p} for p in inputs]}


def test_one_sample_in_a_grandparent_is_refused() -> None:
    seen = {"agnews": sketch(samples(3, 4, 5).content_hashes())}
    history = step(None, step(), step(None, step(seen)))
    refuse_used("hydra", history, samples(1, 2))
    with pytest.raises(DataError, match=r"^set: 1 of 2 samples were used to make hydra \(as agnews\)"):
        refuse_used("hydra", history, samples(1, 5))


def test_nothing_remembered_means_nothing_hashed() -> None:
    class Unreadable(list[Image.Image]):
        def __getitem__(self, _index: Any) -> Any:
            raise AssertionError

    refuse_used("m", step(), Samples("set", "image", Unreadable()))
    refuse_used("m", {}, Samples("set", "image", Unreadable()))


def test_a_damaged_record_lets_nothing_through() -> None:
    with pytest.raises(ArtifactError, match=r"^m: x: .*damaged"):
        refuse_used("m", step({"x": {"samples": 3}}), samples(1))
