import copy
import csv
import json
import pickle
import re
import subprocess
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console
from transformers import AutoImageProcessor, ViTForImageClassification

import hydractl as library
from hydractl.checkpoint.calibration import Calibration, FittedOod, OodFit
from hydractl.errors import DataError, NotFiniteError, OptionError
from hydractl.inputs.predictions import Predictions, Promise
from hydractl.serve import load_onnx
from hydractl.tasks.all_tasks import find_task
from hydractl.tasks.task import Answers
from hydractl.text import printable
from tests.cli.conftest import HYDRACTL, LABELS, Command, save_bert, save_vit
from tests.damage import edit_json
from tests.hostile import NAMES, controls, generated


def files(images: Path) -> list[Path]:
    return [images / "cat" / "0.png", images / "owl" / "3.png"]


def cranes(folder: Path, **changes: Any) -> Path:
    """A network that answers with the last of two classes of one name."""
    save_vit(folder, **{"id2label": {0: "crane", 1: "owl", 2: "crane"}, "label2id": {"crane": 2, "owl": 1}, **changes})
    theirs = ViTForImageClassification.from_pretrained(folder)
    theirs.classifier.bias.data = torch.tensor([-9.0, -8.0, 9.0])
    theirs.save_pretrained(folder)
    return folder


def test_two_classes_of_one_name_are_two_in_every_form(images: Path, tmp_path: Path) -> None:
    found = library.predict(cranes(tmp_path / "cranes"), files(images))
    names, p = ("crane", "owl", "crane #2"), found.probabilities[0].tolist()
    assert p[2] > 0.99 and found.classes == names and found.labels == ["crane #2"] * 2
    assert found.to_json()["predictions"][0]["probabilities"] == dict(zip(names, p, strict=True))
    assert found.to_pandas()[[f"p {name}" for name in names]].iloc[0].tolist() == p
    row = next(csv.DictReader(StringIO(found.to_csv())))
    assert [float(row[f"p({name})"]) for name in names] == p
    library.predict(tmp_path / "cranes", files(images), output=tmp_path / "out.parquet", workers=0)
    row = datasets.load_dataset("parquet", data_files=f"{tmp_path}/out.parquet", split="train")[0]
    assert [row[f"p({name})"] for name in names] == p


def test_what_says_two_classes_of_one_name_is_read_back(images: Path, tmp_path: Path) -> None:
    model, given = cranes(tmp_path / "cranes"), {"match_labels": "index", "id_data": images}
    warm, answers = tmp_path / "warm", tmp_path / "answers.csv"
    library.calibrate(model, **given, output=warm)
    answers.write_text(library.predict(warm, images).to_csv())
    expected = library.monitor(warm, images).to_json()
    assert library.monitor(warm, answers).to_json() == expected and "crane #2" in str(expected)
    saved = {"bootstrap": 0, "allow_leak": True, "save_logits": tmp_path / "saved"}
    measured = library.evaluate(model, **given, **saved).models["cranes"]["id"]
    again = library.evaluate(f"predictions:{tmp_path}/saved/cranes", bootstrap=0).models
    assert next(iter(again.values()))["id"] == measured
    library.export(warm, output=tmp_path / "graph.onnx")
    assert load_onnx(tmp_path / "graph.onnx").predict(files(images)[0]).labels == ["crane #2"]
    with pytest.raises(DataError, match="crane: .*`match_labels`"):
        (tmp_path / "named").mkdir()
        for name in ("crane", "owl"):
            (tmp_path / "named" / name).symlink_to(images / "cat")
        library.evaluate(model, id_data=tmp_path / "named")


def test_names_of_a_library_come_back_as_they_were(tmp_path: Path) -> None:
    named = {0: "crane", 1: "owl", 2: "crane"}
    for kind, changes in (("stock", {}), ("hydra", {"as_hydra": True})):
        library.export(cranes(tmp_path / f"{kind}-cranes"), format="hf", output=tmp_path / kind, **changes)
        config = json.loads((tmp_path / kind / "config.json").read_text())
        assert {int(number): name for number, name in config["id2label"].items()} == named
    own = cranes(tmp_path / "own", id2label={0: "crane", 1: "crane #2", 2: "crane"})
    library.export(own, format="hf", output=tmp_path / "theirs")
    assert ViTForImageClassification.from_pretrained(tmp_path / "theirs").config.id2label[2] == "crane"
    assert library.load(own).labels == ("crane", "crane #2", "crane #3")


def test_a_loaded_model_has_its_type_and_classes(vit: Path, images: Path) -> None:
    for option in ({"dtype": "bf16"}, {"classes": ["a", "b"]}):
        with pytest.raises(OptionError, match=f"`{next(iter(option))}`"):
            library.predict(library.load(vit), files(images)[0], **option)


def test_a_sideways_photo_from_python_is_that_of_its_path(vit: Path, tmp_path: Path) -> None:
    exif, path = Image.Exif(), tmp_path / "phone.jpg"
    exif[0x0112] = 6
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 60, 3), dtype=np.uint8)).save(path, exif=exif)
    model, expected = library.load(vit), library.predict(vit, path).probabilities
    upright, content = np.asarray(Image.open(path).transpose(Image.Transpose.ROTATE_270)), path.read_bytes()
    for one in (str(path), path, content, Image.open(path), upright):
        np.testing.assert_allclose(model.predict(one).probabilities, expected, atol=1e-6)
        np.testing.assert_allclose(model.predict([one]).probabilities, expected, atol=1e-6)
        np.testing.assert_array_equal(library.predict(vit, one).probabilities, expected)
        np.testing.assert_allclose(library.predict(model, one).probabilities, expected, atol=1e-6)
        np.testing.assert_array_equal(library.predict(vit, [(one, "cat")]).probabilities, expected)


def test_a_data_set_by_its_source(hydractl: Command, vit: Path, images: Path) -> None:
    whole = library.predict(vit, f"pets={images}")
    assert whole.inputs[:2] == [str(images / "cat" / f"{i}.png") for i in range(2)]
    sets = library.predict(vit, data=[f"pets={images}", f"{images}:train[:1]"])
    assert sets.inputs == [*whole.inputs, whole.inputs[0]]
    assert hydractl("predict", vit, images).out.count("\n") == 1 + len(whole.inputs)
    assert hydractl("predict", vit, images, "--no-header").out.count("\n") == len(whole.inputs)
    some = library.predict(vit, [f"{images}:train[:1]", files(images)[1]])
    assert some.msp.tolist() == pytest.approx([whole.msp[0], library.predict(vit, files(images)[1]).msp[0]])


def test_texts_of_a_table_a_file_and_a_list(bert: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\na good film,cat\nbad owl,owl\n")
    (tmp_path / "a.txt").write_text("a good film\nbad owl\n")
    named = {"reviews": ["a good film", "bad owl"]}
    found = [library.predict(bert, given) for given in (tmp_path / "a.csv", tmp_path / "a.txt", named)]
    for each in found:
        assert each.inputs == ["a good film", "bad owl"]
        np.testing.assert_array_equal(each.probabilities, found[0].probabilities)
    (tmp_path / "b.txt").write_bytes("a\u2028good\x0cfilm\x85\x1c.\r\n\n bad\x0b\u2029owl".encode())
    assert library.predict(bert, tmp_path / "b.txt").inputs == ["a\u2028good\x0cfilm\x85\x1c.", "", " bad\x0b\u2029owl"]
    with pytest.raises(OptionError, match="`text_column` text"):
        library.predict(bert, tmp_path / "a.txt", text_column="text")


def test_unreadable_images_keep_their_place(hydractl: Command, vit: Path, images: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "b.png", tmp_path / "a.png"
    good.write_bytes(files(images)[0].read_bytes())
    bad.write_bytes(b"no image")
    assert "a.png" in hydractl("predict", vit, tmp_path, code=1).err
    said = hydractl("predict", vit, tmp_path, good, "--skip-bad", "--json", code=0)
    rows = json.loads(said.out)["predictions"]
    assert [(row["input"], row["row"], row["label"] is None) for row in rows] == [
        (str(bad), 0, True), (str(good), 1, False), (str(good), 0, False)
    ]  # fmt: skip
    assert "a.png" in rows[0]["unreadable"] and rows[0]["msp"] is None
    expected = dict(zip(LABELS, library.predict(vit, good).probabilities[0].tolist(), strict=True))
    assert rows[1]["probabilities"] == rows[2]["probabilities"] == pytest.approx(expected)
    assert said.err.splitlines()[-1] == "3 inputs: 1 unreadable"
    assert "none of 1 inputs" in hydractl("predict", vit, bad, "--skip-bad", code=1).err


def test_blank_lines_and_empty_rows_keep_their_place(hydractl: Command, bert: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\na good film\n \nbad\u2028owl\n")
    (tmp_path / "a.csv").write_text("text,n,label\n,7,cat\na good film,8,owl\n,9,dog\nbad\u2028owl,10,owl\n")
    lines = library.predict(bert, tmp_path / "a.txt")
    assert [label is None for label in lines.labels] == [True, True, False, True, False]
    assert np.isnan(lines.probabilities).all(1).tolist() == [True, True, False, True, False]
    table = library.predict(bert, tmp_path / "a.csv", id_column="n", keep="label,n")
    assert (list(table.ids), table.kept["label"]) == (["7", "8", "9", "10"], ["cat", "owl", "dog", "owl"])
    np.testing.assert_array_equal(table.probabilities[[1, 3]], lines.probabilities[[2, 4]])
    rows = list(csv.DictReader(StringIO(table.to_csv())))
    assert [(row["row"], row["id"], row["kept(label)"], bool(row["unreadable"])) for row in rows] == [
        ("0", "7", "cat", True), ("1", "8", "owl", False), ("2", "9", "dog", True), ("3", "10", "owl", False)
    ]  # fmt: skip
    assert [line.split("\t")[1] for line in table.lines()] == ["id", "7", "8", "9", "10"]
    assert table.to_pandas()["kept label"].tolist() == ["cat", "owl", "dog", "owl"]
    for options in ({"keep": ["no"]}, {"id_column": "no"}):
        with pytest.raises(OptionError, match="columns text, n, label"):
            library.predict(bert, tmp_path / "a.csv", **options)
    assert "--keep n" in hydractl("predict", bert, tmp_path / "a.txt", "--keep", "n", code=2).err


def test_a_text_without_a_token_is_named_or_keeps_its_place(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "bare")
    edit_json(folder / "tokenizer.json", post_processor=None)
    edit_json(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    texts = ["a film", "\u200b", "a good film"]
    (tmp_path / "lines.txt").write_text("\n".join(["", *texts]), encoding="utf-8")
    assert library.predict(folder, tmp_path / "lines.txt").unreadable.keys() == {0, 2}
    library.export(folder, output=tmp_path / "bare.onnx")
    model = library.load(folder)
    for read in (model.predict, model.preprocessor, load_onnx(tmp_path / "bare.onnx").predict):
        with pytest.raises(DataError, match="text 1.*no token"):
            read(texts)


def test_standard_input_is_answered_line_by_line(bert: Path) -> None:
    command = [*HYDRACTL, "predict", str(bert), "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        for text, lines in (("a good film", 2), ("", 1), ("bad owl\r\na good film", 2)):
            process.stdin.write(f"{text}\n".encode())
            process.stdin.flush()
            answers = [process.stdout.readline().decode() for _ in range(lines)]  # waits forever if none comes
            assert answers[-1].split("\t")[:2] == [text.split("\n")[-1], "owl" if text else "unreadable"]
        process.stdin.close()
        assert process.stdout.read() == b"" and process.stderr.read() == b"4 inputs: 1 unreadable\n"


def test_streams_hold_what_files_do(hydractl: Command, bert: Path, tmp_path: Path) -> None:
    text = b"a good film\n\nbad owl"
    (tmp_path / "a.txt").write_bytes(text)
    for form in ("--csv", "--json", "--no-header"):
        file = hydractl("predict", bert, tmp_path / "a.txt", form)
        stream = hydractl("predict", bert, "-", form, stdin=text)
        assert (stream.out, stream.err) == (file.out, file.err)
    assert "holds no text" in hydractl("predict", bert, "-", stdin=b"\n", code=1).err


def test_answers_that_are_no_numbers_are_refused(vit: Path, images: Path) -> None:
    model = library.load(vit)
    with torch.no_grad():
        model.classifier.bias.fill_(float("inf"))
    with pytest.raises(NotFiniteError, match=r"0\.png: .*`dtype`"):
        library.predict(model, files(images))


NOTHING = Promise()


def predicted(inputs: list[str], classes: list[str], p: Any, promise: Promise = NOTHING, **odd: Any) -> Predictions:
    task = find_task("image-classification")
    answers = Answers(task=task, member_logits=np.log(p)[None], classes=tuple(classes), **odd)
    return Predictions(answers=answers, good=range(len(inputs)), inputs=inputs, promise=promise)


@generated(st.lists(NAMES, min_size=1, max_size=3), NAMES)
def test_lines_have_four_columns_whatever_inputs_and_labels_are_called(inputs: list[str], label: str) -> None:
    said = predicted(inputs, [label, "other"], np.full((len(inputs), 2), 0.5))
    rows = list(csv.reader(said.lines(), delimiter="\t", quoting=csv.QUOTE_NONE))
    assert [len(row) for row in rows] == [4] * (1 + len(inputs))
    assert not controls("".join(map("".join, rows)), allowed="")


def some_predictions(calibrated: bool) -> Predictions:
    odd: dict[str, Any] = {}
    if calibrated:
        fitted = Calibration(ood=FittedOod(OodFit("msp", 9, 0.8), {}))
        scores = {"ood_score": np.array([-0.75, -0.5, -0.875]), "typicality": np.array([0.125, 0.25, 0.5])}
        odd = {"calibration": fitted, **scores, "promise": Promise("odd", 0.1)}
    p = np.array([[0.75, 0.25], [0.5, 0.5], [0.125, 0.875]])
    return predicted(["=a,b\x1b[2J", "[red]c", 'd"e'], ["cat", "dog\n"], p, **odd)


def test_csv_holds_every_class_and_what_looks_ood() -> None:
    rows = list(csv.DictReader(StringIO(some_predictions(True).to_csv())))
    assert [row["ood"] for row in rows] == ["true", "false", "false"]
    assert [float(row["p(dog\\n)"]) for row in rows] == pytest.approx([0.25, 0.5, 0.875])
    assert [row["input"] for row in rows] == ["'=a,b\\x1b[2J", "[red]c", 'd"e']
    assert [(row["ood_score"], row["typicality"]) for row in rows[1:]] == [("-0.5", "0.25"), ("-0.875", "0.5")]
    unknown = list(csv.DictReader(StringIO(some_predictions(False).to_csv())))
    assert [row["ood"] for row in unknown] == [""] * 3


STARTS = st.sampled_from(["", *"=+-@\t\r\n '\"", "\uff1d", "\uff0b", "\uff0d", "\uff20"])


@generated(STARTS, NAMES, NAMES)
def test_no_cell_of_csv_is_a_formula_and_none_is_lost(start: str, name: str, label: str) -> None:
    label = start + label
    said = predicted([start + name], [label, "other"], np.array([[0.75, 0.25]]))
    header, row = csv.reader(StringIO(said.to_csv()))
    assert header[-2] == printable(f"p({label})") and len(header) == len(row) == 12
    for cell, text in ((row[0], start + name), (row[2], label)):
        assert cell.removeprefix("'") == printable(text).removeprefix("'")
        number = re.fullmatch(r"[+-][\d.]+(e[+-]?\d+)?", cell, re.ASCII | re.IGNORECASE)
        assert number or not cell.startswith(("=", "+", "-", "@", "\t", "\uff1d", "\uff0b", "\uff0d", "\uff20"))
    assert not controls("".join(header + row), allowed="")


def test_a_terminal_shows_a_table() -> None:
    out = StringIO()
    some_predictions(True).draw(Console(file=out, force_terminal=True, width=90, color_system=None))
    lines = out.getvalue().splitlines()
    assert lines[0].split() == ["input", "label", "msp", "mutual_information", "typicality", "ood"]
    for line, name in zip(lines[2:], ["=a,b\\x1b[2J", "[red]c", 'd"e'], strict=False):
        assert line.startswith(name)
    assert [line.rstrip().endswith("OOD") for line in lines[2:5]] == [True, False, False]
    assert max(map(len, lines)) <= 90


def test_a_notebook_shows_a_table_with_names_as_they_are() -> None:
    shown = some_predictions(True)._repr_html_()
    assert shown.count("<tr>") == 4 and "<td>[red]c</td>" in shown and "d&quot;e" in shown and "\x1b" not in shown
    assert "<p>odd</p>" in shown
    shown = some_predictions(True)
    named = replace(shown.answers, classes=("<b>", "<u>"))
    hostile = replace(shown, answers=named, inputs=["<script>"] * 3, kept={"<i>": ["&"] * 3})
    assert not {"<script>", "<b>", "<i>"} & set(re.findall("<[a-z]+>", hostile._repr_html_()))


@torch.no_grad()
def test_images_by_name_and_on_standard_input(hydractl: Command, vit: Path, images: Path) -> None:
    paths = files(images)
    pictures = [Image.open(path) for path in paths]
    inputs = AutoImageProcessor.from_pretrained(vit)(images=pictures, return_tensors="pt")
    expected = ViTForImageClassification.from_pretrained(vit).eval()(**inputs).logits.softmax(-1)
    result = hydractl("predict", vit, *paths, "--json", "--batch-size", 1)
    rows = json.loads(result.out)["predictions"]
    assert [row["input"] for row in rows] == list(map(str, paths))
    for row, probabilities in zip(rows, expected, strict=True):
        assert list(row["probabilities"]) == list(LABELS)
        assert list(row["probabilities"].values()) == pytest.approx(probabilities.tolist(), abs=1e-6)
        assert row["label"] == LABELS[probabilities.argmax()]
        assert row["msp"] == pytest.approx(probabilities.max().item(), abs=1e-6)
        assert row["mutual_information"] == pytest.approx(0, abs=1e-6)
    piped = hydractl("predict", vit, "-", stdin=paths[0].read_bytes())
    line = f"-\t{rows[0]['label']}\t{rows[0]['msp']:.4f}\t0.0000\n"
    assert piped.out == f"input\tlabel\tmsp\tmutual_information\n{line}"


def test_texts_as_they_are_and_their_answers_as_rows_and_a_table(hydractl: Command, bert: Path, vit: Path) -> None:
    said = hydractl("predict", bert, "--text", "a good film", "--text", "bad", "--json").out
    found = library.predict(bert, text=["a good film", "bad"])
    assert [row["input"] for row in json.loads(said)["predictions"]] == [row["input"] for row in found]
    assert [row["input"] for row in found] == ["a good film", "bad"] and len(found) == 2
    table = found.to_pandas()
    assert table["label"].tolist() == list(found.labels)
    assert table[[f"p {name}" for name in LABELS]].to_numpy().tolist() == found.probabilities.tolist()
    assert "--text is for models of texts" in hydractl("predict", vit, "--text", "bad").err
    assert "--text is empty" in hydractl("predict", bert, "--text", " ").err
    assert "1 of 1 texts are too long" in hydractl("predict", bert, "--text", "bad " * 99).err


def test_what_steps_return_is_a_model(vit: Path, images: Path) -> None:
    picture = Image.open(files(images)[0])
    members = [library.prune(vit, method="random", budget=2, seed=seed) for seed in range(2)]
    for made in (*members, library.fuse(members), library.calibrate(members[0], id_data=images)):
        loaded = pickle.loads(pickle.dumps(copy.deepcopy(library.load(made)))).optimize_for_inference()
        assert np.array_equal(made.predict(picture).probabilities, loaded.predict(picture).probabilities)
        pixels = torch.zeros(1, 3, *loaded.spec.towers[0].embeddings.image_size)
        assert torch.equal(made(pixels).probabilities, loaded(pixels).probabilities)
