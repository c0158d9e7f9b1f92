"""What a system of an evaluation is, from how it is spelt."""

from __future__ import annotations

from pathlib import Path

import pytest

from hydractl.errors import OptionError
from hydractl.evaluation.systems import Dropout, SystemSpec, parse_system


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models/vit", SystemSpec("vit", ("models/vit",))),
        ("hydra.safetensors", SystemSpec("hydra", ("hydra.safetensors",))),
        ("mine=m/vit", SystemSpec("mine", ("m/vit",))),
        ("DE=a.safetensors+b+c", SystemSpec("DE", ("a.safetensors", "b", "c"))),
        ("a.safetensors+m/b", SystemSpec("a+b", ("a.safetensors", "m/b"))),
        ("mc=vit,mc-dropout=10,p=0.1", SystemSpec("mc", ("vit",), dropout=Dropout(10, 0.1))),
        ("vit,mc-dropout=10", SystemSpec("vit mc-dropout", ("vit",), dropout=Dropout(10))),
        ("packed=predictions:out/p", SystemSpec("packed", predictions=Path("out/p"))),
        ("predictions:out/p", SystemSpec("p", predictions=Path("out/p"))),
    ],
)
def test_spellings(text: str, expected: SystemSpec) -> None:
    assert parse_system(text) == expected


def test_a_path_that_exists_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("lr=1+wd=0,p=0.5", "x+y"):
        Path(name).mkdir()
        assert parse_system(name).references == (name,)
    assert parse_system("mc=x+y,mc-dropout=2,p=0.5") == SystemSpec("mc", ("x+y",), dropout=Dropout(2, 0.5))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a++b", "a model that is empty"),
        ("x=predictions:", "names no folder"),
        ("vit,passes=3", "'passes' is no option"),
        ("vit,p=0.1", "mc-dropout=10,p=0.1"),
        ("vit,mc-dropout=some", "mc-dropout=10,p=0.1"),
        ("vit,mc-dropout=0,p=0.1", "at least one pass"),
        ("vit,mc-dropout=3,p=1", "below 1"),
    ],
)
def test_what_makes_no_sense(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_system(text)
