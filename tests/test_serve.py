"""ONNX files answer without torch as `predict` does with it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import hydractl as library
from hydractl.errors import CheckpointError, DataError
from hydractl.serve import load_onnx
from tests.cli.conftest import save_bert, save_images, save_vit
from tests.test_package import ROOT

TEXTS = ["a good film", "bad", "good owl film " * 9]
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
    warm = library.calibrate(save_vit(folder / "vit"), id_data=save_images(folder / "data", 12))
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


def test_texts_are_cut_and_padded_as_with_torch(tmp_path: Path) -> None:
    library.export(save_bert(tmp_path / "bert"), output=tmp_path / "bert.onnx")
    served, expected = load_onnx(tmp_path / "bert.onnx"), library.predict(tmp_path / "bert.onnx", text=TEXTS)
    assert_same(served.predict(TEXTS), expected)
    assert served.predict(TEXTS[1]).typicality is None
    for wrong in ([], [3]):
        with pytest.raises(DataError):
            served.predict(wrong)


def test_what_only_a_library_prepares_is_refused(tmp_path: Path) -> None:
    vit = save_vit(tmp_path / "vit")
    settings = vit / "preprocessor_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "resample": 1}))
    library.export(vit, output=tmp_path / "vit.onnx")
    with pytest.raises(CheckpointError, match="image processor needs its library"):
        load_onnx(tmp_path / "vit.onnx")
