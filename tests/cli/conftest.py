"""The command line in this process, and small things on disk to point it at."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image

from hydractl.cli.main import run
from hydractl.cli.signals import Signals
from tests.data.tokenizers_and_processors import clip_files

LABELS = ("cat", "dog", "owl")
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
HYDRACTL = [sys.executable, "-m", "hydractl"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "hydractl"]
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", "owl")


def named(*labels: str) -> dict[str, Any]:
    """What a config says of the names of its classes."""
    return {"id2label": dict(enumerate(labels)), "label2id": {label: at for at, label in enumerate(labels)}}


NAMED = named(*LABELS)


@dataclass(frozen=True)
class Result:
    """What a command left behind: its exit code and both streams."""

    code: int
    out: str
    err: str


Command = Callable[..., Result]


@pytest.fixture
def hydractl(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Runs `hydractl` with these arguments, and bytes for its standard input; a test that fails shows what it said.

    Where an exit code is given, it must be that one.
    """
    monkeypatch.setattr(Signals, "handle", lambda self: None)  # those of this process are pytest's
    monkeypatch.setattr("hydractl.steps.predict.READERS", 0)  # no forks beside the threads of pytest-xdist

    def command(*arguments: object, stdin: bytes = b"", code: int | None = None) -> Result:
        monkeypatch.setattr(sys, "argv", ["hydractl", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(stdin)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            run()
        streams = capsys.readouterr()
        result = Result(int(exit_.value.code or 0), streams.out, streams.err)
        said = f"$ hydractl {' '.join(map(str, arguments))}\n[exit {result.code}]\n{result.err}"
        # Halves of characters cannot be sent from a worker to whoever shows the report.
        request.node.add_report_section("call", "hydractl", said.encode(errors="backslashreplace").decode())
        assert code is None or result.code == code, result.err
        return result

    return command


def save_vit(folder: Path, seed: int = 0, **changes: object) -> Path:
    """A random ViT of 2 layers x 4 heads on 8x8 colour images, as transformers saves it."""
    torch.manual_seed(seed)
    config = hf.ViTConfig(**{"image_size": 8, "patch_size": 4, **SIZES, **NAMED, **changes})
    hf.ViTForImageClassification(config).save_pretrained(folder)
    hf.ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(folder)
    return folder


def save_bert(folder: Path, seed: int = 0, **changes: object) -> Path:
    """A random BERT with a vocabulary of a few words."""
    torch.manual_seed(seed)
    config = hf.BertConfig(vocab_size=len(WORDS), max_position_embeddings=16, **{**SIZES, **NAMED, **changes})
    hf.BertForSequenceClassification(config).save_pretrained(folder)
    return save_tokenizer(folder, WORDS, model_max_length=16)


def save_tokenizer(folder: Path, words: Sequence[str], **settings: int) -> Path:
    """A tokenizer of these words and pieces."""
    (folder / "vocab.txt").write_text("\n".join(words))
    hf.BertTokenizer(str(folder / "vocab.txt"), **settings).save_pretrained(folder)
    return folder


def save_clip(folder: Path, seed: int = 0) -> Path:
    """A random CLIP. A longer prompt than `{label}` loses its class name to the tiny tokenizer."""
    clip_files(folder)
    torch.manual_seed(seed)
    text = {**SIZES, "vocab_size": 56, "max_position_embeddings": 10, "bos_token_id": 54, "eos_token_id": 55}
    vision = {**SIZES, "image_size": 8, "patch_size": 4}
    config = hf.CLIPConfig(vision_config=vision, text_config=text, projection_dim=8)
    hf.CLIPModel(config).save_pretrained(folder)
    return folder


def circuit(*heads: tuple[int, int], **changes: Any) -> dict[str, Any]:
    """A circuit that ranks these (layer, head) of the vision tower."""
    steps = [{"tower": "vision", "layer": layer, "head": head} for layer, head in heads]
    return {"format": "hydractl-circuit", "version": 1, "steps": steps, **changes}


def save_circuit(path: str | Path, *heads: tuple[int, int], **changes: Any) -> str:
    """Writes such a circuit, and returns its path."""
    Path(path).write_text(json.dumps(circuit(*heads, **changes)))
    return str(path)


def contents(folder: Path) -> dict[str, bytes]:
    """The files in a folder and below, by their paths in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def save_images(folder: Path, count: int = 4, seed: int = 0) -> Path:
    """An image folder with `count` random 8x8 images of each label."""
    generator = np.random.default_rng(seed)
    for label in LABELS:
        (folder / label).mkdir(parents=True)
        for i in range(count):
            pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{i}.png")
    return folder


def save_digits(folder: Path) -> None:
    """What the digits example leaves in its folder, in small: a network, labelled sets, and OOD data without labels."""
    save_vit(folder / "vit", num_hidden_layers=4)
    for seed, (name, count) in enumerate({"train": 1, "test": 2, "validation": 4}.items()):
        save_images(folder / "data" / "digits" / name, count, seed)
    for seed, name in enumerate(("near_search", "far_search", "near_test", "far_test"), 3):
        (folder / "data" / name).mkdir()
        for number, file in enumerate(sorted(save_images(folder / "pixels" / name, 2, seed).glob("*/*.png"))):
            file.rename(folder / "data" / name / f"{number:04}.png")


def half_known(model: Any, folder: Path) -> Path:
    """Moves every second image of a folder into the class that a network answers with, so that it knows something."""
    import hydractl as library

    answers = library.predict(model, folder)
    for name, label in list(zip(answers.inputs, answers.labels, strict=True))[::2]:
        path = Path(name).absolute()
        path.rename(folder / label / f"{path.parent.name}-{path.name}")
    return folder


def save_answers(model: Path, file: Path, wrong: slice) -> Path:
    """Writes 27 texts as CSV with the answers of a network; those of a slice are the next label instead."""
    import hydractl as library

    texts = [" ".join(words) for words in product(("good", "bad", "owl"), repeat=3)]
    labels = list(library.predict(model, {"texts": texts}).labels)
    labels[wrong] = [LABELS[(LABELS.index(label) + 1) % len(LABELS)] for label in labels[wrong]]
    file.write_text("\n".join(map(",".join, [("text", "label"), *zip(texts, labels, strict=True)])))
    return file


def interrupt_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, number: int) -> list[tuple[Any, ...]]:
    """Interrupts a function at its call of that number; returns the arguments of every call, as they come."""
    function, calls = getattr(owner, name), list[tuple[Any, ...]]()

    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) == number:
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)
    return calls


@pytest.fixture(scope="session")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vit(tmp_path_factory.mktemp("models") / "vit")


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bert(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_images(tmp_path_factory.mktemp("data") / "pets")


@pytest.fixture(scope="session")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """OOD images: a flat folder, no labels."""
    folder = tmp_path_factory.mktemp("data") / "noise"
    folder.mkdir()
    for i in range(5):
        Image.fromarray(np.full((8, 8, 3), 50 * i, dtype=np.uint8)).save(folder / f"{i}.png")
    return folder


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ViT with other weights."""
    return save_vit(tmp_path_factory.mktemp("models") / "other", seed=1)


@pytest.fixture(scope="session")
def held_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six other images of each label."""
    return save_images(tmp_path_factory.mktemp("data") / "held-out", count=6, seed=5)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def place(here: Path, vit: Path, other: Path, bert: Path, images: Path, noise: Path, held_out: Path) -> Path:
    """A current folder with the networks `vit`, `other` and `bert` and the data `pets`, `noise` and `held-out`."""
    links = {"vit": vit, "other": other, "bert": bert, "pets": images, "noise": noise, "held-out": held_out}
    for name, target in links.items():
        (here / name).symlink_to(target)
    return here


@pytest.fixture(scope="session")
def slow_search(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A search long enough to be interrupted."""
    folder = tmp_path_factory.mktemp("slow")
    model = save_vit(folder / "vit", num_hidden_layers=4, hidden_size=64, intermediate_size=256)
    data, noise = save_images(folder / "id", 16), save_images(folder / "ood", 16, seed=1)
    options = ["--objective=acc,avg", "--budget=6", "--batch-size=8", "-o", "{objective}.json"]
    return ["extract-circuit", str(model), f"--id-data={data}", f"--ood-data={noise}", *options]


@pytest.fixture(scope="session")
def uninterrupted(slow_search: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What that search writes."""
    folder = tmp_path_factory.mktemp("whole")
    subprocess.run([*HYDRACTL, *slow_search], cwd=folder, check=True, capture_output=True)
    return contents(folder)


def models(hydractl: Command, *arguments: object) -> dict[str, Any]:
    """Evaluates, and returns the numbers of each system."""
    result = hydractl("evaluate", *arguments, "--json", "-")
    # Networks of random numbers are no better than chance, which is said in any case.
    alarms = (" is at its bound, since ", " is below chance, ")
    said = [line for line in result.err.splitlines() if not any(alarm in line for alarm in alarms)]
    assert (result.code, said) == (0, [])
    content: dict[str, Any] = json.loads(result.out)["models"]
    return content


def numbers(entry: dict[str, Any]) -> dict[str, Any]:
    """Returns the numbers of a system that its samples and predictions determine."""
    return {key: entry[key] for key in ("id", "ood", "ood_means", "selective")}
