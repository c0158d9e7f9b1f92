"""The commonest mistakes: what a user types, what the one line of the error names, and the command that then works."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Command


@pytest.fixture
def here(tmp_path: Path, vit: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a network, labelled images, OOD images without labels, and a circuit."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(vit, "vit")
    shutil.copytree(images, "pets")
    shutil.copytree(images / "owl", "noise")
    steps = [{"tower": "vision", "layer": 0, "head": head} for head in range(2)]
    Path("mine.json").write_text(json.dumps({"format": "hydractl-circuit", "version": 1, "steps": steps}))
    return tmp_path


def changed(name: str, **changes: object) -> None:
    shutil.copytree("vit", name)
    config = json.loads(Path(name, "config.json").read_text())
    Path(name, "config.json").write_text(json.dumps(config | changes))


def trainer() -> None:
    for step in (2, 10):
        shutil.copytree("vit", f"trainer/checkpoint-{step}")
    Path("trainer/training_args.bin").write_bytes(b"x")


def adapter() -> None:
    Path("lora").mkdir()
    Path("lora/adapter_config.json").write_text('{"peft_type": "LORA", "r": 2}')


def pickled(name: str, config: str = "{}") -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(b"PK\x03\x04archive!")
    Path(name).with_name("config.json").write_text(config)


def nothing() -> None:
    """Needs no file."""


BUILD = "build vit --id-data pets"
PRUNE = "prune vit --method random --budget 2 -o member"
#: What is prepared, the command, its exit code, what the error names, and a command that works; "" where none can.
MISTAKES: dict[str, tuple[Callable[[], object], str, int, str, str]] = {
    "a misspelt command": (nothing, "prun vit", 2, "did you mean hydractl prune?", PRUNE),
    "a command of a group": (nothing, "familes", 2, "did you mean hydractl list families?", "list families"),
    "an old spelling": (nothing, "list-recipes", 2, "did you mean hydractl list recipes?", "list recipes"),
    "a misspelt option": (nothing, "prune vit --methd random", 2, "--method", PRUNE),
    "a misspelt value": (nothing, "prune vit --method randm --budget 2", 2, "did you mean random?", PRUNE),
    "a misspelt score": (nothing, "evaluate vit --id-data pets --ood-score knnn", 2, "'knnn' is not one of", ""),
    "a misspelt format": (nothing, "export vit --format onx -o x", 2, "'onx' is not one of",
                          "export vit --format hf -o x"),
    "no circuit yet": (nothing, "prune vit --method circuit --budget 2", 1, "run extract-circuit first",
                       "prune vit --method circuit --circuit mine.json --budget 2"),
    "a Trainer's folder": (trainer, "inspect trainer", 0, "trainer/checkpoint-10", "inspect trainer/checkpoint-10"),
    "a lone adapter": (adapter, "inspect lora", 1, "hydractl fuse NETWORK lora", ""),
    "a pickle": (lambda: pickled("old/pytorch_model.bin"), "inspect old", 1, "save_pretrained", ""),
    "timm's pickle": (lambda: pickled("timm/pytorch_model.bin", '{"architecture": "vit"}'), "inspect timm", 1,
                      "timm/pytorch_model.bin: is a pickle", ""),
    "a .pth": (lambda: pickled("net/model.pth"), "inspect net/model.pth", 1, "net/model.pth: is a pickle", ""),
    "a decoder": (lambda: changed("gpt", model_type="gpt2"), "inspect gpt", 1, "it is a decoder", ""),
    "a tagger": (lambda: changed("tag", model_type="bert", architectures=["BertForTokenClassification"]),
                 "inspect tag", 1, "tags words: not supported", ""),
    "several labels": (lambda: changed("multi", problem_type="multi_label_classification"), "inspect multi", 1,
                       "multi-label classification is not supported", ""),
    "a regression": (lambda: changed("line", problem_type="regression"), "inspect line", 1,
                     "regression is not supported", ""),
    "no inputs": (nothing, "predict vit", 2, "--data", "predict vit --data pets"),
    "text for images": (lambda: Path("a.txt").write_text("cat"), "predict vit a.txt", 1, "a.txt: unreadable image", ""),
    "settings without training": (nothing, f"{BUILD} -o b --set epochs=1", 2, "--set has no effect",
                                  f"{BUILD} -o b --dry-run"),
    "a recipe without training": (nothing, f"{BUILD} -o b --recipe sst2", 2, "--recipe has no effect", ""),
    "a build without data": (nothing, "build vit -o b", 2, "--id-data is missing", f"{BUILD} -o b --dry-run"),
    "a build without output": (nothing, BUILD, 2, "--output is missing", f"{BUILD} -o b --dry-run"),
    "a time in words": (nothing, f"{BUILD} -o b --time soon", 2, "--time soon", f"{BUILD} -o b --time 5m --dry-run"),
    "a build of no such file": (nothing, "build other.toml -o b", 2, "other.toml", ""),
    "data without labels": (nothing, "evaluate vit --id-data noise", 1, "name it with --label-column", ""),
    "a misspelt split": (nothing, "evaluate vit --id-data pets:tset", 1, "only train",
                         "evaluate vit --id-data pets:train"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_error_names_what_is_wrong_and_the_remedy_works(hydractl: Command, here: Path, mistake: str) -> None:
    prepare, command, code, words, remedy = MISTAKES[mistake]
    prepare()
    result = hydractl(*command.split())
    assert (result.code, words in result.err + result.out) == (code, True), result.err
    if code:
        assert result.err.startswith("error: ")
        assert result.err.count("\n") == 1
    if remedy:
        mended = hydractl(*remedy.split(), "--quiet")
        assert mended.code == 0, mended.err
