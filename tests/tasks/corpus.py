"""Sentences by a rule, with the spans of people and places, and a BERT of few words that labels their words."""

import random
from pathlib import Path

import datasets
import torch
from transformers import BertConfig, BertForTokenClassification, BertTokenizer

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "anna", "ber", "##lin", "par", "##is", "lee", "met", "in", ".")


def sentences(count: int, seed: int = 0) -> datasets.Dataset:
    """Rows with `tokens` and `tags` as names, no two alike."""
    draw = random.Random(seed)
    rows: dict[tuple[str, ...], list[str]] = {}
    while len(rows) < count:
        first, last = draw.choice(["Anna", "Paris"]), draw.choice([["Lee"], []])
        between = draw.choices(["met", "in", "."], k=draw.randint(1, 6))
        words = (first, *last, *between, "Anna", "in", draw.choice(["Berlin", "Paris"]), ".")
        rows[words] = ["B-PER", *["I-PER"] * len(last), *["O"] * len(between), "B-PER", "O", "B-LOC", "O"]
    return datasets.Dataset.from_dict({"tokens": list(map(list, rows)), "tags": list(rows.values())})


def save_tagger(folder: Path, seed: int = 0, model: type = BertForTokenClassification) -> Path:
    """Saves a BERT with random weights."""
    torch.manual_seed(seed)
    names = {"id2label": dict(enumerate(LABELS)), "label2id": {name: at for at, name in enumerate(LABELS)}}
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.1}
    config = BertConfig(vocab_size=len(PIECES), max_position_embeddings=16, **sizes, **names, **off)
    model(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(PIECES))
    BertTokenizer(str(folder / "vocab.txt"), model_max_length=16).save_pretrained(folder)
    return folder
