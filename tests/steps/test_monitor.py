import json
import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import hydractl as library
from hydractl.errors import ArtifactError, DataError, OptionError, OutputError
from hydractl.inputs.models import as_checkpoint
from tests.cli.conftest import HYDRACTL, Command, half_known, save_clip, save_images, save_vit


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated file, images like those it knows, grey ones, and stripes, of which it flags two thirds."""
    folder = tmp_path_factory.mktemp("monitored")
    save_vit(folder / "vit")
    save_images(folder / "known", count=40, seed=1)
    save_images(folder / "today", count=20, seed=2)
    for name in ("grey", "stripes"):
        (folder / name).mkdir()
    for at in range(60):
        Image.new("L", (12, 12), 4 * at).save(folder / "grey" / f"{at:02}.png")
        stripes = np.tile(255 * (np.arange(12) // (1 + at % 3) % 2).astype(np.uint8), (12, 1))
        Image.fromarray(stripes).save(folder / "stripes" / f"{at:02}.png")
    half_known(folder / "vit", folder / "known")
    library.calibrate(folder / "vit", id_data=folder / "known", output=folder / "model")
    return folder


@pytest.fixture
def here(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("model", "today", "grey", "stripes"):
        (tmp_path / name).symlink_to(place / name)
    return tmp_path


def test_one_line_while_all_is_well_and_tables_after_an_alarm(hydractl: Command, here: Path) -> None:
    quiet = hydractl("monitor", "model", "today", code=0).out
    assert quiet.startswith("60 inputs: no change") and quiet.count("\n") == 1
    loud = hydractl("monitor", "model", "grey", code=0).out
    assert loud.startswith("60 inputs: ALARM at input ") and "layer 0" in loud and "predicted" in loud
    found = library.monitor("model", "grey")
    assert found.alarm and found.findings.since == 0
    assert json.loads(hydractl("monitor", "model", "grey", "--json").out)["alarm"] is True


def test_a_run_that_fails_leaves_the_state_as_it_was(here: Path) -> None:
    library.monitor("model", "today", state="state.json")
    before = Path("state.json").read_bytes()
    Path("broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken\.png"):
        library.monitor("model", ["grey", "broken.png"], state="state.json")
    assert Path("state.json").read_bytes() == before


def test_a_state_goes_on_and_merges(hydractl: Command, here: Path) -> None:
    hydractl("predict", "model", "today", "--csv", "whole.csv", code=0)
    header, *rows = Path("whole.csv").read_text().splitlines(keepends=True)
    Path("one.csv").write_text("".join([header, *rows[:25]]))
    Path("two.csv").write_text("".join([header, *rows[25:]]))
    library.monitor("model", "whole.csv", state="whole.json")
    for name in ("one.csv", "two.csv"):
        library.monitor("model", name, state="parts.json")
    assert Path("parts.json").read_bytes() == Path("whole.json").read_bytes()
    assert library.monitor("model", state="parts.json").findings.inputs == 60
    assert Path("parts.json").read_bytes() == Path("whole.json").read_bytes()
    library.monitor("model", "grey", state="other.json")
    merged = library.monitor("model", merge=["whole.json", "other.json"], state="both.json").findings
    assert (merged.inputs, merged.streams) == (120, 2)
    assert merged.highest == library.monitor("model", state="other.json").findings.highest / 2
    assert library.monitor("model", state="both.json").findings == merged
    with pytest.raises(OutputError, match="both.json: exists"):
        library.monitor("model", merge=["whole.json"], state="both.json")


@pytest.mark.slow
def test_a_killed_monitor_goes_on_with_the_same_evidence(hydractl: Command, here: Path) -> None:
    hydractl("predict", "model", "today", "--csv", "whole.csv", code=0)
    library.monitor("model", "whole.csv", state="whole.json")
    header, *rows = Path("whole.csv").read_text().splitlines(keepends=True)
    command = [*HYDRACTL, "monitor", "model", "-", "--state", "killed.json"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdin.write("".join([header, *rows[:30]]))
    process.stdin.flush()
    while not Path("killed.json").exists():
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    hydractl("monitor", "model", "-", "--state", "killed.json", stdin="".join([header, *rows[30:]]).encode(), code=0)
    assert Path("killed.json").read_bytes() == Path("whole.json").read_bytes()


def test_labels_of_some_inputs_give_their_accuracy(here: Path) -> None:
    found = library.predict("model", "today")
    rows = list(zip(found.inputs, found.labels, strict=True))[::5]
    lines = (f"{name},{name.split('/')[-2].upper()}\n" for name, _ in rows)
    Path("look.csv").write_text("image,label\n" + "".join(lines))
    right = library.monitor("model", "today", labels="look.csv").findings
    expected = np.mean([name.split("/")[-2] == label for name, label in rows])
    assert right.labelled == 12 and right.right.value == expected
    assert right.right.low < expected < right.right.high


def test_labels_name_the_classes_that_a_zero_shot_model_was_given(here: Path) -> None:
    library.calibrate(save_clip(here / "clip"), id_data="stripes", output="c", classes=["a-cat", "owl"])
    predicted = library.predict("c", "today", classes=["a-cat", "owl"])
    Path("a.csv").write_text(predicted.to_csv())
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in predicted.to_json()["predictions"]))
    Path("a.tsv").write_text("\n".join([*predicted.lines(), ""]))  # names no class that is not answered
    rows = zip(predicted.inputs, predicted.labels, strict=True)
    Path("right.csv").write_text("x,label\n" + "".join(f"{name},{label.upper()}\n" for name, label in rows))
    Path("wrong.csv").write_text("x,label\n" + "".join(f"{name},zebra\n" for name in predicted.inputs))
    for inputs in ("today", "a.csv", "a.jsonl", "a.tsv"):
        asked: dict[str, Any] = {"inputs": inputs, "classes": ["a-cat", "owl"] if inputs == "today" else None}
        right = library.monitor("c", **asked, labels="right.csv").findings.right
        assert right is not None and right.value == 1, inputs
        if inputs != "a.tsv":
            with pytest.raises(DataError, match=r"wrong\.csv: zebra is not among the classes: give a-cat, owl"):
                library.monitor("c", **asked, labels="wrong.csv")


def test_no_accuracy_is_estimated_for_images_of_no_class(hydractl: Command, here: Path) -> None:
    found = json.loads(hydractl("monitor", "model", "stripes", "--json", "--report", "page", code=0).out)
    page = Path("page/index.html").read_text()
    assert "ALARM" in page and not re.search(r"https?://(?!www\.w3\.org)", page)
    assert json.loads(Path("page/monitor.json").read_text())["inputs"] == 60
    assert not found["estimable"] and found["accuracy"] == {} and found["flagged"]["value"] == pytest.approx(2 / 3)
    assert found["accepted_accuracy"].keys() == {"mean confidence", "ATC"}
    for text in (hydractl("monitor", "model", "stripes", code=0).out, page):
        assert "cannot be estimated" in text and "20 others" in text


def test_states_of_other_models_and_damaged_ones_are_refused(here: Path, place: Path) -> None:
    library.monitor("model", "today", state="state.json")
    with pytest.raises(ArtifactError, match="alpha 0.01, not 0.05"):
        library.monitor("model", "today", state="state.json", alpha="5%")
    library.calibrate(place / "vit", id_data=place / "stripes", output="other")
    with pytest.raises(ArtifactError, match="another calibration"):
        library.monitor("other", "today", state="state.json")
    same = as_checkpoint("model")
    assert same.calibration.ood is not None
    accepting = replace(same.calibration.ood, fit=replace(same.calibration.ood.fit, accept=0.7))
    for change in ({"temperature": 2.0}, {"thresholds": (0.1, 0.5, 0.5)}, {"ood": accepting}):
        with pytest.raises(ArtifactError, match="another calibration"):
            library.Monitor(replace(same, calibration=replace(same.calibration, **change)), state="state.json")
    good = Path("state.json").read_text()
    for bad in ("", "[]", good[:-9], good.replace('"seen": 60', '"seen": 61'), good.replace("monitor", "circuit")):
        Path("bad.json").write_text(bad)
        with pytest.raises(ArtifactError, match=r"^bad\.json: "):
            library.monitor("model", "today", state="bad.json")
        assert Path("bad.json").read_text() == bad


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("input,label,msp,typicality\na,cat,0.5,2\n", "row 1: typicality is 2, not from 0 to 1"),
        ("input,label,msp,typicality\na,cat,0.5,\n", "row 1: could not convert"),
        ('{"label": "cat", "typicality": 0.5}\n', "row 1: has no msp"),
        ('{"label": "cat", "typicality": 0.5, "msp"', "is not readable JSON"),
    ],
)
def test_predictions_that_lack_something_are_refused(here: Path, text: str, message: str) -> None:
    file = Path("bad.jsonl" if text.startswith("{") else "bad.csv")
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        library.monitor("model", str(file))


def test_options_that_make_no_sense_are_refused(hydractl: Command, here: Path) -> None:
    with pytest.raises(OptionError, match="no inputs"):
        library.monitor("model")
    with pytest.raises(OptionError, match="`merge`"):
        library.monitor("model", "today", merge=["a.json"])
    with pytest.raises(OptionError, match="`alpha` 1"):
        library.monitor("model", "today", alpha="100%")
    Path("labels.csv").write_text("image,label\nelsewhere.png,cat\n")
    said = hydractl("monitor", "model", "today", "--labels", "labels.csv", code=0).err
    assert "warning: labels.csv names none of the inputs" in said
    Path("labels.csv").write_text("image,label\nelsewhere.png,lynx\n")
    with pytest.raises(DataError, match="lynx is not among the classes"):
        library.monitor("model", "today", labels="labels.csv")
    Path("labels.csv").write_text("image,class\nelsewhere.png,cat\n")
    with pytest.raises(DataError, match="columns image, class"):
        library.monitor("model", "today", labels="labels.csv")
