"""ONNX files answer without torch as `predict` does with it."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers import AutoTokenizer

import hydractl as library
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.disk import read_preprocessing
from hydractl.data.preprocess import as_opened, preprocessor_from_json
from hydractl.errors import CheckpointError, DataError
from hydractl.serve import load_onnx, prepare_texts
from tests.cli.conftest import half_known, save_bert, save_images, save_vit
from tests.damage import edit_json
from tests.data.tokenizers_and_processors import TOKENIZERS, bert_tokenizer, many_texts, text_spec
from tests.test_package import ROOT

#: Answers a picture, and prints the modules of torch that this took.
ALONE = """
import json, sys
import hydractl
from hydractl.serve import load_onnx
found = load_onnx(sys.argv[1]).predict(open(sys.argv[2], "rb").read())
monitor = hydractl.Monitor(sys.argv[1])
monitor.update(found)
foreign = [name for name in sys.modules if name.partition(".")[0] in ("torch", "transformers", "torchvision", "timm")]
print(json.dumps({"foreign": foreign, "label": found.labels[0], "msp": found.msp.item(), "ood": found.ood.item(),
                  "typicality": found.typicality.item(), "metrics": monitor.metrics()}))
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated ONNX file of images."""
    folder = tmp_path_factory.mktemp("serve")
    vit = save_vit(folder / "vit")
    warm = library.calibrate(vit, id_data=half_known(vit, save_images(folder / "data", 12)))
    library.export(warm, output=folder / "vit.onnx")
    return folder / "vit.onnx"


def assert_same(found: Any, expected: Any) -> None:
    assert found.labels == list(expected.labels)
    np.testing.assert_allclose(found.msp, expected.msp, rtol=0, atol=1e-5)


def test_images_without_torch(images: Path, tmp_path: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(picture).save(tmp_path / "x.png")
    command = [sys.executable, "-c", ALONE, str(images), str(tmp_path / "x.png")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=True)
    found, expected = json.loads(done.stdout), library.predict(images, picture)
    assert found["foreign"] == []
    monitor = library.Monitor(images)
    monitor.update(expected)
    texts = monitor.metrics(), found["metrics"]
    here, there = ([line.rsplit(" ", 1)[0] for line in text.splitlines()] for text in texts)
    assert here == there and "hydractl_inputs_total 1\n" in found["metrics"]
    assert found["label"] == expected.labels[0] and found["ood"] == bool(expected.ood[0])
    assert found["msp"] == pytest.approx(float(expected.msp[0]), abs=1e-6)
    assert found["typicality"] == pytest.approx(float(expected.typicality[0]), abs=1e-6)


#: Runs the first argument's text; packages that are not among the second's cannot be imported.
RESTRICTED = """
import importlib.abc, importlib.metadata, re, sys
from packaging.requirements import Requirement
allowed, waiting = set(), sys.argv.pop(2).split()
while waiting:
    name = waiting.pop()
    if name not in allowed:
        allowed.add(name)
        needed = map(Requirement, importlib.metadata.requires(name) or [])
        waiting += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
known = importlib.metadata.packages_distributions()
plain = lambda name: re.sub("[-_.]+", "-", name).lower()
allowed = {*map(plain, allowed), "hydractl"}
class Others(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if path is None and name in known and not allowed & set(map(plain, known[name])):
            raise ModuleNotFoundError(name, name=name)
for name in [name for name in sys.modules if name.partition(".")[0] in known]:
    del sys.modules[name]
sys.meta_path.insert(0, Others())
exec(sys.argv.pop(1))
"""


def test_the_packages_that_the_guide_names_suffice(images: Path, tmp_path: Path) -> None:
    [packages] = re.findall(r"(?m)^pip install (?!--)([\w -]+)$", (ROOT / "hydractl/guide/service.md").read_text())
    Image.new("RGB", (8, 8)).save(tmp_path / "x.png")
    script = f"import aiohttp.web, tokenizers\n{ALONE}\nmonitor.save(sys.argv[2] + '.json')"
    for without in ("", "onnxruntime"):
        named = " ".join(name for name in packages.split() if name != without)
        command = [sys.executable, "-c", RESTRICTED, script, named, str(images), str(tmp_path / "x.png")]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
        assert (done.returncode == 0) is not bool(without), done.stderr


def test_resized_images_differ_by_rounding_alone(images: Path) -> None:
    smooth = np.add.outer(np.arange(0, 120, 3), np.arange(0, 90, 2)).astype(np.uint8)[..., None].repeat(3, -1)
    assert_same(load_onnx(images).predict([smooth, smooth[:, :30]]), library.predict(images, [smooth, smooth[:, :30]]))


def test_what_only_a_library_prepares_is_refused(tmp_path: Path) -> None:
    vit = save_vit(tmp_path / "vit")
    settings = vit / "preprocessor_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "resample": 1}))
    library.export(vit, output=tmp_path / "vit.onnx")
    with pytest.raises(CheckpointError, match="image processor"):
        load_onnx(tmp_path / "vit.onnx")


SETTINGS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "left": {"truncation_side": "left", "padding_side": "left"},
    "cased": {"do_lower_case": False, "strip_accents": False, "add_prefix_space": True},
    "marks are text": {"split_special_tokens": True},
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", TOKENIZERS)
def test_every_tokenizer_is_served_as_it_was_opened(name: str, settings: str, tmp_path: Path) -> None:
    """The settings stand in tokenizer_config.json alone, as people edit it, and win over tokenizer.json."""
    TOKENIZERS[name]().save_pretrained(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", **SETTINGS[settings])
    theirs = AutoTokenizer.from_pretrained(tmp_path, padding_side="right")
    spec = text_spec(positions=12, vocabulary=200)
    checkpoint = Checkpoint(
        "a", "bert", {}, spec, heads={}, shared=frozenset(), tensors={}, preprocessing=read_preprocessing(tmp_path)
    )
    exported = replace(checkpoint, preprocessing=as_opened(checkpoint))
    serve, again = prepare_texts(exported), preprocessor_from_json(exported.preprocessing, spec, "a")
    texts = many_texts()
    for batch in (texts, list(zip(texts, texts[::-1], strict=True))):
        expected = theirs(batch, padding=True, truncation=True, max_length=12, return_tensors="np")
        for answer in (serve(batch), again(batch)):
            assert answer.keys() == expected.keys()
            for key in expected:
                np.testing.assert_array_equal(answer[key], expected[key])


def test_a_token_that_is_not_embedded_is_named(tmp_path: Path) -> None:
    bert_tokenizer(tmp_path)
    spec = text_spec(vocabulary=13)
    checkpoint = Checkpoint(
        "a", "bert", {}, spec, heads={}, shared=frozenset(), tensors={}, preprocessing=read_preprocessing(tmp_path)
    )
    serve = prepare_texts(replace(checkpoint, preprocessing=as_opened(checkpoint)))
    assert serve(["a good film"])["input_ids"].shape == (1, 5)
    with pytest.raises(DataError, match=r"the token '\.'"):
        serve(["a good film."])
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        prepare_texts(checkpoint)


def test_what_wins_over_the_tokenizer_is_served(tmp_path: Path) -> None:
    bert = save_bert(tmp_path / "bert")
    edit_json(bert / "tokenizer_config.json", do_lower_case=False, truncation_side="left", model_max_length=5)
    library.export(bert, output=tmp_path / "bert.onnx")
    texts = ["A GOOD film", "good film owl bad bad bad a"]
    served, expected = load_onnx(tmp_path / "bert.onnx").predict(texts), library.load(bert).predict(texts)
    assert_same(served, expected)
    assert_same(served, library.predict(tmp_path / "bert.onnx", text=texts))
    for wrong in ([], [3]):
        with pytest.raises(DataError):
            load_onnx(tmp_path / "bert.onnx").predict(wrong)
