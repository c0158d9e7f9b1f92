import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import HYDRACTL

#: Stands in for the subcommands, and loses what is raised in it.
LOSING = """
import hashlib, sys, time, types, weakref
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
@pytest.mark.parametrize("lost", ["in_a_callback", "in_a_library", "in_another_error", "in_a_native_call"])
def test_no_signal_is_lost(lost: str, then: str, number: signal.Signals, code: int) -> None:
    command = [sys.executable, "-c", LOSING, lost, then]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "works\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (code, "interrupted\n" if number == signal.SIGINT else "")


#: Commands that take about as long as the latest moment, or longer.
COMMANDS = (
    "extract-circuit vit --id-data pets --ood-data noise --objective acc,avg --budget 6 --batch-size 1 -o {objective}",
    "finetune vit --train-data pets --epochs 2000 --batch-size 2 --workers 2 -o tuned",
    "evaluate vit other --id-data pets --ood-data noise --bootstrap 100000",
    "build vit --id-data pets --ood-data noise -o built",
)
LATEST = 4.0  # seconds


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(int(os.environ.get("HYDRACTL_INTERRUPTS", "20"))))
def test_an_interrupt_at_any_moment_ends_a_command_soon(seed: int, place: Path) -> None:
    chance = random.Random(seed)
    command = [*HYDRACTL, *COMMANDS[seed % len(COMMANDS)].split()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=place)
    try:
        process.communicate(timeout=chance.uniform(0.2, LATEST))
    except subprocess.TimeoutExpired:
        pass
    else:
        assert process.returncode == 0  # a quiet machine is done before the late moments of a short command
        return
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - start < SECONDS
    # Before `run` is called, Python itself ends by the signal, which shells call 130 too.
    assert process.returncode in (130, -signal.SIGINT), err
    assert not list(place.glob("**/*.part"))
