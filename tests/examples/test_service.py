"""The service of the guide as its Dockerfile starts it: a real server under eight clients, half of them broken."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from io import BytesIO
from pathlib import Path
from urllib.request import urlopen

import pytest
from PIL import Image

import hydractl
from tests.cli.conftest import half_known, save_images
from tests.cli.test_readme import blocks
from tests.factories import save_tagger, sentences

SERVICE = Path(__file__).parents[2] / "examples" / "service"
CLIENTS, ROUNDS = 8, 5


def command(instruction: str, port: int, model: Path) -> list[str]:
    """A command of the Dockerfile, with another port and model."""
    [found] = re.findall(rf"^{instruction}.*?(\[.*\])$", (SERVICE / "Dockerfile").read_text(), re.MULTILINE)
    text = found.replace("8000", str(port)).replace("/model/service.safetensors", str(model))
    return [sys.executable, *json.loads(text)[1:]]


@pytest.fixture(params=("model", "model.onnx"))
def model(request: pytest.FixtureRequest, vit: Path, tmp_path: Path) -> Path:
    """A calibrated file, of torch or for onnxruntime."""
    known = half_known(vit, save_images(tmp_path / "known", count=60, seed=1))
    hydractl.calibrate(vit, id_data=known, output=tmp_path / "model")
    hydractl.export(tmp_path / "model", output=tmp_path / "model.onnx")
    return tmp_path / str(request.param)


@pytest.fixture
def server(model: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """A server of two processes, its port and its log."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    log = tmp_path / "log"
    with log.open("w") as file:
        started = [*command("CMD", port, model), "2"]
        states = {"STATES": str(tmp_path / "states"), "SAVE_SECONDS": "0"}
        process = subprocess.Popen(started, cwd=SERVICE, env=os.environ | states, stderr=file, stdout=file, text=True)
    try:
        for _ in range(300):
            if subprocess.run(command("HEALTHCHECK", port, model), capture_output=True).returncode == 0:
                break
            assert process.poll() is None, log.read_text()
            time.sleep(0.5)
        while log.read_text().count(" ready\n") < 2:
            time.sleep(0.5)
        yield process, port, log
    finally:
        process.kill()
        process.wait()


def encoded(kind: str = "PNG", white: bool = False) -> bytes:
    file = BytesIO()
    (Image.new("L", (90, 90), 255) if white else Image.effect_noise((90, 90), 50)).save(file, kind)
    return file.getvalue()


BODIES = [
    (encoded(), 200),
    (encoded("JPEG"), 200),
    (b"", 400),
    (b"\xff" * 999, 400),
    (encoded()[:900], 400),
    (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 400),
    (bytes(10 * 2**20 + 1), 413),
]


def post(port: int, body: bytes) -> tuple[int, dict[str, object]]:
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/predict", body)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text.startswith(b"{") else {}


def client(port: int, number: int) -> list[tuple[int, int]]:
    """The statuses expected and found."""
    found = []
    for turn in range(ROUNDS):
        body, status = BODIES[(number + turn) % len(BODIES)]
        with socket.create_connection(("127.0.0.1", port)) as broken_off:  # of a promised body a part is sent
            broken_off.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n\x89PNG")
        found.append((status, post(port, body)[0]))
    return found


@pytest.mark.slow
def test_it_survives_its_clients_and_stops_when_told(server: tuple[subprocess.Popen[str], int, Path]) -> None:
    process, port, log = server
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = [pair for found in pool.map(lambda n: client(port, n), range(CLIENTS)) for pair in found]
    assert len(answers) == CLIENTS * ROUNDS and [pair for pair in answers if pair[0] != pair[1]] == []
    status, answer = post(port, encoded())
    assert status == 200 and answer.keys() == {"label", "confidence", "typicality", "ood"}
    with ThreadPoolExecutor(1) as pool:
        last = pool.submit(post, port, encoded())
        assert last.result()[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    written = log.read_text()
    assert written.count('"POST /predict HTTP/1.1" 200') >= 2 and "Traceback" not in written
    assert len(set(re.findall(r" (\d+) ready$", written, re.MULTILINE))) == 2


def scrape(port: int) -> dict[str, float]:
    """The metrics of the running service, by their names with labels."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


@pytest.mark.slow
def test_it_alarms_when_inputs_change_and_not_before(
    server: tuple[subprocess.Popen[str], int, Path], model: Path, tmp_path: Path
) -> None:
    process, port, log = server
    fresh = sorted(save_images(tmp_path / "fresh", count=100, seed=2).glob("*/*.png"))
    with ThreadPoolExecutor(CLIENTS) as pool:
        assert set(pool.map(lambda path: post(port, path.read_bytes())[0], fresh)) == {200}
    quiet = scrape(port)
    assert quiet["hydractl_inputs_total"] == len(fresh) == 300 and quiet["hydractl_alarm"] == 0
    assert quiet['hydractl_typicality_bucket{le="0.5"}'] == pytest.approx(150, abs=60)
    assert "ALARM" not in log.read_text()
    with ThreadPoolExecutor(CLIENTS) as pool:
        assert set(pool.map(lambda _: post(port, encoded("PNG", white=True))[0], range(100))) == {200}
    loud = scrape(port)
    assert loud["hydractl_inputs_total"] == 400 and loud["hydractl_alarm"] == 1
    assert "ALARM: inputs have changed" in log.read_text()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    states = sorted((tmp_path / "states").glob("*.json"))
    found = hydractl.monitor(model, merge=states).findings
    assert (len(states), found.inputs) == (2, 400) and found.since is not None


def test_a_tagger_answers_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SERVICE)
    monkeypatch.setenv("STATES", str(tmp_path))
    service = pytest.importorskip("service")
    file = tmp_path / "model.safetensors"
    texts = [" ".join(tokens) for tokens in sentences(60)["tokens"]]
    hydractl.calibrate(save_tagger(tmp_path / "tagger"), id_data={"texts": texts}, output=file)
    answer = service.Service(str(file), 0).answer(b"Anna met Lee")
    assert [word["text"] for word in answer["words"]] == ["Anna", "met", "Lee"]


def test_the_guide_shows_the_service_that_is_tested() -> None:
    shown = [block.text for block in blocks("service") if block.file == "service.py"]
    assert shown == [(SERVICE / "service.py").read_text()]
    copied = re.findall(r"^COPY (\S+)", (SERVICE / "Dockerfile").read_text(), re.MULTILINE)
    assert copied and all((SERVICE / name).is_file() for name in copied)
