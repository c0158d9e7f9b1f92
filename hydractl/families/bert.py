"""BERT for sequence classification, as transformers writes it (`BertForSequenceClassification`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hydractl.checkpoint.spec import ModelSpec, TextEmbeddings, TowerSpec
from hydractl.families import config as read
from hydractl.families.family import Base, Family

DEFAULTS = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "classifier_dropout": None,
}


def read_spec(config: Mapping[str, Any]) -> ModelSpec:
    """The network a BERT config.json describes."""
    dropout = "hidden_dropout_prob" if config["classifier_dropout"] is None else "classifier_dropout"
    return ModelSpec(
        "text-classification",
        (tower(config),),
        classes=len(read.labels(config)),
        classifier_dropout=read.rate(config, dropout),
    )


def tower(config: Mapping[str, Any], padding: int | None = None) -> TowerSpec:
    """The text tower of a BERT, or of a RoBERTa, which counts positions from its padding id."""
    embeddings = TextEmbeddings(
        vocabulary=read.integer(config, "vocab_size"),
        positions=read.integer(config, "max_position_embeddings"),
        token_types=read.integer(config, "type_vocab_size"),
        norm=True,
        padding=padding,
    )
    return replace(read.encoder(config, "text", embeddings), pre_norm=False, final_norm=False, pooler="tanh")


def spelling(model: str, ends: Mapping[str, str]) -> dict[str, str]:
    """What transformers calls the tensors of the encoder `model`; `ends` adds what follows its last layer."""
    ours, theirs = "text.layers.{i}.", f"{model}.encoder.layer.{{i}}."
    return {
        "text.embeddings.word": f"{model}.embeddings.word_embeddings.weight",
        "text.embeddings.position": f"{model}.embeddings.position_embeddings.weight",
        "text.embeddings.token_type": f"{model}.embeddings.token_type_embeddings.weight",
        "text.embeddings.norm": f"{model}.embeddings.LayerNorm",
        ours + "attention.q": theirs + "attention.self.query",
        ours + "attention.k": theirs + "attention.self.key",
        ours + "attention.v": theirs + "attention.self.value",
        ours + "attention.o": theirs + "attention.output.dense",
        ours + "attention_norm": theirs + "attention.output.LayerNorm",
        ours + "mlp.fc1": theirs + "intermediate.dense",
        ours + "mlp.fc2": theirs + "output.dense",
        ours + "mlp_norm": theirs + "output.LayerNorm",
        **ends,
    }


FAMILY = Family(
    name="bert",
    title="BERT",
    model_type="bert",
    architectures=("BertForSequenceClassification",),
    read_spec=read_spec,
    spellings=(spelling("bert", {"text.pooler": "bert.pooler.dense", "classifier": "classifier"}),),
    defaults=DEFAULTS,
    demanded={"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"},
    base=Base("bert.", surplus=(r"cls\..*",)),
    inert=(r"bert\.embeddings\.(position|token_type)_ids", r"cls\..*"),
    legacy={".gamma": ".weight", ".beta": ".bias"},
    task="text-classification",
)
