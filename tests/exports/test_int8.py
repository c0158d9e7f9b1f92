"""Graphs of eight bits: which parts are rounded, and what is said of accuracy and promises that they lose."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import numpy_helper

import hydractl as library
from hydractl.errors import OptionError, OutputError
from hydractl.exports import graph
from hydractl.exports.int8 import quantized
from hydractl.families.load import read_checkpoint
from hydractl.systems.onnx_file import open_onnx
from tests.cli.conftest import save_vit
from tests.exports.test_graph import hydra
from tests.factories import pixels


@pytest.mark.parametrize("name", ["vit", "bert", "clip"])
def test_linear_maps_of_towers_are_rounded_by_channel(name: str, tmp_path: Path) -> None:
    model = hydra(name, tmp_path)
    proto = quantized(graph.trace(model))
    numbers = {tensor.name: tensor for tensor in proto.graph.initializer}
    rounded = [node for node in proto.graph.node if node.op_type == "MatMulInteger"]
    # Three members over a trunk of one layer: six maps of each layer, of three members or for all.
    assert len(rounded) > 8
    scales = {tensor.name: tensor.dims for tensor in proto.graph.initializer if tensor.name.endswith("_scale")}
    for node in rounded:
        weight = numpy_helper.to_array(numbers[node.input[1]])
        assert weight.dtype == np.int8 and weight.ndim == 2
        assert list(scales[node.input[1].replace("_quantized", "_scale")]) == [weight.shape[1]]
    classes = [node for node in proto.graph.node if node.op_type in ("MatMul", "Gemm", "Conv")]
    assert any(5 in numbers[node.input[1]].dims for node in classes if node.input[1] in numbers)
    inputs = graph.example_inputs(model, batch=4, tokens=6, seed=9)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    [found] = session.run(["probabilities"], {key: value.numpy() for key, value in inputs.items()})
    expected = model(**inputs).probabilities.numpy()
    assert 0 < np.abs(found - expected).max() < 0.03


def random_images(count: int, seed: int) -> list[np.ndarray[Any, Any]]:
    return pixels(np.random.default_rng(seed), count)


def labelled(model: Any, images: list[np.ndarray[Any, Any]]) -> list[tuple[Any, str]]:
    """The images with the model's own answers, so that the model is always right."""
    return list(zip(images, library.predict(model, images).labels, strict=True))


def test_what_unlabelled_data_cannot_fit_again_is_warned_of_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network, images = read_checkpoint(save_vit(tmp_path / "vit")), random_images(250, 0)
    known = labelled(network, images[:120])
    warm = library.calibrate(network, id_data=known, accuracy="60%", sets="80%").checkpoint
    given = {"int8": True, "id_data": images[120:200]}
    made = library.export(warm, output=tmp_path / "int8.onnx", eval_data=labelled(network, images[200:]), **given)
    [warning] = [one for one in made.to_json()["warnings"] if "no labels" in one]
    assert all(name in warning for name in ("`accuracy` 60%", "`sets` 80%", "temperature", "`id_data`"))
    assert warning in caplog.text
    file = open_onnx(tmp_path / "int8.onnx").checkpoint.calibration
    assert file.promises == {} and warm.calibration.promises == {"accuracy": 0.6, "sets": 0.8}
    with pytest.raises(OptionError, match="no labels, .* give labelled `eval_data`"):
        library.export(warm, output=tmp_path / "other.onnx", **given)
    again = library.calibrate(warm, id_data=images[120:200])
    assert "`accuracy` 60% and `sets` 80%" in again.to_json()["warnings"][0]
    assert library.calibrate(warm, id_data=known, accuracy="60%", sets="80%").to_json()["warnings"] == []


def test_a_fifth_measures_what_the_others_fit(tmp_path: Path) -> None:
    vit = save_vit(tmp_path / "vit")
    done = library.export(vit, output=tmp_path / "m.onnx", int8=True, id_data=labelled(vit, random_images(100, 0)))
    assert done.report.data.id.samples == 20
    fitted = open_onnx(tmp_path / "m.onnx")
    assert len(fitted.quantiles) == 80 and fitted.checkpoint.calibration.fit.samples == 80


def with_outlier(folder: Path) -> Path:
    """A network whose linear maps have an input that they ignore, so large that eight bits leave nothing of others."""
    vit = library.load(save_vit(folder / "vit", initializer_range=0.5))
    with torch.no_grad():
        for layer in vit.vision.layers:
            for norm in (layer.attention_norm, layer.mlp_norm):
                norm.bias[0] = 3000
            for part in (layer.attention.q, layer.attention.k, layer.attention.v, layer.mlp.fc1):
                part.weight[:, 0] = 0
    return library.save(vit, folder / "outlier.safetensors")


def test_a_drop_beyond_chance_is_told_and_refused_beyond_the_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = with_outlier(tmp_path)
    given = {"int8": True, "id_data": labelled(model, random_images(300, 0)), "output": tmp_path / "m.onnx"}
    with pytest.raises(OutputError, match="`max_accuracy_drop` is 1"):
        library.export(model, **given, max_accuracy_drop=1)
    assert not list(tmp_path.glob("*.onnx*"))
    assert any("int8 changes accuracy by -" in message for message in caplog.messages)
