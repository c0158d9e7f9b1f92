"""What comes from the hub, played by a server on this machine that speaks the few endpoints its client uses."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from hydractl.checkpoint.contents import identity
from hydractl.checkpoint.spec import SIGMOID
from hydractl.errors import CheckpointError
from hydractl.families.load import read_checkpoint
from tests.checkpoint.test_sentences import save_reranker
from tests.conftest import build_reference
from tests.tasks.encoders import save_encoder

COMMIT = "a" * 40


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


Response = tuple[int, dict[str, str], bytes]  # status, headers and content


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


def test_the_activation_of_a_reranker_is_fetched(hub: Hub, tmp_path: Path) -> None:
    hub.add(save_reranker(tmp_path / "reranker", activation_fn=SIGMOID))
    assert read_checkpoint("owner/name").spec.task == "text-probability"


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
    with pytest.raises(CheckpointError, match="not in the hub's cache: unset HF_HUB_OFFLINE"):
        read_checkpoint("owner/other")


def test_revisions(hub: Hub, folder: Path) -> None:
    hub.add(folder)
    assert read_checkpoint("owner/name@v1").name == "owner/name@v1"
    with pytest.raises(CheckpointError, match="the repository has no such revision"):
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
    with pytest.raises(CheckpointError, match="a private or gated one needs"):
        read_checkpoint("owner/name")
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert identity(read_checkpoint("owner/name")) == identity(read_checkpoint(folder))


def test_what_the_hub_refuses_is_one_line(hub: Hub, folder: Path) -> None:
    with pytest.raises(CheckpointError, match="owner/other: no such file or folder, and no repository"):
        read_checkpoint("owner/other")
    hub.files = {"config.json": b"{}", "model.pth": b"x"}
    with pytest.raises(CheckpointError, match=r"the hub has no model.safetensors or pytorch_model.bin of it"):
        read_checkpoint("owner/name")
    hub.gated = True
    with pytest.raises(CheckpointError, match="gated one needs its terms accepted"):
        read_checkpoint("owner/name")


def test_no_connection_is_one_line(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("time.sleep", lambda _: None)  # between the client's attempts
    with pytest.raises(CheckpointError, match="the hub does not answer"):
        read_checkpoint("owner/name")


@pytest.mark.parametrize("name", ["/nowhere/at/all", "no such name", "a/b/c", "m1.safetensors"])
def test_names_that_are_no_repository_are_not_asked_for(hub: Hub, name: str) -> None:
    with pytest.raises(CheckpointError, match=f"{name}: no such file or folder: check the path$"):
        read_checkpoint(name)
    assert hub.tokens == set()


def test_timm_names_lead_to_their_repository(hub: Hub) -> None:
    with pytest.raises(CheckpointError, match="timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k: no such file or folder"):
        read_checkpoint("timm:vit_tiny_patch16_224")
    with pytest.raises(CheckpointError, match="timm knows no weights of that name"):
        read_checkpoint("timm:no_such_model")


def test_a_name_without_an_owner_is_one_of_the_hub(hub: Hub) -> None:
    with pytest.raises(CheckpointError, match="no repository that the hub shows"):
        read_checkpoint("bert-base-uncased")
    assert hub.tokens  # it was asked


def test_a_hub_that_does_not_answer_is_asked_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    started = time.monotonic()
    with pytest.raises(CheckpointError, match="the hub does not answer"):
        read_checkpoint("owner/name")
    assert time.monotonic() - started < 5  # the client's own retries take half a minute
