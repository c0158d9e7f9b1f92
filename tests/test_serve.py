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
from hydractl.checkpoint.spec import ModelSpec
from hydractl.data.preprocess import as_opened, preprocessor_from_json
from hydractl.errors import CheckpointError, DataError
from hydractl.serve import load_onnx, prepare_texts
from tests.cli.conftest import half_known, save_images, save_vit
from tests.damage import edit_json
from tests.data.tokenizers_and_processors import TOKENIZERS, bert_tokenizer, many_texts, text_spec
from tests.test_package import ROOT

#: Answers a picture, and prints the modules of torch that this took.
ALONE = """
import sys
import hydractl
from hydractl.serve import load_onnx
found = load_onnx(sys.argv[1]).predict(open(sys.argv[2], "rb").read())
monitor = hydractl.Monitor(sys.argv[1])
monitor.update(found)
foreign = [name for name in sys.modules if name.partition(".")[0] in ("torch", "transformers", "torchvision", "timm")]
print(found.labels[0], *foreign)
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated ONNX file of images."""
    folder = tmp_path_factory.mktemp("serve")
    vit = save_vit(folder / "vit")
    warm = library.calibrate(vit, id_data=half_known(vit, save_images(folder / "data", 12)))
    library.export(warm, output=folder / "vit.onnx")
    return folder / "vit.onnx"


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


def test_the_packages_that_the_guide_names_suffice_without_torch(images: Path, tmp_path: Path) -> None:
    [packages] = re.findall(r"(?m)^pip install (?!--)([\w -]+)$", (ROOT / "hydractl/guide/service.md").read_text())
    Image.new("RGB", (8, 8), (90, 0, 200)).save(tmp_path / "x.png")
    script = f"import aiohttp.web, tokenizers\n{ALONE}\nmonitor.save(sys.argv[2] + '.json')"
    for without in ("", "onnxruntime"):
        named = " ".join(name for name in packages.split() if name != without)
        command = [sys.executable, "-c", RESTRICTED, script, named, str(images), str(tmp_path / "x.png")]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
        assert (done.returncode == 0) is not bool(without), done.stderr
        assert done.stdout.split() == ([] if without else list(library.predict(images, tmp_path / "x.png").labels))


def test_resized_images_differ_by_rounding_alone(images: Path) -> None:
    smooth = np.add.outer(np.arange(0, 120, 3), np.arange(0, 90, 2)).astype(np.uint8)[..., None].repeat(3, -1)
    pictures = [smooth, smooth[:, :30]]
    found, expected = load_onnx(images).predict(pictures), library.predict(images, pictures)
    assert found.labels == list(expected.labels)
    np.testing.assert_allclose(found.msp, expected.msp, rtol=0, atol=1e-5)


def test_what_is_no_input_is_refused(images: Path) -> None:
    for wrong in ([], [3]):
        with pytest.raises(DataError):
            load_onnx(images).predict(wrong)


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
    "short": {"model_max_length": 5},
}


def tokenized(folder: Path, spec: ModelSpec) -> Checkpoint:
    """A network of texts without weights, and the tokenizer of a folder."""
    empty: dict[str, Any] = {"config": {}, "heads": {}, "shared": frozenset(), "tensors": {}}
    return Checkpoint("a", "bert", spec=spec, preprocessing=read_preprocessing(folder), **empty)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", TOKENIZERS)
def test_every_tokenizer_is_served_as_it_was_opened(name: str, settings: str, tmp_path: Path) -> None:
    """The settings stand in tokenizer_config.json alone, as people edit it, and win over tokenizer.json."""
    TOKENIZERS[name]().save_pretrained(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", **SETTINGS[settings])
    theirs = AutoTokenizer.from_pretrained(tmp_path, padding_side="right")
    spec = text_spec(positions=12, vocabulary=200)
    checkpoint = tokenized(tmp_path, spec)
    exported = replace(checkpoint, preprocessing=as_opened(checkpoint))
    serve, again = prepare_texts(exported), preprocessor_from_json(exported.preprocessing, spec, "a")
    texts, longest = many_texts(), min(12, theirs.model_max_length)
    texts = [text for text in texts if theirs(text)["input_ids"]]  # one without a token has no answer
    for batch in (texts, list(zip(texts, texts[::-1], strict=True))):
        expected = theirs(batch, padding=True, truncation=True, max_length=longest, return_tensors="np")
        for answer in (serve(batch), again(batch)):
            assert answer.keys() == expected.keys()
            for key in expected:
                np.testing.assert_array_equal(answer[key], expected[key])


def test_a_token_that_is_not_embedded_is_named(tmp_path: Path) -> None:
    bert_tokenizer(tmp_path)
    checkpoint = tokenized(tmp_path, text_spec(vocabulary=13))
    serve = prepare_texts(replace(checkpoint, preprocessing=as_opened(checkpoint)))
    assert serve(["a good film"])["input_ids"].shape == (1, 5)
    with pytest.raises(DataError, match=r"the token '\.'"):
        serve(["a good film."])
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        prepare_texts(checkpoint)
