import io
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hydractl.cli.console import Terminal, show
from hydractl.steps.show import list_suites
from tests.cli.conftest import Command
from tests.hostile import FRAGMENTS, controls, within_limits

#: Stands in for the subcommands: works until it is told to end, and then takes its time to clean up.
SLOW = """
import sys, time, types
def app(**_):
    try:
        print("works", flush=True)
        time.sleep(60)
    finally:
        print("cleans up", flush=True)
        time.sleep(60)
sys.modules["hydractl.cli.app"] = types.SimpleNamespace(app=app)
from hydractl.cli.main import run
run()
"""


FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
#: Lines of a shell, in which $1 is a model and $2 an image, the exit code, and a pattern of what stands on stderr.
STREAMS = {
    "none": ('$hydractl inspect "$1" <&- >&- 2>&-', 0, ""),
    "JSON that nobody can read": (
        *('$hydractl inspect "$1" --json - >&-', 2),
        "error: --json -: standard output is closed: name a file\n",
    ),
    "a full disk": (
        *('unset PYTHONUNBUFFERED; $hydractl inspect "$1" >/dev/full', 1),
        "error: output: No space left on device: free some space or name another output\n",
    ),
    "a limit of memory": (
        *('ulimit -v 400000; $hydractl predict "$1" "$2"', 1),
        "error: out of memory.*: lower --batch-size or choose another --device\n",
    ),
    "a name that none can encode": (
        *("LC_ALL=C PYTHONIOENCODING=ascii $hydractl inspect \"$(printf 'caf\\351\\033[31m')\"", 1),
        r"error: caf\\udce9\\x1b\[31m: no such file or folder: check the path\n",
    ),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=FULL if "disk" in name else ()) for name in STREAMS])
def test_whatever_streams_there_are_it_ends_in_one_line(name: str, vit: Path, images: Path) -> None:
    command, code, said = STREAMS[name]
    line = command.replace("$hydractl", f"{sys.executable} -m hydractl")
    shell = ["sh", "-c", line, "sh", vit, images / "cat" / "0.png"]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (code, "") and re.fullmatch(said, done.stderr), done.stderr


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_the_second_signal_ends_it_at_once(name: str, code: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for said in ("works\n", "cleans up\n"):
        assert process.stdout.readline() == said
        process.send_signal(getattr(signal, name))
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (code, "")


@pytest.mark.parametrize("fragment", [each for each in FRAGMENTS if "\0" not in each])
def test_whatever_is_named_the_error_is_one_line_without_codes(hydractl: Command, fragment: str) -> None:
    with within_limits():
        result = hydractl("inspect", f"no {fragment} {fragment}")
    assert result.code == 1
    assert result.err.startswith("error: no ")
    assert result.err.count("\n") == 1
    assert not controls(result.err)
    assert "internal error" not in result.err
    assert len(result.err) < 700


def test_notes_and_bars_show_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", screen := io.StringIO())
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setenv("HF_TOKEN", "unusual-token")
    terminal = Terminal(quiet=False)
    for number, fragment in enumerate(each for each in FRAGMENTS if len(each) < 30):
        terminal.note(f"{number} {fragment} unusual-token")
        terminal.warn(f"{number} {fragment}")
    assert screen.getvalue().count("\n") == 2 * (number + 1)
    assert not controls(screen.getvalue())
    assert "unusual" not in screen.getvalue()
    with terminal.progress("[red]\x1b[2J", 2.0) as advance:
        advance(1.0, "[/]\u202e[bold]x")
    shown = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]|\r", "", screen.getvalue())  # rich's own
    assert not controls(shown)
    assert r"[red]\x1b[2J" in shown
    assert r"[/]\u202e[bold]x" in shown


@pytest.mark.parametrize("spelled", [["--token", "hf_SECRET"], ["--token=hf_SECRET"], ["--token", "--token"]])
def test_a_token_is_not_in_the_command_that_a_report_shows(spelled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["hydractl", "evaluate", *spelled, "a model", "--seed=1", *spelled])
    assert Terminal(quiet=True).command == "hydractl evaluate 'a model' --seed=1"


def test_a_command_that_a_report_shows_names_files_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [f"{tmp_path}/vit", f"both={tmp_path}/a+{tmp_path}/b", f"--task=x={tmp_path}/id,{tmp_path}/ood"]
    given += [f"far/{tmp_path}/photos:test%1/5", "near/x=b/c+d", "https://hub/x", f"--json={tmp_path}/r.json"]
    given += [f"saved=predictions:{tmp_path}/saved", f"predictions:{tmp_path}/saved"]
    monkeypatch.setattr(sys, "argv", ["hydractl", *given])
    named = "vit both=a+b --task=x=id,ood far/photos:test%1/5 near/x=b/c+d https://hub/x --json=r.json"
    named += " saved=predictions:saved predictions:saved"
    assert Terminal(quiet=True).command == f"hydractl {named}"


def test_a_command_in_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "argv", ["hydractl", "inspect", f"{tmp_path}/vit"])
    assert Terminal(quiet=True).command == "hydractl inspect vit"


@pytest.mark.parametrize("watched", [True, False])
def test_lines_fit_a_terminal_and_are_whole_in_a_pipe(
    watched: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: watched)
    result = list_suites()
    show(result)
    said = capsys.readouterr().out.splitlines()
    assert (max(map(len, said)) <= 60) == watched
    assert " ".join(" ".join(said).split()) == " ".join(" ".join(result.lines()).split())
