import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hydractl.checkpoint.disk import open_weights
from hydractl.checkpoint.tensors import LazyTensor, write_safetensors
from hydractl.errors import CheckpointError


def written(path: Path) -> Path:
    save_file({"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}, path)
    return path


def test_reads_what_the_library_wrote_and_the_other_way_round(tmp_path: Path) -> None:
    tensors, _ = open_weights(written(tmp_path / "theirs.safetensors"))
    empty = LazyTensor((0, 3), torch.float32, lambda: torch.empty(0, 3))
    write_safetensors(tmp_path / "ours", {**tensors, "none": empty}, {"key": "välue"})
    back = load_file(tmp_path / "ours")
    assert torch.equal(back["a"], torch.arange(6.0).reshape(2, 3))
    assert back["b"].dtype == torch.bfloat16 and back["none"].shape == (0, 3)
    assert open_weights(tmp_path / "ours")[1] == {"key": "välue"}


@pytest.mark.parametrize("size", [0, 4, 8, 40, -1])
def test_truncated_files(size: int, tmp_path: Path) -> None:
    path = written(tmp_path / "whole")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CheckpointError, match="whole: not a readable safetensors file"):
        open_weights(path)


FOREIGN = {
    "tf_model.h5": "from_tf=True",
    "flax_model.msgpack": "from_flax=True",
    "model.Q4_K_M.gguf": "name the model that they were made from",
    "onnx.onnx": "an ONNX graph",
    "zero_to_fp32.py": r"python \S+/zero_to_fp32.py \S+ NEW",
    "global_step10/mp_rank_00_model_states.pt": r"python \S+/zero_to_fp32.py \S+ NEW",
    "pytorch_model_fsdp_0/__0_0.distcp": r"accelerate merge-weights \S+ NEW",
    "__0_0.distcp": r"accelerate merge-weights \S+ NEW",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_other_programs_left_is_named_with_what_converts_it(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    (tmp_path / "training_args.bin").touch()
    with pytest.raises(CheckpointError, match=FOREIGN[name]):
        open_weights(tmp_path)


@pytest.mark.parametrize(
    ("index", "finding"),
    [
        *((index, "fetch or write it again") for index in ("[]", "{}", '{"weight_map": {}}', '{"weight_map": []}')),
        ('{"weight_map": {"a": 1}}', "fetch or write it again"),
        ('{"weight_map": {"a": "one.safetensors"}}', "shard one.safetensors is missing"),
        ('{"weight_map": {"a": "../outside.safetensors"}}', "lies outside the folder"),
    ],
)
def test_an_index_names_shards_of_its_folder(index: str, finding: str, tmp_path: Path) -> None:
    written(tmp_path / "outside.safetensors")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(CheckpointError, match=finding):
        open_weights(folder)


def test_tensors_are_found_in_any_shard(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number, tensors in enumerate(({"a": torch.zeros(2), "b": torch.zeros(2)}, {"b": torch.ones(2)})):
        save_file(tensors, tmp_path / f"{number}.safetensors")
    shards = {"a": "1.safetensors", "b": "0.safetensors", "c": "1.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    tensors, _ = open_weights(tmp_path)
    assert {name: tensor.load().tolist() for name, tensor in tensors.items()} == {"a": [0, 0], "b": [0, 0]}
    assert "names a wrong one for a, c" in caplog.text


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="is neither a file nor a folder"):
        open_weights(tmp_path / "pipe")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_none_are_found_wherever_they_stand(dtype: torch.dtype, bad: float, tmp_path: Path) -> None:
    large = torch.ones(300, 500, dtype=dtype)
    large[299, 123] = bad
    save_file({"large": large, "small": large[-1, :200].clone()}, tmp_path / "file")
    for name in ("large", "small"):
        with pytest.raises(CheckpointError, match=f"file: {name} holds NaN or infinite numbers"):
            open_weights(tmp_path / "file")[0][name].load()


def test_finite_numbers_whose_sum_is_not(tmp_path: Path) -> None:
    save_file({"a": torch.full((500, 500), 60000.0, dtype=torch.float16)}, tmp_path / "file")
    assert (open_weights(tmp_path / "file")[0]["a"].load() == 60000).all()


def test_what_is_read_is_this_process_own_and_of_the_file_that_was_opened(tmp_path: Path) -> None:
    first, other = torch.randn(300, 500), torch.randn(300, 500)
    write_safetensors(tmp_path / "file", {"a": LazyTensor((300, 500), torch.float32, lambda: first)}, {})
    lazy = open_weights(tmp_path / "file")[0]["a"]
    lazy.load().zero_()
    write_safetensors(tmp_path / "file", {"b": LazyTensor((300, 500), torch.float32, lambda: other)}, {}, force=True)
    assert torch.equal(lazy.load(), first)
    assert torch.equal(open_weights(tmp_path / "file")[0]["b"].load(), other)


def test_tensors_of_a_file_of_ours_are_aligned_whatever_their_sizes(tmp_path: Path) -> None:
    shapes = {"a": (), "b": (300, 500), "c": (7, 3), "d": (1024, 64), "e": (999,)}
    lazy = {name: LazyTensor(s, torch.float32, lambda s=s: torch.ones(s)) for name, s in shapes.items()}
    write_safetensors(tmp_path / "file", lazy, {"any": "thing"})
    tensors = open_weights(tmp_path / "file")[0]
    assert all(tensors[name].load().data_ptr() % 64 == 0 for name in ("b", "d"))
