"""ONNX files of ours answer as their networks do; those of others are refused before any of them runs."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import hydractl as library
from hydractl.checkpoint.contents import Checkpoint
from hydractl.errors import CheckpointError, DataError, OptionError
from hydractl.families.load import read_checkpoint
from hydractl.surgery.fusion import fuse
from hydractl.systems.onnx_file import open_onnx
from tests.cli.conftest import LABELS, half_known, save_clip, save_images, save_vit
from tests.references import uneven_members

PICTURES = [np.random.default_rng(i).integers(0, 256, (9, 12, 3), dtype=np.uint8) for i in range(7)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, Path]:
    """A calibrated Hydra of images, and its ONNX file."""
    folder = tmp_path_factory.mktemp("pair")
    hydra = fuse(uneven_members(read_checkpoint(save_vit(folder / "vit", num_hidden_layers=3))))
    warm = library.calibrate(hydra, id_data=half_known(hydra, save_images(folder / "data", 12, seed=3)))
    library.export(warm, output=folder / "hydra.onnx")
    return warm.checkpoint, folder / "hydra.onnx"


def test_it_keeps_the_classes_of_a_zero_shot_model(tmp_path: Path) -> None:
    hydra = fuse(uneven_members(read_checkpoint(save_clip(tmp_path / "clip"))))
    own = {"classes": list(LABELS), "template": "{label}"}
    library.export(hydra, output=tmp_path / "h.onnx", **own)
    found, expected = library.predict(tmp_path / "h.onnx", PICTURES), library.predict(hydra, PICTURES, **own)
    assert list(found.labels) == list(expected.labels)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, rtol=0, atol=1e-5)


def test_it_remembers_what_made_it(pair: tuple[Checkpoint, Path]) -> None:
    with pytest.raises(DataError, match="were used to make hydra"):
        library.evaluate(str(pair[1]), id_data=pair[1].parent / "data")


def test_scores_of_features_need_its_source(pair: tuple[Checkpoint, Path], tmp_path: Path) -> None:
    images, held_out = (save_images(tmp_path / str(seed), seed=seed) for seed in (0, 1))
    with pytest.raises(DataError, match=r"hydra\.onnx: .*features"):
        library.evaluate(str(pair[1]), id_data=images, calib_data=held_out, ood_score="mahalanobis")


def test_a_fitted_score_is_read_back_from_what_was_saved(pair: tuple[Checkpoint, Path], tmp_path: Path) -> None:
    images = [save_images(tmp_path / str(seed), seed=seed) for seed in (0, 1, 2)]
    fitted = library.calibrate(pair[0], id_data=images[2], ood_score="mahalanobis").checkpoint
    library.export(fitted, output=tmp_path / "m.onnx")
    sets = {"id_data": images[0], "ood_data": {"odd": images[1]}}
    report = library.evaluate({"m": tmp_path / "m.onnx"}, **sets, save_logits=tmp_path / "saved").models["m"]
    again = library.evaluate({"m": f"predictions:{tmp_path}/saved/m"}).models["m"]
    assert again["ood"] == report["ood"]


def test_options_of_a_network_of_torch_are_refused(pair: tuple[Checkpoint, Path]) -> None:
    for option in ({"dtype": "bf16"}, {"classes": ["a", "b"]}, {"device": "cuda"}):
        with pytest.raises(OptionError, match=f"`{next(iter(option))}`"):
            library.predict(pair[1], PICTURES, **option)


def test_it_is_timed_beside_ours(pair: tuple[Checkpoint, Path]) -> None:
    rows = library.analyse_speed({"ours": pair[0], "onnx": str(pair[1])}, batch_sizes=2, seconds=0).rows
    assert [row.dtype for row in rows] == ["float32", "float32"]
    assert rows[1].weight.size == pair[1].stat().st_size and rows[1].counted_ratio == 1


def other_input(proto: ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 9


def without(key: str) -> Callable[[ModelProto], None]:
    def drop(proto: ModelProto) -> None:
        [place] = [place for place, each in enumerate(proto.metadata_props) if each.key == key]
        del proto.metadata_props[place]

    return drop


def external_data(proto: ModelProto) -> None:
    proto.graph.initializer[0].data_location = TensorProto.EXTERNAL
    proto.graph.initializer[0].external_data.add(key="location", value="../../etc/passwd")


STRANGE = NodeProto(domain="com.strangers")
MORE = helper.make_tensor_value_info("more", TensorProto.FLOAT, [1])
NESTED = helper.make_attribute("then_branch", helper.make_graph([], "g", [], []))
SECRET = helper.make_attribute("value", TensorProto(data_location=1, name="secret"))
#: What is damaged, by what the error says of it.
DAMAGES: dict[str, Callable[[ModelProto], object]] = {
    "pixel_values has another kind or shape": other_input,
    "inputs are more, pixel_values": lambda file: file.graph.input.append(MORE),
    "outputs are probabilities, member_logits, ood_score, typicality, should be": lambda file: file.graph.output.pop(),
    "hold no manifest": without("hydractl"),
    "cost is missing": without("cost"),
    "quantiles and an OOD score": without("quantiles"),
    "name something twice": lambda file: file.metadata_props.append(file.metadata_props[0]),
    "custom operator com.strangers.": lambda file: file.graph.node[3].MergeFrom(STRANGE),
    "holds functions": lambda file: file.functions.add(name="f", domain=""),
    "a graph of its own": lambda file: file.graph.node[3].attribute.append(NESTED),
    "lies in another file": external_data,
    "secret lies in another file": lambda file: file.graph.node[0].attribute.append(SECRET),
}


@pytest.mark.parametrize("finding", DAMAGES)
def test_a_file_of_another_form_is_refused_before_it_runs(
    finding: str, pair: tuple[Checkpoint, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "InferenceSession", None)
    proto = onnx.load(pair[1])
    DAMAGES[finding](proto)
    (tmp_path / "x.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(CheckpointError, match=rf"x\.onnx: .*{re.escape(finding)}"):
        library.predict(tmp_path / "x.onnx", PICTURES)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_file_that_breaks_off_is_refused(share: float, pair: tuple[Checkpoint, Path], tmp_path: Path) -> None:
    content = pair[1].read_bytes()
    (tmp_path / "x.onnx").write_bytes(content[: int(share * len(content))])
    with pytest.raises(CheckpointError, match=r"x\.onnx: "):
        library.predict(tmp_path / "x.onnx", PICTURES)


def test_a_file_that_changes_is_not_run(pair: tuple[Checkpoint, Path], tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(pair[1].read_bytes())
    file = open_onnx(tmp_path / "x.onnx")
    (tmp_path / "x.onnx").write_bytes(pair[1].read_bytes() + b"\n")
    with pytest.raises(CheckpointError, match="has changed"):
        file.start()


def test_a_graph_names_no_file_of_the_machine_that_wrote_it(pair: tuple[Checkpoint, Path]) -> None:
    assert str(Path(library.__file__).parent).encode() not in pair[1].read_bytes()


def test_inspect_describes_it_as_the_network_it_holds(pair: tuple[Checkpoint, Path]) -> None:
    network, file = library.inspect(pair[0]).value, library.inspect(pair[1]).value
    same = {"family", "task", "members", "labels", "towers", "temperature", "ood", "multiply_adds"}
    assert {name: file[name] for name in same} == {name: network[name] for name in same}
    assert file["graph"]["opset"] == onnx.load(pair[1]).opset_import[0].version
    assert (file["graph"]["bytes"], file["dtypes"]) == (pair[1].stat().st_size, ["float32"])
    assert file["sha256"] == hashlib.sha256(pair[1].read_bytes()).hexdigest()
