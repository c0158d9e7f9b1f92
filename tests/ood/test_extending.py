"""A new OOD score is a file and a row, as the manual says: everything else follows."""

import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import half_known, save_images, save_vit

# In a process of its own: choices are read once from the table of scores.
ADDED = """
import json, re, sys
from pathlib import Path
import hydractl
from hydractl.ood import ood_scores

page = (Path(hydractl.__file__).parent / "guide" / "extending.md").read_text(encoding="utf-8")
section = page.split("## An OOD score")[1].split("\\n## ")[0]
names = {}
for block in re.findall(r"```python\\n(.*?)```", section, re.S):
    exec(block, names)
sure = names["Outputs"](names["torch"].tensor([[[200.0, 0.0]]]))
assert names["doubt"]({}, sure).tolist() == [0.0]  # no NaN where p is 0
ood_scores.OOD_SCORES += (names["CENTRE"],)

import onnxruntime, torch
from torch.testing import assert_close
from hydractl.exports import graph

auto = hydractl.calibrate("vit", id_data="data", ood_data="odd")
assert "centre" in {one.score for one in auto.choice.rated}
hydractl.calibrate("vit", id_data="data", ood_score="centre", output="warm")
model, pixels = hydractl.load("warm"), torch.randn(2, 3, 8, 8)
with torch.no_grad():
    output = model(pixel_values=pixels)
expected = (output.features[0] - model.ood_head.mean[0]).norm(dim=-1)
assert_close(output.ood_score, expected)
found = hydractl.predict("warm", "data")
assert json.dumps(found.to_json()) and (found.typicality > 0).all()
sets = {"id_data": "fresh", "ood_data": {"odd": "odd"}}
report = hydractl.evaluate({"m": "warm"}, **sets, save_logits="saved").models["m"]
assert hydractl.evaluate({"m": "predictions:saved/m"}).models["m"]["ood"] == report["ood"]
graph.write_onnx(model, Path("m.onnx"))
session = onnxruntime.InferenceSession("m.onnx")
(exported,) = session.run(["ood_score"], {"pixel_values": pixels.numpy()})
assert_close(torch.from_numpy(exported), expected, rtol=1e-5, atol=1e-5)
"""


def test_the_row_of_the_manual_is_fitted_stored_predicted_and_exported(tmp_path: Path) -> None:
    save_vit(tmp_path / "vit", 0)
    half_known(tmp_path / "vit", save_images(tmp_path / "data", count=30, seed=1))
    save_images(tmp_path / "odd", count=12, seed=2)
    save_images(tmp_path / "fresh", count=12, seed=3)
    done = subprocess.run([sys.executable, "-c", ADDED], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
