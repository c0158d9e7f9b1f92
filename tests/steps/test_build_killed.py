"""A build that is killed again and again, wherever it happens to be, comes to the same bytes as one left alone."""

import multiprocessing
import os
import random
import signal
import time
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest

from tests.steps.test_build import here

__all__ = ["here"]

KILLS = 4
IMPORTED = ["datasets", "timm", "torchvision", "torch._dynamo", "matplotlib.pyplot",
            "transformers.image_processing_utils", "hydractl.steps.build", "hydractl.evaluation.comparison",
            "hydractl.reports.page"]  # fmt: skip
MADE = ("hydra.safetensors", "network.safetensors", "work/selected.json", "work/drawn.json", "Makefile")


def build(folder: str, output: str) -> None:
    """A build in a process of its own."""
    import hydractl

    os.chdir(folder)
    with open(f"{output}.log", "a") as log, redirect_stderr(log):
        hydractl.build("vit", id_data="pets", ood_data=["near/noise=noise", "far/grey=grey"], budgets="1,2", members=2,
                       device="cpu", output=output)  # fmt: skip


def started(folder: Path, output: str) -> Any:
    """A process that builds; what it imports was imported once for all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    process = context.Process(target=build, args=(str(folder), output))
    process.start()
    return process


@pytest.mark.slow
def test_a_build_that_is_killed_goes_on_to_the_same_bytes(here: Path) -> None:
    for output in ("alone", "warm"):  # the second takes as long as those that are killed would
        begun = time.perf_counter()
        process = started(here, output)
        process.join()
        assert process.exitcode == 0
    takes, generator, kills, builds = time.perf_counter() - begun, random.Random(0), 0, 0
    while kills < KILLS:
        builds, output, code = builds + 1, f"killed{builds}", None
        while code != 0:
            process = started(here, output)
            process.join(generator.uniform(0, takes) if kills < KILLS else None)
            if process.exitcode is None:
                os.kill(process.pid, signal.SIGKILL)
                process.join()
                kills += 1
            code = process.exitcode
            assert code in (0, -signal.SIGKILL), (here / f"{output}.log").read_text()
        for name in MADE:
            assert (here / output / name).read_bytes() == (here / "alone" / name).read_bytes(), name
