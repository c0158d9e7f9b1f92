"""`torchrun ... -m hydractl evaluate`: the same bytes from any number of processes, and one error line for all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import LABELS, Command, save_images, save_vit

TWO = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "hydractl"]


def in_two(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*TWO, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def compare(hydractl: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> dict[str, bytes]:
    """Runs in one process and in two, which must print and write the same; returns what they wrote."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    alone = hydractl(*arguments)
    together = in_two(tmp_path / "two", *arguments)
    assert (alone.code, together.returncode) == (0, 0), alone.err + together.stderr
    assert together.stdout == alone.out
    written = contents(tmp_path / "one")
    assert contents(tmp_path / "two") == written
    return written


def test_images(
    hydractl: Command, vit: Path, images: Path, noise: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = save_vit(tmp_path / "other", seed=1)
    held_out = save_images(tmp_path / "held-out", count=18, seed=5)
    systems = (f"DE={vit}+{other}", f"mc={vit},mc-dropout=3,p=0.2", f"other={other}")
    data = ("--id-data", images, "--ood-data", f"far/n={noise}", "--calib-data", held_out, "--corrupt", "contrast:5")
    kept = ("--save-logits", "logits", "--report", "report", "--json", "report.json")
    wanted = ("--ood-score", "knn", "--temperature", "fit", "--conformal", "aps", "--bootstrap", 20, "--workers", 1)
    # Twelve images in batches of five: the second process has one batch, the first two.
    written = compare(hydractl, tmp_path, monkeypatch, "evaluate", *systems, *data, *wanted, *kept, "--batch-size", 5)
    assert {"report.json", "report/index.html", "logits/mc/ood/far/n.safetensors"} < written.keys()


def test_texts(hydractl: Command, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["a good film", "bad", "a owl", "good good bad owl film a a a a", "film"]
    rows = [json.dumps({"text": text, "label": LABELS[i % 3]}) for i, text in enumerate(texts)]
    (tmp_path / "id.jsonl").write_text("\n".join(rows))
    data = ("--id-data", tmp_path / "id.jsonl", "--ood-data", tmp_path / "id.jsonl", "--batch-size", 2)
    written = compare(hydractl, tmp_path, monkeypatch, "evaluate", bert, *data, "--save-logits", "l", "--json", "r")
    assert {"r", "l/bert/id.safetensors"} < written.keys()


def test_an_error_of_one_process_ends_all_with_one_line_and_keeps_what_was_finished(
    hydractl: Command, vit: Path, tmp_path: Path
) -> None:
    other, folder = save_vit(tmp_path / "other", seed=1), save_images(tmp_path / "pets")
    arguments = ("--id-data", folder, "--batch-size", 4)
    assert hydractl("evaluate", f"a={vit}", *arguments, "--save-logits", tmp_path / "logits").code == 0
    (folder / "dog" / "1.png").write_bytes(b"\x89PNG broken")  # in the second process's batch
    part = tmp_path / "part.json"
    saved = f"a=predictions:{tmp_path / 'logits' / 'a'}"
    failed = in_two(tmp_path, "evaluate", saved, f"b={other}", *arguments, "--json", part)
    assert failed.returncode == 1
    assert failed.stderr.count("unreadable image") == 1
    assert failed.stderr.count("error: ") == 1
    kept = json.loads(part.read_text())
    assert (kept["complete"], list(kept["models"])) == (False, ["a"])
    wrong = in_two(tmp_path, "evaluate", vit, "--id-data", tmp_path / "nothing")
    assert wrong.returncode != 0
    assert wrong.stderr.count("no such file or folder") == 1


@pytest.mark.parametrize("wanted", [("--random=3", "--budgets=1"), ("--method=joint", "--budgets=1,2")])
def test_members_are_the_same(
    hydractl: Command,
    vit: Path,
    images: Path,
    noise: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wanted: tuple[str, ...],
) -> None:
    data = ("--id-data", images, "--ood-data", noise, "--batch-size", 5, "--objective=avg")
    kept = ("--members=2", "-o", "s.json", "--hydra", "hydra")
    written = compare(hydractl, tmp_path, monkeypatch, "select", vit, *wanted, *data, *kept)
    assert {"s.json", "hydra"} == written.keys()
