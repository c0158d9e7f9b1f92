import hashlib
import json
import os
import pickle
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from torch import nn

import hydractl
from hydractl.checkpoint.contents import identity
from hydractl.checkpoint.disk import open_weights
from hydractl.checkpoint.tensors import LazyTensor, write_safetensors
from hydractl.errors import CheckpointError
from hydractl.families.load import read_checkpoint
from tests.conftest import build_reference
from tests.factories import save_encoder
from tests.hostile import within_limits
from tests.references import Reference

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
COMMIT = "a" * 40
Response = tuple[int, dict[str, str], bytes]  # status, headers and content


def written(path: Path) -> Path:
    save_file({"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}, path)
    return path


def test_reads_what_the_library_wrote_and_the_other_way_round(tmp_path: Path) -> None:
    tensors, _ = open_weights(written(tmp_path / "theirs.safetensors"))
    empty = LazyTensor((0, 3), "F32", lambda: torch.empty(0, 3))
    write_safetensors(tmp_path / "ours", {**tensors, "none": empty}, {"key": "välue"})
    back = load_file(tmp_path / "ours")
    assert torch.equal(back["a"], torch.arange(6.0).reshape(2, 3))
    assert back["b"].dtype == torch.bfloat16 and back["none"].shape == (0, 3)
    assert open_weights(tmp_path / "ours")[1] == {"key": "välue"}


@pytest.mark.parametrize("size", [0, 4, 8, 40, -1])
def test_truncated_files(size: int, tmp_path: Path) -> None:
    path = written(tmp_path / "whole")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CheckpointError, match="whole: not a readable"):
        open_weights(path)


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


@pytest.mark.parametrize(("save", "name"), [(save_file, "model.safetensors"), (torch.save, "pytorch_model.bin")])
def test_tensors_are_found_in_any_shard(
    save: Callable[[Any, Path], None], name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, tensors in enumerate(({"a": torch.zeros(2), "b": torch.zeros(2)}, {"b": torch.ones(2)})):
        save(tensors, tmp_path / f"{number}-{name}")
    shards = {"a": f"1-{name}", "b": f"0-{name}", "c": f"1-{name}"}
    (tmp_path / f"{name}.index.json").write_text(json.dumps({"weight_map": shards}))
    tensors, _ = open_weights(tmp_path)
    assert {name: tensor.load().tolist() for name, tensor in tensors.items()} == {"a": [0, 0], "b": [0, 0]}
    assert "names a wrong one for a, c" in caplog.text


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="neither a file nor"):
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
    write_safetensors(tmp_path / "file", {"a": LazyTensor((300, 500), "F32", lambda: first)}, {})
    lazy = open_weights(tmp_path / "file")[0]["a"]
    lazy.load().zero_()
    write_safetensors(tmp_path / "file", {"b": LazyTensor((300, 500), "F32", lambda: other)}, {}, force=True)
    assert torch.equal(lazy.load(), first)
    assert torch.equal(open_weights(tmp_path / "file")[0]["b"].load(), other)


def test_tensors_of_a_file_of_ours_are_aligned_whatever_their_sizes(tmp_path: Path) -> None:
    shapes = {"a": (), "b": (300, 500), "c": (7, 3), "d": (1024, 64), "e": (999,)}
    lazy = {name: LazyTensor(s, "F32", lambda s=s: torch.ones(s)) for name, s in shapes.items()}
    write_safetensors(tmp_path / "file", lazy, {"any": "thing"})
    tensors = open_weights(tmp_path / "file")[0]
    assert all(tensors[name].load().data_ptr() % 64 == 0 for name in ("b", "d"))


def pickled(reference: Reference, folder: Path, **how: Any) -> Path:
    """Saves a model with its weights as torch.save writes them, and returns the file of those."""
    state = open_weights(reference.save(folder))[0]
    [weights] = folder.glob("*model.safetensors")
    weights.unlink()
    file = folder / weights.name.replace("model.safetensors", "pytorch_model.bin")
    torch.save({name: tensor.load() for name, tensor in state.items()}, file, **how)
    return file


@pytest.mark.parametrize("name", ["bert", "vit", "clip", "timm-registers", "open-clip"])
@pytest.mark.parametrize("how", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "before 1.6"])
def test_the_tensors_of_a_pickle_are_the_same_model(name: str, how: dict[str, Any], tmp_path: Path) -> None:
    reference = build_reference(name)
    file = pickled(reference, tmp_path / "pickle", **how)
    expected = identity(read_checkpoint(reference.save(tmp_path / "safe")))
    assert identity(read_checkpoint(file.parent)) == identity(read_checkpoint(file)) == expected


def test_training_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    file = pickled(build_reference("vit"), tmp_path)
    before = file.read_bytes()
    model = hydractl.load(tmp_path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert file.read_bytes() == before


class Running:
    """An object whose unpickling makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def compressed(path: Path) -> None:
    torch.save({"a": torch.zeros(2**20)}, path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def saving(value: Any, **how: Any) -> Callable[[Path], None]:
    return lambda path: torch.save(value, path, **how)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "code": lambda path: torch.save({"a": Running(path.with_name("ran"))}, path),
    "code beside tensors": lambda path: torch.save(
        {"a": torch.ones(2), "b": Running(path.with_name("ran"))}, path, _use_new_zipfile_serialization=False
    ),
    "code alone": lambda path: path.write_bytes(pickle.dumps(Running(path.with_name("ran")))),
    "code before tensors": lambda path: path.write_bytes(
        pickle.dumps(Running(path.with_name("ran"))) + pickle.dumps({"a": 1})
    ),
    "a module": saving(nn.Linear(2, 2)),
    "parts": saving({"state_dict": {"a": torch.ones(2)}}),
    "no tensors": saving({}),
    "a list": saving([torch.ones(2)]),
    "numbers for names": saving({0: torch.ones(2)}),
    "a repeated number": saving({"a": torch.ones(1).expand(2**40)}),
    "sparse": saving({"a": torch.eye(3).to_sparse()}),
    "complex": saving({"a": torch.ones(2, dtype=torch.complex64)}),
    "elsewhere": saving({"a": torch.ones(2, device="meta")}),
    "compressed": compressed,
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n"),
    "half": lambda path: (torch.save({"a": torch.ones(999)}, path), os.truncate(path, 900)),
    "half of an old one": lambda path: (
        torch.save({"a": torch.ones(999)}, path, _use_new_zipfile_serialization=False),
        os.truncate(path, 900),
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_more_than_tensors_is_refused_and_does_not_run(case: str, tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    HOSTILE[case](path)
    with within_limits(), pytest.raises(CheckpointError, match=r"pytorch_model\.bin: ") as refused:
        open_weights(tmp_path)
    assert str(refused.value).isprintable() and "weights_only" not in str(refused.value)
    assert not (tmp_path / "ran").exists()


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_every_cut_and_every_changed_byte(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.arange(4.0), "b": torch.ones(2, 3)}, path)
    whole = path.read_bytes()
    damaged = [whole[:size] for size in range(0, len(whole), 97)]
    damaged += [whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :] for at in range(0, len(whole), 13)]
    for content in damaged:
        path.write_bytes(content)
        with within_limits(), suppress(CheckpointError):
            for tensor in open_weights(tmp_path)[0].values():
                tensor.load()


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    torch.save({"a": torch.tensor([1.0, float("nan")])}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="a holds NaN"):
        open_weights(tmp_path)[0]["a"].load()


def test_pickles_by_other_names_are_refused(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "model.pth")
    for path in (tmp_path, tmp_path / "model.pth"):
        with pytest.raises(CheckpointError, match=r"model.pth: is a pickle"):
            open_weights(path)


@dataclass
class Hub:
    """One repository, `owner/name`, and what goes wrong with it."""

    files: dict[str, bytes] = field(default_factory=dict)
    served: list[str] = field(default_factory=list)  # names of the files fetched, once for each request
    tokens: set[str | None] = field(default_factory=set)
    private_token: str | None = None
    gated: bool = False

    def add(self, folder: Path) -> None:
        self.files |= {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        status, headers, content = self.response(self.path.partition("?")[0], self.headers.get("Authorization"))
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET

    def response(self, path: str, token: str | None) -> Response:
        self.hub.tokens.add(token)
        if "owner/name" not in path:
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        if self.hub.gated:
            return 403, {"X-Error-Code": "GatedRepo"}, b"{}"
        if self.hub.private_token and token != f"Bearer {self.hub.private_token}":
            return 401, {"X-Error-Code": "RepoNotFound"}, b"{}"
        if path.startswith("/api/models/owner/name"):
            return self.listing(path)
        return self.file(path.split("/resolve/")[1].partition("/")[2])

    def listing(self, path: str) -> Response:
        revision = path.rsplit("/", 1)[1] if "/name/" in path else "main"
        if revision not in ("main", "v1", COMMIT):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        files = self.hub.files.items()
        listing: object = [{"type": "file", "path": n, "size": len(c), "oid": git_name(c)} for n, c in files]
        if "/tree/" not in path:
            names = [{"rfilename": name} for name in self.hub.files]
            listing = {"id": "owner/name", "modelId": "owner/name", "sha": COMMIT, "siblings": names}
        return 200, {"Content-Type": "application/json"}, json.dumps(listing).encode()

    def file(self, name: str) -> Response:
        if name not in self.hub.files:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        if self.command == "GET":
            self.hub.served.append(name)
        content = self.hub.files[name]
        return 200, {"X-Repo-Commit": COMMIT, "ETag": f'"{git_name(content)}"'}, content


def git_name(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    state = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("TheHandler", (Handler,), {"hub": state}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    yield state
    server.shutdown()
    server.server_close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_reference("bert").save(tmp_path / "bert")


def test_only_the_files_needed_are_fetched(hub: Hub, folder: Path) -> None:
    hub.add(folder)
    hub.files |= {"pytorch_model.bin": b"x", "README.md": b"x", "onnx/model.onnx": b"x", "tf_model.h5": b"x"}
    assert identity(read_checkpoint("owner/name")) == identity(read_checkpoint(folder))
    assert sorted(hub.served) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("inner", ["", "0_Transformer"])
def test_what_sentence_transformers_says_of_a_network_is_fetched(
    inner: str, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_encoder(tmp_path / "encoder" / inner) if inner else save_encoder(tmp_path / "encoder")
    (folder / "sentence_bert_config.json").rename(folder / "sentence_xlm-roberta_config.json")
    root = tmp_path / "encoder"
    if inner:
        for name in ("modules.json", "1_Pooling"):
            (folder / name).rename(root / name)
    (root / "2_Normalize").mkdir()
    (root / "2_Normalize" / "config.json").write_text('{"module_input_name": "sentence_embedding"}')
    (root / "config_sentence_transformers.json").write_text('{"truncate_dim": 4}')
    hub.add(root)
    hub.files["2_Dense/config.json"] = b"{}"
    read = read_checkpoint("owner/name")
    expected = read_checkpoint(root)
    assert (read.spec, read.preprocessing) == (expected.spec, expected.preprocessing) and read.spec.features == 4
    assert {"1_Pooling/config.json", "2_Normalize/config.json"} <= set(hub.served)
    assert "2_Dense/config.json" not in hub.served
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    offline = read_checkpoint("owner/name")
    assert (offline.spec, offline.preprocessing) == (expected.spec, expected.preprocessing)


def test_what_is_cached_is_not_fetched_again_and_is_there_offline(
    hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(folder)
    expected = identity(read_checkpoint("owner/name"))
    count = len(hub.served)
    assert identity(read_checkpoint("owner/name")) == expected
    assert len(hub.served) == count
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert identity(read_checkpoint("owner/name")) == expected
    with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE"):
        read_checkpoint("owner/other")


def test_revisions(hub: Hub, folder: Path) -> None:
    hub.add(folder)
    assert read_checkpoint("owner/name@v1").name == "owner/name@v1"
    with pytest.raises(CheckpointError, match="no such revision"):
        read_checkpoint("owner/name@v2")


def test_shards_are_found_by_their_index(hub: Hub, tmp_path: Path, folder: Path) -> None:
    build_reference("bert").model.save_pretrained(tmp_path / "shards", max_shard_size="10KB")
    hub.add(tmp_path / "shards")
    hub.files["model-of-something-else.safetensors"] = b"x"
    assert identity(read_checkpoint("owner/name")) == identity(read_checkpoint(folder))
    assert "model-of-something-else.safetensors" not in hub.served


def test_a_token_opens_what_is_private(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add(folder)
    hub.private_token = "secret"
    with pytest.raises(CheckpointError, match="private or gated"):
        read_checkpoint("owner/name")
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert identity(read_checkpoint("owner/name")) == identity(read_checkpoint(folder))


def test_what_the_hub_refuses_is_one_line(hub: Hub, folder: Path) -> None:
    with pytest.raises(CheckpointError, match="owner/other: "):
        read_checkpoint("owner/other")
    hub.files = {"config.json": b"{}", "model.pth": b"x"}
    with pytest.raises(CheckpointError, match="no model.safetensors or"):
        read_checkpoint("owner/name")
    hub.gated = True
    with pytest.raises(CheckpointError, match="gated one .*terms"):
        read_checkpoint("owner/name")


@pytest.mark.parametrize("name", ["/nowhere/at/all", "no such name", "a/b/c", "m1.safetensors"])
def test_names_that_are_no_repository_are_not_asked_for(hub: Hub, name: str) -> None:
    with pytest.raises(CheckpointError, match=f"{name}: no such file or folder: check the path$"):
        read_checkpoint(name)
    assert hub.tokens == set()


def test_timm_names_lead_to_their_repository(hub: Hub) -> None:
    with pytest.raises(CheckpointError, match="patch16_224.augreg_in21k"):
        read_checkpoint("timm:vit_tiny_patch16_224")
    with pytest.raises(CheckpointError, match="timm has no weights"):
        read_checkpoint("timm:no_such_model")


def test_a_name_without_an_owner_is_one_of_the_hub(hub: Hub) -> None:
    with pytest.raises(CheckpointError, match="no repository"):
        read_checkpoint("bert-base-uncased")
    assert hub.tokens  # it was asked


def test_a_hub_that_does_not_answer_is_asked_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    started = time.monotonic()
    with pytest.raises(CheckpointError, match="the hub does not answer"):
        read_checkpoint("owner/name")
    assert time.monotonic() - started < 5  # the client's own retries take half a minute
