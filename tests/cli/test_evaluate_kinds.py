"""Text and zero-shot models go through every option of `hydractl evaluate` that image classifiers do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import CLIPConfig, CLIPModel

from hydractl.model.fast import optimize
from tests.cli.conftest import LABELS, Command, models, save_bert, save_images, save_vit
from tests.data.tokenizers_and_processors import clip_files


@dataclass(frozen=True)
class Case:
    """Two networks of one kind, and data for them."""

    a: Path
    b: Path
    id: Path
    ood: Path
    calibration: Path
    shift: Path

    @property
    def data(self) -> tuple[object, ...]:
        shift = ("--shift-data", f"fog/3={self.shift}")
        return ("--id-data", self.id, "--ood-data", f"far/n={self.ood}", "--calib-data", self.calibration, *shift)


def save_texts(path: Path, texts: list[str]) -> Path:
    rows = [json.dumps({"text": text, "label": LABELS[at % 3]}) for at, text in enumerate(texts)]
    path.write_text("\n".join(rows))
    return path


def texts(folder: Path) -> Case:
    words = ["good", "bad", "film", "owl", "a film", "bad owl", "good a a", "owl owl owl a"]
    sets = [
        save_texts(folder / f"{name}.jsonl", [f"{start} {word}" for word in words])
        for name, start in (("id", "a"), ("ood", "film film"), ("calib", "good"), ("shift", "bad"))
    ]
    return Case(save_bert(folder / "a"), save_bert(folder / "b", seed=1), *sets)


def save_clip(folder: Path, seed: int) -> Path:
    clip_files(folder)
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    text = {**sizes, "vocab_size": 56, "max_position_embeddings": 10, "bos_token_id": 54, "eos_token_id": 55}
    config = CLIPConfig(vision_config={**sizes, "image_size": 8, "patch_size": 4}, text_config=text, projection_dim=8)
    CLIPModel(config).save_pretrained(folder)
    return folder


def zero_shot(folder: Path) -> Case:
    sets = [save_images(folder / name, count=3, seed=seed) for seed, name in enumerate(("id", "ood", "calib", "shift"))]
    return Case(save_clip(folder / "a", 0), save_clip(folder / "b", 1), *sets)


# Of a longer prompt the tiny tokenizer would cut the class name off.
PROMPT = ("--template", "{label}")
CASES = {"text": texts, "zero-shot": zero_shot}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return CASES[request.param](tmp_path)


def test_every_system_and_option(hydractl: Command, case: Case, tmp_path: Path) -> None:
    hydractl("fuse", case.a, case.b, "--separate", "all", "-o", tmp_path / "hydra")
    systems = (case.a, f"DE={case.a}+{case.b}", f"mc={case.a},mc-dropout=2,p=0.2", tmp_path / "hydra")
    fit = ("--temperature", "fit", "--conformal", "aps", "--bootstrap", 10)
    found = models(
        hydractl, *systems, *case.data, *PROMPT, *fit, "--save-logits", tmp_path / "logits", "--batch-size", 4
    )
    for name in ("a", "DE", "mc", "hydra"):
        temperature = found[name]["temperature"]
        assert temperature["nll_after"] < temperature["nll_before"]
        assert found[name]["shift"]["fog"]["3"]["samples"] == found[name]["id"]["samples"]
    assert found["a"]["temperature"]["argmax_changed"] == 0
    for key, value in found["DE"]["id"].items():
        assert found["hydra"]["id"][key] == pytest.approx(value, abs=1e-5), key
    assert found["mc"]["id"]["mutual_information"] > 0
    again = models(hydractl, f"DE=predictions:{tmp_path / 'logits' / 'DE'}", *fit)["DE"]
    for key in ("id", "ood", "shift", "conformal", "intervals"):
        assert again[key] == found["DE"][key]


def test_a_compiled_model_says_the_same(
    hydractl: Command, vit: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another backend than a user's, which would call a C++ compiler for a minute.
    monkeypatch.setattr(optimize, "compile_model", partial(optimize.compile_model, backend="aot_eager"))
    other = save_vit(tmp_path / "other", seed=1)
    arguments = (f"DE={vit}+{other}", f"mc={vit},mc-dropout=2,p=0.2", "--id-data", images, "--batch-size", 5)
    plain, compiled = models(hydractl, *arguments), models(hydractl, *arguments, "--compile")
    for name in ("DE", "mc"):
        assert compiled[name]["cost"] == plain[name]["cost"]
        for key, value in plain[name]["id"].items():
            assert compiled[name]["id"][key] == pytest.approx(value, abs=1e-6), key
