import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from safetensors import safe_open

import hydractl as library
from hydractl.checkpoint.calibration import Calibration
from hydractl.checkpoint.slots import slots
from hydractl.cli.app import COMMANDS, app
from hydractl.cli.derive import options_of
from hydractl.families.load import read_checkpoint
from hydractl.options import flags_of
from hydractl.steps.guide import TOPICS, page
from tests.cli.conftest import Command, save_clip, save_digits
from tests.conftest import build_reference
from tests.factories import save_encoder, save_tagger, save_texts, sentences
from tests.references import family_variants

ROOT = Path(__file__).parents[2]
README = "README"
TAGGED = sentences(90, seed=7)
TEXTS = {README: (ROOT / "README.md").read_text(encoding="utf-8")} | {topic: page(topic) for topic in TOPICS}
#: Pages that begin with a checkpoint and data; the others go on from what `start` made.
FIRST = (README, "start")


class Block(NamedTuple):
    """A block of code: its language, and the file that it is where it has a name."""

    language: str
    file: str
    text: str


def blocks(name: str) -> Iterator[Block]:
    for found in re.findall(r"^```(\w+) ?([\w.-]*)\n(.*?)^```$", TEXTS[name], re.DOTALL | re.MULTILINE):
        yield Block(*found)


def typed(block: Block) -> list[str]:
    """The commands of a block; a backslash at the end of a line joins it to the next."""
    return block.text.replace("\\\n", "").splitlines()


def commands(name: str) -> list[str]:
    return [command for block in blocks(name) if block.language == "bash" for command in typed(block)]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagger that knows a little."""
    folder = tmp_path_factory.mktemp("tagger")
    measured = list(TAGGED["tokens"])
    fresh = sentences(60).filter(lambda row: row["tokens"] not in measured, load_from_cache_file=False)
    fresh.to_parquet(folder / "train.parquet")
    how: dict[str, Any] = {"val_split": 8, "steps": 25, "settings": {"lr": 3e-3, "batch": 8}}
    data = f"{folder}/train.parquet"
    library.finetune([save_tagger(folder / "base")], train_data=data, output=folder / "tagger", **how)
    return folder / "tagger"


@pytest.fixture
def build(tmp_path: Path, tagger: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the digits example leaves in its folder, in small."""
    monkeypatch.chdir(tmp_path)
    save_digits(tmp_path)
    shutil.copyfile(tagger, tmp_path / "tagger")
    save_encoder(tmp_path / "encoder")
    save_texts(tmp_path / "texts.csv")
    save_clip(tmp_path / "clip")
    for place, name in enumerate(("train", "validation", "test")):
        part = TAGGED.select(range(30 * place, 30 * place + 30))
        part.to_json(tmp_path / "data" / f"{name}.jsonl")
    return tmp_path


@pytest.fixture(scope="module")
def after_start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Becomes the folder in which the commands of `start` have run, when they first have."""
    return tmp_path_factory.mktemp("guide") / "build"


def follow(name: str, hydractl: Command) -> None:
    """Does what a page says, from its first line to its last, in the current folder."""
    spoken: dict[str, object] = {}
    for block in blocks(name):
        if block.file:
            Path(block.file).write_text(block.text)
        elif block.language == "python":
            exec(compile(block.text, name, "exec"), spoken)
        elif block.language == "bash":
            for command in typed(block):
                run(command, hydractl)


ALARMS = (
    *("the loss still falls", " is at its bound, since ", " is below chance, "),
    *(" is worse than a coin on ", " no sample of "),
)


def run(command: str, hydractl: Command) -> None:
    program, *arguments = shlex.split(command)
    if program == "cd":
        os.chdir(*arguments)
        return
    if program == "make":
        subprocess.run([program, *arguments, "--dry-run"], cwd=ROOT, check=True, capture_output=True)
        return
    assert program == "hydractl", f"{command}: nothing here can run that"
    result = hydractl(*arguments)
    assert result.code == 0, f"{command}: {result.err}"
    assert result.out, command
    # The networks of tests are random: a temperature finds nothing to mend in them.
    warnings = [line for line in result.err.splitlines() if line.startswith("warning:")]
    assert not [line for line in warnings if not any(alarm in line for alarm in ALARMS)], command


@pytest.fixture
def checkout(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in which the digits example has run, and nothing else."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "examples").mkdir()
    (folder / "examples" / "build").symlink_to(build)
    return folder


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_page_says_to_type_works(
    name: str, hydractl: Command, build: Path, checkout: Path, after_start: Path
) -> None:
    if name in FIRST:  # a tutorial, from top to bottom
        if name == README:
            (build / "built" / "report").mkdir(parents=True)
        os.chdir(checkout)
        follow(name, hydractl)
        return
    if not after_start.exists():
        os.chdir(checkout)
        follow("start", hydractl)
        shutil.copytree(build, after_start)
    shutil.copytree(after_start, build, dirs_exist_ok=True)
    follow(name, hydractl)


NAMES = [command.name for command in COMMANDS]


def test_every_command_is_shown_somewhere() -> None:
    shown = [f"{line} " for name in TEXTS for line in commands(name)]
    assert [name for name in NAMES if not any(line.startswith(f"hydractl {name} ") for line in shown)] == []


@pytest.mark.parametrize("name", TEXTS)
def test_commands_and_options_that_a_page_names_exist(name: str) -> None:
    for found in re.findall(r"`hydractl ([a-z][a-z -]*[a-z])", TEXTS[name]):
        assert any(f"{found} ".startswith(f"{command} ") for command in NAMES), found
    flags = {flag for command in COMMANDS for option in options_of(command) for flag in flags_of(option)}
    flags |= {flag for option in app.params for flag in option.opts}
    baselines = "".join(path.read_text() for path in (ROOT / "examples" / "baselines").glob("*.py"))
    tables = "".join(path.read_text() for path in (ROOT / "examples" / "tables").glob("*.py"))
    settings = {f"--{field.replace('_', '-')}" for field in re.findall(r"(?m)^    (\w+): ", tables)}
    elsewhere = {"--help", "--help-all", "--no-deps", "--nproc-per-node", *settings}
    elsewhere |= set(re.findall(r'"(--[a-z-]+)"', baselines))
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", TEXTS[name])) - flags - elsewhere == set()


def test_the_first_page_is_short() -> None:
    prose = re.sub(r"^```.*?^```$|^\|.*?$|\]\(.*?\)", "", TEXTS[README], flags=re.DOTALL | re.MULTILINE)
    assert len(prose.split()) <= 600


def test_every_file_that_a_page_names_is_there() -> None:
    for name, text in TEXTS.items():
        for target in re.findall(r"`((?:examples|hydractl|tests)/[\w./-]+|[a-z_/]+/[a-z_]+\.py)`", text):
            known = any((folder / target).exists() for folder in (ROOT, ROOT / "hydractl"))
            assert known or target.startswith("examples/build/"), f"{name}: {target}"


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make -C tests" in commands(README)
    assert (ROOT / ".ci" / "run").read_text().endswith("\nmake -C tests\nmake -C tests slow\n")


def test_the_tensor_table_names_every_tensor_and_no_other(tmp_path: Path) -> None:
    names, found = set[str](), set[str]()
    table = TEXTS["file-format"].split("| tensor | stored shape |")[1].split("\n\n")[0]
    for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        first, *more = re.findall(r"`(.*?)`", cell)
        stem = first.rpartition(".")[0]
        names |= {first, *(stem + name if name.startswith(".") else name for name in more)}
    for family in (*family_variants(), "timm-eva02"):  # whose MLPs norm their units
        checkpoint = read_checkpoint(build_reference(family).save(tmp_path / family))
        for name in slots(checkpoint.spec):
            found.add(re.sub(r"\.layers\.\d+\.", ".layers.N.", re.sub(r"^(vision|text)\.", "T.", name)))
    assert names == found


def test_the_manifest_table_names_every_key(hydractl: Command, build: Path) -> None:
    assert hydractl("calibrate", "vit", "--id-data", "data/digits:test", "-o", "warm").code == 0
    with safe_open("warm", framework="pt") as file:
        manifest = json.loads(file.metadata()["hydractl"])
    table = TEXTS["file-format"].split("## The manifest")[1].split("## Tensors")[0]
    keys = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    calibration = {f"calibration.{field.name}" for field in fields(Calibration)}
    documented_keys = {key for cell in keys for key in re.findall(r"`([\w.]+)`", cell)}
    assert documented_keys == (manifest.keys() - {"calibration"}) | calibration | {"units"}
