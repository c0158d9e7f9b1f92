"""Nothing phones home: neither a command nor the functions of Python, where nothing but hydractl turns that off."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import save_bert, save_images, save_vit

ROOT = Path(__file__).parents[1]

#: Prints each look-up of a name, connection and fork; at the end each socket and child that is left, native ones too.
AUDITED = """
import atexit, glob, os, sys

def audit(event, arguments):
    if event in ("socket.getaddrinfo", "socket.connect", "socket.sendto", "os.fork", "os.forkpty"):
        print("SEEN", event, arguments, file=sys.stderr)

def look_back():
    for path in glob.glob("/proc/self/fd/*"):
        if os.path.islink(path) and os.readlink(path).startswith("socket:"):
            print("SEEN", path, file=sys.stderr)
    for path in glob.glob("/proc/self/task/*/children"):
        if children := open(path).read():
            print("SEEN children", children, file=sys.stderr)

sys.addaudithook(audit)
atexit.register(look_back)
"""
COMMAND = """
sys.argv = ["hydractl", "evaluate", "bert", "--id-data", "texts.csv", "--json", "-"]
from hydractl.cli.main import run
run()
"""
FUNCTIONS = """
import hydractl
hydractl.export("vit", output="vit.onnx")
hydractl.predict("vit.onnx", "pets/cat/0.png")
hydractl.evaluate("bert", id_data="texts.csv")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with networks of images and of texts, and data of both."""
    folder = tmp_path_factory.mktemp("place")
    save_vit(folder / "vit")
    save_bert(folder / "bert")
    save_images(folder / "pets", count=1)
    (folder / "texts.csv").write_text("text,label\ngood film,cat\nbad film,dog\na film,owl\n")
    return folder


@pytest.mark.parametrize("script", [COMMAND, FUNCTIONS], ids=["command", "functions"])
def test_nothing_phones_home(place: Path, script: str, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", AUDITED + script]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("SEEN")] == []
    assert [path for path in tmp_path.rglob("*") if "onnxruntime" in path.name] == []  # its device number and queue


def test_what_the_user_has_set_stays() -> None:
    script = "import hydractl, os; print(*map(os.environ.get, hydractl._SILENCE))"
    chosen = {"HF_HUB_DISABLE_TELEMETRY": "0", "HF_UPDATE_DOWNLOAD_COUNTS": "1", "ORT_DISABLE_TELEMETRY": ""}
    environment = {**os.environ, **chosen, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.rstrip("\n").split(" ") == [*chosen.values()]
