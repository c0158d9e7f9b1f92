import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import hydractl as library
import hydractl.auto
from hydractl.errors import OptionError
from hydractl.evaluation.results import LabelledMetrics, Results, SystemResult
from hydractl.reports.page import report_json
from hydractl.steps.export import format_of


def test_a_report_is_a_value_or_a_file(vit: Path, tmp_path: Path) -> None:
    report = report_json(Results(models={"it": SystemResult(id=LabelledMetrics(ece=0.1, accuracy=0.5), ood={})}))
    (tmp_path / "report.json").write_text(json.dumps(report))
    hydra = library.fuse([vit, vit])
    for name, given in (("a", report), ("b", tmp_path / "report.json")):
        library.export(hydra, format="hf", output=tmp_path / name, report=given)
        assert "| id accuracy | 0.5 |" in (tmp_path / name / "README.md").read_text()
    with pytest.raises(OptionError, match="`as_hydra`"):
        library.export(vit, format="hf", output=tmp_path / "c", report=report)


def test_the_name_of_an_output_says_its_format() -> None:
    found = {name: format_of(Path(name)).name for name in ("a.onnx", "B.ONNX", "folder", "a.b/folder")}
    assert found == {"a.onnx": "onnx", "B.ONNX": "onnx", "folder": "hf", "a.b/folder": "hf"}
    with pytest.raises(OptionError, match="`format`"):
        format_of(Path("a.pt"))


@pytest.mark.slow
def test_a_file_in_half_precision_computes_takes_and_gives_float32(vit: Path, tmp_path: Path) -> None:
    half = library.save(library.load(vit, dtype="fp16"), tmp_path / "half.safetensors")
    picture = np.random.default_rng(0).integers(0, 256, (20, 20, 3), dtype=np.uint8)
    model, expected = library.load(half), library.predict(half, picture).member_logits
    assert {one.dtype for one in model.parameters()} == {torch.float32}
    np.testing.assert_allclose(model.predict(picture).member_logits, expected, rtol=0, atol=1e-5)
    assert library.save(model, tmp_path / "again.safetensors").read_bytes() == half.read_bytes()
    assert next(library.load(half, dtype="fp16").parameters()).dtype == torch.float16
    pixels = model.preprocessor([picture])["pixel_values"].numpy()
    library.export(half, output=tmp_path / "bf16.onnx", dtype="bf16")  # which onnxruntime does not run
    for dtype, rounding in ((None, 1e-5), ("fp16", 0.01)):
        library.export(half, output=tmp_path / f"{dtype}.onnx", dtype=dtype)
        session = onnxruntime.InferenceSession(tmp_path / f"{dtype}.onnx")
        [found] = session.run(["member_logits"], {"pixel_values": pixels})
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=0, atol=rounding)
