import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from hydractl.cli.app import COMMANDS as ALL
from tests.cli.conftest import HYDRACTL, Command

#: What only computing and reading files needs, not the help of a command or the completion of its options.
COMPUTING = {"torch", "transformers", "timm", "datasets", "sklearn", "scipy", "numpy", "pydantic", "PIL"}

#: Runs a command and prints what it has imported.
IMPORTS = """
import atexit, sys
atexit.register(lambda: print("IMPORTED", *sys.modules))
from hydractl.cli.main import run
run()
"""


def imported(*arguments: str, **settings: str) -> tuple[str, set[str]]:
    """What a command says, and the modules that were imported in its process."""
    command, environment = [sys.executable, "-c", IMPORTS, *arguments], {**os.environ, **settings}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stderr == ""
    said, _, names = done.stdout.rpartition("IMPORTED ")
    return said, set(names.split())


def test_help_lists_every_command_and_loads_nothing_heavy() -> None:
    said, modules = imported("--help")
    assert not modules & {"rich", *COMPUTING, *(f"hydractl.steps.{each.place.partition(':')[0]}" for each in ALL)}
    for command in ALL:
        assert f"  {command.name.split()[0]} " in said


#: Shows the help of every command in a process of its own, and prints what it has imported; needs one start of Python.
EVERY_HELP = """
import os, sys
from hydractl.cli.app import COMMANDS
from hydractl.cli.main import run
for command in COMMANDS:
    if os.fork() == 0:
        sys.argv = ["hydractl", *command.name.split(), "--help"]
        try:
            run()
        finally:
            print("IMPORTED", command.place, *sys.modules)
    os.wait()
"""


def test_help_of_a_command_loads_its_own_step_and_nothing_that_computes() -> None:
    done = subprocess.run([sys.executable, "-c", EVERY_HELP], capture_output=True, text=True, check=True)
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("IMPORTED ")]
    assert [place for place, *_ in lines] == [each.place for each in ALL]
    for place, *modules in lines:
        assert f"hydractl.steps.{place.partition(':')[0]}" in modules
        assert not COMPUTING & set(modules), place


def test_completion_knows_commands_and_options_and_loads_no_network() -> None:
    for words, at, expected in (("hydractl pru", 1, "prune"), ("hydractl analyse heads --cir", 3, "--circuit")):
        said, modules = imported(_HYDRACTL_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(at))
        assert expected in said.split()
        assert not modules & COMPUTING - {"pydantic"}  # which typer itself imports to complete


def test_a_secret_in_a_long_argument_is_not_told(hydractl: Command) -> None:
    address = f"https://someone:{'pass' * 20}word@example.org/{'x' * 40}"
    result = hydractl(address)
    assert result.code == 2 and "https://***" in result.err and "pass" not in result.err


def test_a_bug_of_ours_is_one_line_unless_a_traceback_is_asked_for(
    hydractl: Command, monkeypatch: pytest.MonkeyPatch, vit: Path
) -> None:
    def broken(_summary: object) -> list[str]:
        raise TypeError("what\never")

    monkeypatch.setattr("hydractl.reports.summary.summary_lines", broken)
    result = hydractl("inspect", vit)
    assert result.code == 1
    assert result.err.startswith("error: internal error: TypeError: what ever (HYDRACTL_TRACEBACK=1 ")
    monkeypatch.setenv("HYDRACTL_TRACEBACK", "1")
    with pytest.raises(TypeError):
        hydractl("inspect", vit)


@pytest.mark.parametrize(
    ("trouble", "remedy"),
    [
        ("memory", "--batch-size"),
        pytest.param("workers", "--workers", marks=pytest.mark.apart),
        ("rank", "a process of this job ended early"),
    ],
)
def test_what_ends_a_command_says_what_to_do(
    hydractl: Command, monkeypatch: pytest.MonkeyPatch, vit: Path, trouble: str, remedy: str
) -> None:
    def hungry(_checkpoint: object) -> None:
        if trouble == "memory":
            raise MemoryError("no 3 TiB")
        if trouble == "rank":
            raise RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer")
        next(iter(DataLoader(range(2), num_workers=1, collate_fn=kill_this_process)))

    monkeypatch.setattr("hydractl.reports.summary.summarize", hungry)
    result = hydractl("inspect", vit)
    assert (result.code, result.err.count("\n"), remedy in result.err) == (1, 1, True)


def kill_this_process(_samples: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_reader_that_leaves_ends_it_quietly(vit: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*HYDRACTL, "inspect", vit], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


LIBRARIES = {"datasets", "pandas", "torchvision", "transformers", "timm", "scipy", "torch._dynamo"}


def test_inspect_and_the_guide_load_no_library(vit: Path, tmp_path: Path) -> None:
    circuit = tmp_path / "circuit.json"
    circuit.write_text('{"format": "hydractl-circuit", "version": 1, "steps": []}')
    for words in (["inspect", str(circuit)], ["inspect", str(vit)], ["guide", "results"]):
        said, modules = imported(*words)
        assert words[1] in said.lower()
        assert not modules & {"torch", *LIBRARIES}


def test_predict_loads_torch_and_what_its_input_needs(vit: Path, bert: Path, images: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a good film\n")
    said, modules = imported("predict", str(vit), str(images / "cat" / "0.png"), "--quiet")
    assert "cat" in said
    assert "PIL" in modules
    assert not modules & {"tokenizers", *LIBRARIES}
    _, modules = imported("predict", str(bert), str(tmp_path / "texts.txt"), "--quiet")
    assert "tokenizers" in modules
    opener = [sys.executable, "-c", "import sys; from transformers import AutoTokenizer; print(*sys.modules)"]
    assert not modules & LIBRARIES - set(subprocess.check_output(opener, text=True).split())
