"""Preprocessing as checkpoints carry it, built offline, and model specs to go with it."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from transformers import CLIPImageProcessor, ViTImageProcessor

from hydractl.checkpoint.disk import read_json_object, read_preprocessing
from hydractl.checkpoint.spec import ModelSpec, TaskName
from hydractl.checkpoint.tower_spec import ImageEmbeddings, TextEmbeddings, TowerSpec
from hydractl.data.preprocess import Preprocessor, preprocessor_from_json

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "good", "bad", "very", "##ly", "##est", ",", "."]
SIZES = {"layers": 1, "heads": 1, "head_width": 8, "width": 8, "mlp_width": 8, "activation": "gelu", "norm_eps": 1e-6}


def image_spec(channels: int = 3, task: TaskName = "image-classification") -> ModelSpec:
    embeddings = ImageEmbeddings(channels, (8, 8), (4, 4), patch_bias=True, norm=False)
    return ModelSpec(task, (TowerSpec("vision", embeddings=embeddings, **SIZES),), classes=2)


def text_spec(positions: int = 16, vocabulary: int = len(WORDS)) -> ModelSpec:
    embeddings = TextEmbeddings(vocabulary, positions, token_types=2, norm=True)
    return ModelSpec("text-classification", (TowerSpec("text", embeddings=embeddings, **SIZES),), classes=2)


def zero_shot_spec() -> ModelSpec:
    text = TextEmbeddings(99, 12, token_types=0, norm=False)
    towers = (*image_spec().towers, TowerSpec("text", embeddings=text, **SIZES))
    return ModelSpec("zero-shot", towers, projection=8)


def bert_words(folder: Path) -> Path:
    """Only the word list, as the oldest BERT folders have it."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    (folder / "config.json").write_text('{"model_type": "bert"}')
    return folder


def bert_tokenizer(folder: Path) -> Path:
    """tokenizer.json and tokenizer_config.json."""
    transformers.BertTokenizer(vocab=numbered(*WORDS)).save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    return folder


def clip_files(folder: Path) -> Path:
    """An image processor and a byte-pair tokenizer in its two old files."""
    folder.mkdir(exist_ok=True)
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "ca", "cat</w>", "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({token: at for at, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\nc a\nca t</w>\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "CLIPTokenizer", "model_max_length": 10}')
    (folder / "config.json").write_text('{"model_type": "clip"}')
    CLIPImageProcessor(size={"shortest_edge": 10}, crop_size={"height": 8, "width": 8}).save_pretrained(folder)
    return folder


def vit_files(folder: Path, **changes: object) -> Path:
    """An image processor with odd means and a resize to 8 x 8 pixels."""
    folder.mkdir(exist_ok=True)
    settings = {"size": {"height": 8, "width": 8}, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.25]}
    ViTImageProcessor(**{**settings, **changes}).save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "vit"}')
    return folder


def folder_preprocessor(folder: Path, spec: ModelSpec) -> Preprocessor:
    """Returns the preprocessing of a checkpoint folder."""
    return preprocessor_from_json(
        read_preprocessing(folder), spec, str(folder), read_json_object(folder / "config.json")
    )


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "good", "##ly", "Good", "FILM", "é", "e", ","]
BYTES = [chr(code) for code in range(33, 127)] + ["Ġ", "Ã", "©", "Ċ", "Ġa", "go", "od", "good", "Ġgood"]
MERGES = [("Ġ", "a"), ("g", "o"), ("o", "d"), ("go", "od"), ("Ġ", "good")]
LETTERS = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZé.,", "▁", "▁good", "▁film", "ly"]
MARKS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def numbered(*tokens: str) -> dict[str, int]:
    return {token: at for at, token in enumerate(tokens)}


def scored(*tokens: str) -> list[tuple[str, float]]:
    return [(token, -float(len(token) == 1)) for token in tokens]


def clip_tokenizer(**settings: Any) -> Any:
    tokens = [*"abcdefghijklmnopqrstuvwxyz", *(f"{c}</w>" for c in "abcdefghijklmnopqrstuvwxyz"), "go", "good</w>"]
    merges = [("g", "o"), ("o", "d</w>"), ("go", "od</w>")]
    vocab = numbered(*tokens, "od</w>", "<|startoftext|>", "<|endoftext|>")
    return transformers.CLIPTokenizer(vocab=vocab, merges=merges, **settings)


#: The tokenizers of every family that reads texts.
TOKENIZERS: dict[str, Callable[..., Any]] = {
    "bert": partial(transformers.BertTokenizer, vocab=numbered(*PIECES)),
    "electra": partial(transformers.ElectraTokenizer, vocab=numbered(*PIECES)),
    "distilbert": partial(transformers.DistilBertTokenizer, vocab=numbered(*PIECES)),
    "mpnet": partial(transformers.MPNetTokenizer, vocab=numbered(*MARKS, "[UNK]", *PIECES[5:])),
    "roberta": partial(transformers.RobertaTokenizer, vocab=numbered(*MARKS, *BYTES), merges=MERGES),
    "xlm-roberta": partial(transformers.XLMRobertaTokenizer, vocab=scored(*MARKS[:4], *LETTERS, MARKS[4])),
    "camembert": partial(transformers.CamembertTokenizer, vocab=scored(*MARKS[:4], *LETTERS, MARKS[4])),
    "deberta-v2": partial(
        transformers.DebertaV2Tokenizer, vocab=scored("[PAD]", "[CLS]", "[SEP]", "[UNK]", *LETTERS, "[MASK]")
    ),
    "modernbert": partial(transformers.GPT2Tokenizer, vocab=numbered(*MARKS, *BYTES), merges=MERGES, pad_token="<pad>"),
    "clip": clip_tokenizer,
}


def many_texts(count: int = 200) -> list[str]:
    """Texts of capitals, accents, odd blanks, marks that tokenizers know, and letters that they do not."""
    words = ["Good", "good", "FILM", "filmly", "é", "a,", "[SEP]", "</s>", "<mask>", "\n", "  ", "映画", "goodly."]
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(words, 1 + at % 14)) for at in range(count)]
