"""DistilBERT for sequence classification, as transformers writes it (`DistilBertForSequenceClassification`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydractl.checkpoint.spec import ModelSpec, TextEmbeddings, TowerSpec
from hydractl.families import config as read
from hydractl.families.family import Base, Family

DEFAULTS = {
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "n_layers": 6,
    "n_heads": 12,
    "dim": 768,
    "hidden_dim": 3072,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "activation": "gelu",
    "seq_classif_dropout": 0.2,
}


def read_spec(config: Mapping[str, Any]) -> ModelSpec:
    """The network a DistilBERT config.json describes: a BERT without sentence types, its pooler with a ReLU."""
    width, heads = read.integer(config, "dim"), read.integer(config, "n_heads")
    tower = TowerSpec(
        name="text",
        layers=read.integer(config, "n_layers"),
        heads=heads,
        head_width=read.head_width(config, width, heads),
        width=width,
        mlp_width=read.integer(config, "hidden_dim"),
        activation=read.activation(config, "activation"),
        norm_eps=1e-12,  # not a field of this config
        embeddings=TextEmbeddings(
            vocabulary=read.integer(config, "vocab_size"),
            positions=read.integer(config, "max_position_embeddings"),
            token_types=0,
            norm=True,
        ),
        pre_norm=False,
        final_norm=False,
        pooler="relu",
        dropout=read.rate(config, "dropout"),
        attention_dropout=read.rate(config, "attention_dropout"),
    )
    return ModelSpec(
        "text-classification",
        (tower,),
        classes=len(read.labels(config)),
        classifier_dropout=read.rate(config, "seq_classif_dropout"),
    )


LAYER = "distilbert.transformer.layer.{i}."

FAMILY = Family(
    name="distilbert",
    title="DistilBERT",
    model_type="distilbert",
    architectures=("DistilBertForSequenceClassification",),
    read_spec=read_spec,
    spellings=(
        {
            "text.embeddings.word": "distilbert.embeddings.word_embeddings.weight",
            "text.embeddings.position": "distilbert.embeddings.position_embeddings.weight",
            "text.embeddings.norm": "distilbert.embeddings.LayerNorm",
            "text.layers.{i}.attention.q": LAYER + "attention.q_lin",
            "text.layers.{i}.attention.k": LAYER + "attention.k_lin",
            "text.layers.{i}.attention.v": LAYER + "attention.v_lin",
            "text.layers.{i}.attention.o": LAYER + "attention.out_lin",
            "text.layers.{i}.attention_norm": LAYER + "sa_layer_norm",
            "text.layers.{i}.mlp.fc1": LAYER + "ffn.lin1",
            "text.layers.{i}.mlp.fc2": LAYER + "ffn.lin2",
            "text.layers.{i}.mlp_norm": LAYER + "output_layer_norm",
            "text.pooler": "pre_classifier",
            "classifier": "classifier",
        },
    ),
    defaults=DEFAULTS,
    base=Base("distilbert."),
    inert=(r"distilbert\.embeddings\.position_ids", r"vocab_.*"),
    task="text-classification",
)
