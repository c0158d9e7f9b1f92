"""The example from Python runs through, on a small network and a few images."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import save_images, save_vit

ROOT = Path(__file__).parents[2]


def test_the_example_runs_and_draws_its_picture(tmp_path: Path) -> None:
    save_vit(tmp_path / "vit")
    data = tmp_path / "data"
    for seed, name in enumerate(("digits/validation", "digits/test", "near_search")):
        save_images(data / name, count=2, seed=seed)
    for name in ("near_test", "far_test"):
        (data / name).mkdir()
        for number, file in enumerate(sorted((data / "near_search").glob("*/*.png"))):
            shutil.copy(file, data / name / f"{number}.png")
    # What was searched on may not be measured on: here other pixels stand for other images.
    shutil.rmtree(data / "near_search")
    save_images(data / "near_search", count=2, seed=9)
    script = ROOT / "examples" / "from_python.py"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "hydra" in done.stdout
    assert (tmp_path / "from_python.png").stat().st_size > 1000
