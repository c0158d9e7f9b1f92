"""A small network of sentence-transformers, and texts for it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as hf

from tests.cli.conftest import WORDS


def save_encoder(folder: Path) -> Path:
    """A random BERT that embeds texts of at most 5 tokens by their mean, at unit length."""
    torch.manual_seed(0)
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 24}
    config = hf.BertConfig(vocab_size=len(WORDS), max_position_embeddings=24, initializer_range=0.5, **sizes)
    hf.BertModel(config).save_pretrained(folder)
    hf.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
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
    """Texts of one to six words."""
    rows = [" ".join(np.random.default_rng(n).choice(WORDS[5:], 1 + n % 6)) for n in range(count)]
    file.write_text("\n".join(["text", *rows]) + "\n")
    return file
