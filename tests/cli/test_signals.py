import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.cli.conftest import HYDRACTL, save_images

#: Stands in for the subcommands, and loses what is raised in it.
LOSING = """
import hashlib, os, sys, time, types, weakref
def in_a_callback():
    class Thing: pass
    thing = Thing()
    kept = weakref.ref(thing, lambda _: (print("works", flush=True), time.sleep(2)))
    del thing
def in_a_library():
    try:
        print("works", flush=True)
        time.sleep(60)
    except BaseException:
        pass
def in_another_error():
    try:
        print("works", flush=True)
        time.sleep(60)
    except BaseException as error:
        raise ValueError from error
def in_the_import_of_torch():
    sys.modules["torch"] = types.SimpleNamespace(__spec__=types.SimpleNamespace(_initializing=True))
    try:
        print("works", flush=True)
        time.sleep(60)
    except BaseException:
        os.abort()
def in_a_native_call():
    print("works", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
def app(**_):
    globals()[sys.argv[1]]()
    time.sleep(60 if sys.argv[2] == "long" else 0)
sys.modules["hydractl.cli.app"] = types.SimpleNamespace(app=app)
from hydractl.cli.main import run
run()
"""
SECONDS = 3.0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("then", ["long", "short"])
@pytest.mark.parametrize(
    "lost", ["in_a_callback", "in_a_library", "in_another_error", "in_the_import_of_torch", "in_a_native_call"]
)
def test_no_signal_is_lost(lost: str, then: str, number: signal.Signals, code: int) -> None:
    command = [sys.executable, "-c", LOSING, lost, then]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "works\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (code, "interrupted\n" if number == signal.SIGINT else "")


#: Interrupted in a function of Python, goes on for longer than a command may.
LIBRARY = """
import signal, time
import hydractl
hydractl.analyse_speed("vit", seconds=0)
try:
    print("works", flush=True)
    hydractl.analyse_speed("vit", seconds=60)
except KeyboardInterrupt:
    print("caught", flush=True)
time.sleep(3)
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
print(*{signal.getsignal(number).name for number in (signal.SIGTERM, signal.SIGHUP)}, signal.set_wakeup_fd(-1))
"""


def test_an_interrupted_function_leaves_the_process_to_its_user(place: Path) -> None:
    command = [sys.executable, "-c", LIBRARY]
    process = subprocess.Popen(command, cwd=place, stdout=PIPE, stderr=PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "works\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out.splitlines()) == (0, ["caught", "True", "SIG_DFL -1"]), err


#: Commands that take about as long as the latest moment, or longer.
COMMANDS = (
    "extract-circuit vit --id-data many --ood-data noise --objective acc,avg --budget 6 --batch-size 1 -o {objective}",
    "finetune vit --train-data many --epochs 2000 --batch-size 2 --workers 2 -o tuned",
    "evaluate vit other --id-data many --ood-data noise --bootstrap 100000",
    "build vit --id-data many --ood-data noise --batch-size 1 -o built",
    "select vit --random 300 --budgets 2,3,4 --id-data many --batch-size 1 -o selection",
    "score-heads vit --method ablation --objective acc --id-data many --batch-size 1 -o scores",
    "prune vit --method taylor --budget 3 --id-data many --batch-size 1 -o pruned",
    "analyse speed vit --seconds 60",
    "predict bert -",
)
#: Seconds; the time of a few of them, or of as many as one asks for.
LATEST = 20.0 if "HYDRACTL_INTERRUPTS" in os.environ else 4.0


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough images to be at work for long."""
    return save_images(tmp_path_factory.mktemp("data") / "many", count=1000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(os.environ.get("HYDRACTL_INTERRUPTS", "20"))))
def test_an_interrupt_at_any_moment_ends_a_command_soon(seed: int, place: Path, many: Path) -> None:
    (place / "many").symlink_to(many)
    chance = random.Random(seed)
    command = [*HYDRACTL, *COMMANDS[seed % len(COMMANDS)].split()]
    process = subprocess.Popen(command, cwd=place, text=True, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    try:
        process.wait(chance.uniform(0.2, LATEST))
    except subprocess.TimeoutExpired:
        pass
    else:
        assert process.returncode == 0  # a quiet machine is done before the late moments of a short command
        return
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - start < SECONDS
    # Before `run` is called, Python itself ends by the signal, which shells call 130 too, or by an error of its start.
    assert process.returncode in (130, -signal.SIGINT) or "import the site module" in err, err
    assert not list(place.glob("**/*.part"))
