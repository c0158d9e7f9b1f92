"""Predictions of many inputs, written part by part: the same rows as in one piece, also after an interruption."""

import csv
import json
import time
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

import hydractl as library
from hydractl.data.open import open_samples
from hydractl.errors import ArtifactError, DataError, OutputError
from hydractl.inputs.bulk import Bulk
from hydractl.inputs.reader import Reader
from hydractl.inputs.rows import DataRows
from hydractl.systems.networks import NetworkSystem
from hydractl.watch import LOG
from tests.cli.conftest import Command
from tests.factories import images as drawn_images

FORMS = ("csv", "jsonl", "parquet")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Bulk, "part", 5)
    monkeypatch.setattr("hydractl.steps.predict.READERS", 0)  # no forks beside the threads of pytest-xdist
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many inputs each call of the model had; the third fails while the list begins with -1."""
    seen: list[int] = []
    answer = NetworkSystem.answers

    def counted(*args: Any) -> Any:
        if seen[:1] == [-1] and len(seen) == 3:
            raise KeyboardInterrupt
        answers = answer(*args)
        seen.append(len(answers))
        return answers

    monkeypatch.setattr(NetworkSystem, "answers", counted)
    return seen


def rows(file: str) -> list[dict[str, Any]]:
    """The rows of a file, numbers as text."""
    if file.endswith(".jsonl"):
        found = [json.loads(line) for line in Path(file).read_text().splitlines()]
        return [{"input": row["input"], "label": row["label"], "msp": str(row["msp"])} for row in found]
    if file.endswith(".parquet"):
        found = parquet.read_table(file).to_pylist()
    else:
        found = list(csv.DictReader(StringIO(Path(file).read_text())))
    return [{name: str(row[name]) for name in ("input", "label", "msp")} for row in found]


@pytest.mark.parametrize("form", FORMS)
def test_parts_make_the_file_of_one_piece(hydractl: Command, vit: Path, images: Path, form: str) -> None:
    hydractl("predict", vit, images, "--batch-size", 5, "--csv", "whole.csv", code=0)
    found = hydractl("predict", vit, images, "--batch-size", 5, "-o", f"out.{form}", code=0)
    assert found.out == f"out.{form}\n" and found.err.endswith("12 inputs\n")
    assert rows(f"out.{form}") == rows("whole.csv") and len(rows("whole.csv")) == 12
    if form == "csv":
        assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert {path.name for path in Path().iterdir()} == {"whole.csv", f"out.{form}"}
    with pytest.raises(OutputError, match="exists already"):
        library.predict(vit, images, output=f"out.{form}")


@pytest.mark.parametrize("form", FORMS)
def test_an_interrupted_run_goes_on(vit: Path, images: Path, calls: list[int], form: str) -> None:
    library.predict(vit, images, output=f"whole.{form}")
    assert calls == [5, 5, 2]
    calls[:] = [-1]
    with pytest.raises(KeyboardInterrupt):
        library.predict(vit, images, output=f"out.{form}")
    assert calls == [-1, 5, 5] and not Path(f"out.{form}").exists()
    calls[:] = []
    with pytest.raises(OutputError, match="an unfinished run"):
        library.predict(vit, images, output=f"out.{form}")
    with pytest.raises(ArtifactError, match="another names"):
        library.predict(vit, data=[f"x={images}:train[:11]", f"{images}:train[:1]"], output=f"out.{form}", resume=True)
    found = library.predict(vit, images, output=f"out.{form}", resume=True)
    assert calls == [2] and found.counts.inputs == 12
    assert Path(f"out.{form}").read_bytes() == Path(f"whole.{form}").read_bytes()
    assert not Path(f"out.{form}.state").exists()


def test_a_table_made_again_is_another(vit: Path, calls: list[int]) -> None:
    def write(seed: int) -> None:  # rows of the same names
        drawn_images(np.random.default_rng(seed), 12).to_parquet("images.parquet")

    write(0)
    calls[:] = [-1]
    with pytest.raises(KeyboardInterrupt):
        library.predict(vit, "images.parquet", output="out.csv")
    write(1)
    with pytest.raises(ArtifactError, match="another data"):
        library.predict(vit, "images.parquet", output="out.csv", resume=True)


@pytest.mark.parametrize("form", FORMS)
def test_what_cannot_be_read_keeps_its_place(vit: Path, images: Path, form: str) -> None:
    bad = [f"bad{at}.png" for at in range(6)]  # a whole part and more
    for name in bad:
        Path(name).write_bytes(b"no image")
    good = [str(images / "cat" / "0.png"), str(images / "cat" / "1.png")]
    found = library.predict(vit, [*bad, *good], output=f"out.{form}", skip_bad=True)
    assert (found.counts.inputs, found.counts.unreadable) == (8, 6)
    assert [row["input"] for row in rows(f"out.{form}")] == [*bad, *good]
    assert [row["label"] in ("", "None", None) for row in rows(f"out.{form}")] == [True] * 6 + [False] * 2
    with pytest.raises(DataError, match="none of 6 inputs"):
        library.predict(vit, bad, output=f"none.{form}", skip_bad=True)
    assert not list(Path().glob("none*"))


@pytest.mark.parametrize("workers", [0, pytest.param(3, marks=pytest.mark.apart)])
def test_workers_read_ahead_and_change_nothing(vit: Path, images: Path, tmp_path: Path, workers: int) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    files = sorted(map(str, images.rglob("*.png")))
    given = [*files[:4], "bad.png", *files[4:9]]
    options: dict[str, Any] = {"skip_bad": True, "batch_size": 2}
    whole = library.predict(vit, [*given, str(images)], **options)
    library.predict(vit, [*given, str(images)], output="out.csv", workers=workers, **options)
    assert Path("out.csv").read_text() == whole.to_csv()
    assert [row["input"] for row in rows("out.csv")][:10] == given and len(whole) == 22
    with pytest.raises(DataError, match=r"bad\.png: "):
        library.predict(vit, given, output="no.csv", workers=workers, batch_size=2)


@pytest.mark.apart
def test_no_more_is_read_ahead_than_two_batches_a_worker(vit: Path, images: Path, tmp_path: Path) -> None:
    read = tmp_path / "read"
    read.mkdir()

    class Noted(list[Any]):
        """Images that leave a file behind when they are read, also by another process."""

        def __getitem__(self, at: Any) -> Any:
            (read / f"{at}").touch()
            return np.zeros((8, 8, 3), np.uint8)

    entries = DataRows(open_samples(Noted(range(60)), "image"), None, {})
    for file in read.iterdir():
        file.unlink()
    reader = Reader(
        library.load(vit), entries, part=30, batch_size=2, workers=2, watch=LOG, skip_bad=False, stand_in=None
    )
    answered: list[float] = []

    def slowly(count: float) -> None:
        if not answered:
            time.sleep(1)
            assert 2 <= len(list(read.iterdir())) <= 2 * (1 + 2 * 2)
        answered.append(count)

    assert len(reader.answer(entries[:30], 0, slowly)) == 30 and answered == [2] * 15
