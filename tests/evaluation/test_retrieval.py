"""Retrieval on pairs, against transformers' own embeddings and a plain ranking."""

import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModel, AutoProcessor

import hydractl
from hydractl.errors import DataError, OptionError
from hydractl.metrics.neighbours import kept_neighbours, partner_ranks
from tests.cli.conftest import save_clip, save_vit
from tests.tasks.encoders import save_encoder

CAPTIONS = ["a cat", "a dog", "an owl", "cats", "dogs", "owl dog", "cat owl", "dog cat owl"]


def save_pairs(file: Path) -> Path:
    """Images drawn at random, and captions."""
    pixels = np.random.default_rng(0).integers(0, 256, (len(CAPTIONS), 8, 8, 3), dtype=np.uint8)
    rows: dict[str, Any] = {"image": list(map(Image.fromarray, pixels)), "text": CAPTIONS}
    datasets.Dataset.from_dict(rows).to_parquet(file)
    return file


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    save_clip(folder / "clip")
    save_pairs(folder / "pairs.parquet")
    (folder / "texts.csv").write_text("first,second\na cat,a cat\na dog,a dog\nowl,owl\n")
    return folder


def theirs(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """The embeddings of images and of captions by transformers."""
    model, processor = AutoModel.from_pretrained(folder / "clip"), AutoProcessor.from_pretrained(folder / "clip")
    pairs = datasets.load_dataset("parquet", data_files=str(folder / "pairs.parquet"), split="train")
    with torch.no_grad():
        found = model(**processor(images=pairs["image"][:], text=CAPTIONS, return_tensors="pt", padding=True))
    return found.image_embeds, found.text_embeds


def test_equals_a_plain_ranking_of_transformers_embeddings(here: Path) -> None:
    images, texts = theirs(here)
    similar = images @ texts.T
    found = hydractl.evaluate(here / "clip", pairs=here / "pairs.parquet")
    forward, backward = found.recalls
    assert (forward.direction, backward.direction) == ("image to text", "text to image")
    assert forward.ranks.tolist() == (similar >= similar.diag()[:, None]).sum(1).tolist()
    assert backward.ranks.tolist() == (similar.diag()[:, None] <= similar.T).sum(1).tolist()
    assert forward.at(5) == pytest.approx((forward.ranks <= 5).mean()) and forward.at(10) == 1


def test_members_count_by_their_mean_cosine(here: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        hydractl.prune(here / "clip", method="random", budget=6, seed=seed, output=tmp_path / f"m{seed}")
    hydra = hydractl.fuse([tmp_path / "m0", tmp_path / "m1"], separate="all")
    pairs = here / "pairs.parquet"
    systems = {"first": tmp_path / "m0", "hydra": hydra, "deep": [tmp_path / "m0", tmp_path / "m1"]}
    found = hydractl.evaluate(systems, pairs=pairs, json=tmp_path / "found.json")
    first, hydra_recall, deep = found.recalls[::2]
    assert hydra_recall.ranks.tolist() == deep.ranks.tolist()
    assert not first.differences and deep.differences[1].value == pytest.approx(deep.at(1) - first.at(1))
    low, high = deep.differences[5].interval
    assert low <= deep.differences[5].value <= high
    written = json.loads((tmp_path / "found.json").read_text())
    assert written["recalls"][4]["recall"]["1"] == deep.at(1)
    assert "recall at 10 %" in next(found.lines())
    assert not hydractl.evaluate(systems, pairs=pairs, bootstrap=0).recalls[2].differences


def test_texts_find_texts(here: Path, tmp_path: Path) -> None:
    clip = AutoModel.from_pretrained(here / "clip")
    clip.text_model.save_pretrained(tmp_path / "text")
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "special_tokens_map.json"):
        if (here / "clip" / file).is_file():
            (tmp_path / "text" / file).write_bytes((here / "clip" / file).read_bytes())
    found = hydractl.evaluate(tmp_path / "text", pairs=here / "texts.csv", text_column="first,second")
    assert [one.at(1) for one in found.recalls] == [1.0, 1.0]
    assert found.recalls[0].direction == "first to second"
    with pytest.raises(DataError, match="no pairs of texts"):
        hydractl.evaluate(tmp_path / "text", pairs=here / "texts.csv", text_column="first")


def test_refuses_what_has_no_pairs(here: Path, tmp_path: Path) -> None:
    pairs = here / "pairs.parquet"
    with pytest.raises(OptionError, match="vit embeds no pairs"):
        hydractl.evaluate(save_vit(tmp_path / "vit"), pairs=here / "texts.csv", text_column="first,second")
    encoder = save_encoder(tmp_path / "encoder")
    for systems in ([encoder, here / "clip"], [here / "clip", encoder]):
        with pytest.raises(OptionError, match="reads pairs of another kind than"):
            hydractl.evaluate(systems, pairs=here / "texts.csv", text_column="first,second")
    with pytest.raises(OptionError, match="`temperature` has no effect with `pairs`"):
        hydractl.evaluate(here / "clip", pairs=pairs, temperature=2.0)
    with pytest.raises(OptionError, match="is no network or Hydra"):
        hydractl.evaluate(f"{here / 'clip'},mc-dropout=2,p=0.1", pairs=pairs)


def test_one_sample_has_no_neighbours() -> None:
    with pytest.raises(DataError, match="one sample has no neighbours"):
        kept_neighbours(np.ones((1, 2)), np.ones((1, 2)))


def test_kept_neighbours_over_blocks_equal_a_full_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hydractl.metrics.neighbours.BLOCK", 7)
    draw = np.random.default_rng(0)
    one, other = draw.normal(size=(2, 30, 4))

    def nearest(points: np.ndarray[Any, Any], at: int) -> set[int]:
        units = points / np.linalg.norm(points, axis=1, keepdims=True)
        order = [place for place in np.argsort(-(units @ units[at])) if place != at]
        return set(order[:10])

    wanted = [len(nearest(one, at) & nearest(other, at)) / 10 for at in range(30)]
    assert kept_neighbours(one, other).tolist() == wanted
    assert partner_ranks(one, one).tolist() == [1] * 30
