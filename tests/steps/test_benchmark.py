"""`hydractl.benchmark` times what the command does; times differ, counts do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import hydractl as library
from hydractl.errors import OptionError
from tests.cli.conftest import Command


def counted(report: dict[str, Any]) -> list[Any]:
    return [
        (row["name"], row["dtype"], row["batch_size"], row["weight"], row["counted_ratio"]) for row in report["rows"]
    ]


def test_python_and_the_command_count_the_same(hydractl: Command, vit: Path) -> None:
    timed = library.benchmark(
        {"one": vit, "two": [vit, library.load(vit)]}, batch_sizes=[1, 2], dtypes=["bf16", torch.float32], seconds=0
    )
    arguments = (f"one={vit}", f"two={vit}+{vit}", "--batch-sizes", "1,2", "--dtypes", "bf16,fp32", "--seconds", 0)
    printed = json.loads(hydractl("benchmark", *arguments, "--json").out)
    assert counted(timed.to_json()) == counted(printed)
    for report in (printed, timed.to_json()):
        named = {name: [Path(one).resolve() for one in several] for name, several in report["models"].items()}
        assert named == {"one": [vit], "two": [vit] * 2}
    assert "float32, batch 2" in repr(timed)
    assert "bfloat16, batch 1" in timed._repr_html_()


def test_names_follow_from_paths(vit: Path, bert: Path) -> None:
    assert list(library.benchmark([vit, str(bert)], batch_sizes=1, seconds=0).models) == ["vit", "bert"]


def test_threads_are_as_before(vit: Path) -> None:
    before = torch.get_num_threads()
    timed = library.benchmark(vit, batch_sizes=1, seconds=0, processor_time=True)
    assert timed.environment["threads"] == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_sizes": [0]}, "`batch_sizes`"),
        ({"batch_sizes": 10**9}, "`batch_sizes` 1000000000: expected whole numbers from 1 to"),
        ({"dtypes": ["fp8"]}, "'fp8' is unknown"),
        ({"seconds": float("inf")}, "`seconds` inf: expected a number"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str, vit: Path) -> None:
    with pytest.raises(OptionError, match=message):
        library.benchmark(vit, **options)
