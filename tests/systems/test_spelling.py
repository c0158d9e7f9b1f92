from pathlib import Path

import pytest

from hydractl.errors import OptionError
from hydractl.systems.networks import NetworkSystem
from hydractl.systems.onnx import OnnxSystem
from hydractl.systems.saved import SavedPredictions
from hydractl.systems.spelling import SYSTEM_KINDS, SystemKind, parse_system
from hydractl.systems.system import Dropout

#: A text of each kind, its name unless it is given one, and what it asks for.
SPELT = {
    "model": ("models/vit", "vit", NetworkSystem(("models/vit",))),
    "members": ("models/hydra:0,2", "hydra:0,2", NetworkSystem(("models/hydra",), members=(0, 2))),
    "deep-ensemble": ("a.safetensors+m/b", "a+b", NetworkSystem(("a.safetensors", "m/b"))),
    "mc-dropout": ("vit,mc-dropout=10,p=0.1", "vit mc-dropout", NetworkSystem(("vit",), Dropout(10, 0.1))),
    "onnx": ("models/vit.onnx", "vit", OnnxSystem(Path("models/vit.onnx"))),
    "predictions": ("predictions:out/p", "p", SavedPredictions(Path("out/p"))),
}


@pytest.mark.parametrize("kind", SYSTEM_KINDS, ids=lambda kind: kind.name)
def test_each_kind_is_spelt_in_its_own_way(kind: SystemKind) -> None:
    text, name, spec = SPELT[kind.name]
    assert parse_system(text) == (name, spec)
    assert parse_system(f"mine={text}") == ("mine", spec)


def test_a_path_that_exists_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("lr=1+wd=0,p=0.5", "x+y"):
        Path(name).mkdir()
        assert parse_system(name)[1] == NetworkSystem((name,))
    assert parse_system("mc=x+y,mc-dropout=2,p=0.5") == ("mc", NetworkSystem(("x+y",), Dropout(2, 0.5)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a++b", "an empty model name"),
        ("+".join(["vit"] * 101), "adds up 101 models, expected 100 at most"),
        ("x=predictions:", "names no folder"),
        ("vit,mc-dropout=3,passes=3", "'passes' is not an option"),
        ("vit,p=0.1", "mc-dropout=10,p=0.1"),
        ("vit,mc-dropout=some", "mc-dropout=10,p=0.1"),
        ("vit,mc-dropout=0,p=0.1", "1 to 10000 passes"),
        ("vit,mc-dropout=3,p=1", "below 1"),
    ],
)
def test_what_makes_no_sense(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_system(text)
