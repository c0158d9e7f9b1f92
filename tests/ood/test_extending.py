"""A new OOD score is a file and a row, as the manual says: everything else follows."""

import json
import re
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch.testing import assert_close

import hydractl as library
from hydractl.checkpoint import ood as checkpoint_ood
from hydractl.evaluation import ood_fit
from hydractl.exports import graph
from hydractl.ood import table
from tests.cli.conftest import save_images, save_vit


@pytest.fixture
def row() -> Any:
    """The score that the manual adds, from its own lines."""
    page = Path(library.__file__).parent / "guide" / "extending.md"
    section = page.read_text(encoding="utf-8").split("## An OOD score")[1].split("\n## ")[0]
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", section, re.S):
        exec(block, names)
    return names["CENTRE"]


def test_the_row_of_the_manual_is_fitted_stored_predicted_and_exported(
    row: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (table, checkpoint_ood, ood_fit):
        monkeypatch.setattr(place, "OOD_SCORES", (*table.OOD_SCORES, row))
    save_vit(tmp_path / "vit", 0)
    save_images(tmp_path / "data", count=30, seed=1)
    save_images(tmp_path / "odd", count=12, seed=2)
    auto = library.calibrate(tmp_path / "vit", id_data=tmp_path / "data", ood_data=tmp_path / "odd")
    assert "centre" in {one.score for one in auto.choice.rated}
    library.calibrate(tmp_path / "vit", id_data=tmp_path / "data", ood_score="centre", output=tmp_path / "warm")
    model = library.load(tmp_path / "warm")
    pixels = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        output = model(pixel_values=pixels)
    expected = (output.features[0] - model.ood_head.center[0]).norm(dim=-1)
    assert_close(output.ood_score, expected)
    found = library.predict(tmp_path / "warm", tmp_path / "data")
    assert json.dumps(found.to_json()) and (found.typicality > 0).all()
    graph.write_onnx(model, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (exported,) = session.run(["ood_score"], {"pixel_values": pixels.numpy()})
    assert_close(torch.from_numpy(exported), expected, rtol=1e-5, atol=1e-5)
