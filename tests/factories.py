"""Tiny networks of every task, random inputs for them, and labels of which a network knows half."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
import transformers as hf
from PIL import Image

import hydractl
from hydractl.checkpoint.spec import SIGMOID
from tests.cli.conftest import LABELS, SIZES, WORDS, named, save_bert, save_tokenizer, save_vit

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "anna", "ber", "##lin", "par", "##is", "lee", "met", "in", ".")
#: What the config of a network says of its task.
SEVERAL_LABELS = {"problem_type": "multi_label_classification"}
ONE_NUMBER = named("LABEL_0")
REGRESSION = {**ONE_NUMBER, "problem_type": "regression"}
CROSS_ENCODER = {**ONE_NUMBER, "sentence_transformers": {"activation_fn": SIGMOID, "version": "5.0"}}


def sentences(count: int, seed: int = 0) -> datasets.Dataset:
    """Rows with `tokens` and `tags` as names, the spans of people and places by a rule, no two alike."""
    draw = random.Random(seed)
    rows: dict[tuple[str, ...], list[str]] = {}
    while len(rows) < count:
        first, last = draw.choice(["Anna", "Paris"]), draw.choice([["Lee"], []])
        between = draw.choices(["met", "in", "."], k=draw.randint(1, 6))
        words = (first, *last, *between, "Anna", "in", draw.choice(["Berlin", "Paris"]), ".")
        rows[words] = ["B-PER", *["I-PER"] * len(last), *["O"] * len(between), "B-PER", "O", "B-LOC", "O"]
    return datasets.Dataset.from_dict({"tokens": list(map(list, rows)), "tags": list(rows.values())})


def save_tagger(folder: Path, seed: int = 0, model: type = hf.BertForTokenClassification) -> Path:
    """Saves a BERT of few words with random weights that labels them."""
    torch.manual_seed(seed)
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.1}
    sizes = {**SIZES, "hidden_size": 32, "vocab_size": len(PIECES), "max_position_embeddings": 16}
    model(hf.BertConfig(**sizes, **named(*TAGS), **off)).save_pretrained(folder)
    return save_tokenizer(folder, PIECES, model_max_length=16)


def save_encoder(folder: Path) -> Path:
    """Saves a random BERT of sentence-transformers: it embeds texts of at most 5 tokens by their mean, at length 1."""
    torch.manual_seed(0)
    sizes = {**SIZES, "num_hidden_layers": 3, "vocab_size": len(WORDS), "max_position_embeddings": 24}
    hf.BertModel(hf.BertConfig(initializer_range=0.5, **sizes)).save_pretrained(folder)
    save_tokenizer(folder, WORDS)
    write_modules(folder, {"pooling_mode_mean_tokens": True}, "Normalize")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 5}')
    return folder


def write_modules(folder: Path, pooling: dict[str, Any], *ends: str) -> None:
    """Says how a network pools, and what comes behind that."""
    kinds = {"Transformer": "", "Pooling": "1_Pooling", **{end: f"2_{end}" for end in ends}}
    listed = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def save_texts(file: Path, count: int = 120) -> Path:
    """Writes texts of one to six words."""
    rows = [" ".join(np.random.default_rng(n).choice(WORDS[5:], 1 + n % 6)) for n in range(count)]
    file.write_text("\n".join(["text", *rows]) + "\n")
    return file


def pixels(draw: np.random.Generator, count: int) -> list[np.ndarray[Any, Any]]:
    """Random 8x8 colour images."""
    return [draw.integers(0, 256, (8, 8, 3), dtype=np.uint8) for _ in range(count)]


def images(draw: np.random.Generator, count: int) -> datasets.Dataset:
    features = datasets.Features({"image": datasets.Image()})
    return datasets.Dataset.from_dict({"image": pixels(draw, count)}, features=features)


def texts(draw: np.random.Generator, count: int) -> datasets.Dataset:
    """Texts of one to nine words, no two alike."""
    rows: dict[str, None] = {}
    while len(rows) < count:
        rows[" ".join(draw.choice(WORDS[5:], draw.integers(1, 10)))] = None
    return datasets.Dataset.from_dict({"text": list(rows)})


def odd_inputs(modality: str, count: int) -> list[Any]:
    """Grey images, or texts of words that no network knows."""
    if modality == "image":
        return [Image.new("RGB", (8, 8), (at % 256,) * 3) for at in range(count)]
    return [" ".join(["yak"] * (1 + at % 9)) for at in range(count)]


@dataclass(frozen=True)
class Kind:
    """A task: how a network of it is saved, its inputs, the column of labels, random ones, and those of predictions."""

    name: str
    save: Callable[[Path], Path]
    inputs: Callable[[np.random.Generator, int], datasets.Dataset]
    column: str = ""
    labels: Callable[[np.random.Generator, datasets.Dataset], list[Any]] | None = None
    answered: Callable[[Any], list[Any]] | None = None

    @property
    def reading(self) -> dict[str, str]:
        """The option that names the column of labels, where data sets call it otherwise."""
        return {} if self.column in ("", "label", "tags") else {"label_column": self.column}

    def labelled(self, network: Path, draw: np.random.Generator, count: int) -> datasets.Dataset:
        """Inputs with random labels, every second of which is what the network answers."""
        table = self.inputs(draw, count)
        if self.labels is None:
            return table
        labels = self.labels(draw, table)
        if self.answered is not None:
            labels[::2] = self.answered(hydractl.predict(network, data=table))[::2]
        return table.add_column(self.column, labels)


def some_labels(draw: np.random.Generator, table: datasets.Dataset, names: tuple[str, ...] = LABELS) -> list[list[str]]:
    """Any of the labels for each row."""
    return [[names[at] for at in np.flatnonzero(row)] for row in draw.integers(0, 2, (len(table), len(names)))]


CLASSES = Kind(
    "classes",
    lambda folder: save_vit(folder, initializer_range=0.3),
    images,
    "label",
    lambda draw, table: draw.choice(LABELS, len(table)).tolist(),
    lambda answers: list(answers.labels),
)
SEVERAL = Kind(
    "several",
    lambda folder: save_vit(folder, initializer_range=0.3, **SEVERAL_LABELS),
    images,
    "kinds",
    some_labels,
    lambda answers: list(map(list, answers.labels)),
)
NUMBERS = Kind(
    "numbers",
    lambda folder: save_bert(folder, initializer_range=0.3, **REGRESSION),
    texts,
    "score",
    lambda draw, table: draw.normal(size=len(table)).tolist(),
)
TAGGED = Kind(
    "words",
    save_tagger,
    lambda draw, count: sentences(count, int(draw.integers(99))).remove_columns("tags"),
    "tags",
    lambda draw, table: [draw.choice(TAGS, len(row)).tolist() for row in table["tokens"]],
    lambda answers: [[word.label for word in row] for row in answers.words],
)
EMBEDDINGS = Kind("embeddings", save_encoder, texts)
KINDS = (CLASSES, SEVERAL, NUMBERS, TAGGED, EMBEDDINGS)
