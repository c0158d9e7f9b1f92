import doctest
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hydractl
from hydractl.checkpoint.heads import Head
from hydractl.cli.app import COMMANDS
from hydractl.families.load import read_checkpoint, write_checkpoint
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads
from tests.cli.conftest import LABELS, save_bert, save_circuit, save_images, save_vit

EXAMPLES = {command.name: inspect.unwrap(command.step) for command in COMMANDS}
EXAMPLES |= {"load": inspect.unwrap(hydractl.load), "save": inspect.unwrap(hydractl.save), "hydractl": hydractl}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: Path) -> Iterator[Path]:
    """What examples may name."""
    monkeypatch.chdir(tmp_path)
    vit = save_vit(tmp_path / "vit")
    save_bert(tmp_path / "bert")
    save_images(tmp_path / "data" / "pets")
    (tmp_path / "data" / "noise").symlink_to(noise)
    dense = read_checkpoint(vit)
    members = [drop_heads(dense, [Head("vision", layer, 1)]) for layer in (0, 1)]
    for number, member in enumerate(members, 1):
        write_checkpoint(member, f"m{number}")
    write_checkpoint(fuse(members), "hydra")
    save_circuit("circuit.json", (0, 0), (0, 2), (1, 0), (1, 2))
    rows = "".join(f"a {word} film,{label}\n" for word in ("good", "bad", "owl") for label in LABELS)
    (tmp_path / "texts.csv").write_text(f"text,label\n{rows}")
    return tmp_path


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_step_and_of_the_package(name: str, here: Path) -> None:
    [found] = doctest.DocTestFinder(recurse=False).find(EXAMPLES[name], name, globs={"hydractl": hydractl})
    assert found.examples, f"{name} has no example for Python"
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(found, out=report.append)
    assert not report, "".join(report)


def test_every_name_is_offered_and_loads_no_torch() -> None:
    code = (
        "import sys, hydractl\n"
        "names = set(dir(hydractl))\n"
        "assert set(hydractl.__all__) <= names, names\n"
        "assert not {'torch', 'transformers', 'timm', 'datasets'} & set(sys.modules), 'heavy'\n"
        "for name in hydractl.__all__:\n"
        "    assert callable(getattr(hydractl, name)), name\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
