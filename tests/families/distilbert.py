"""Variants of DistilBERT."""

from __future__ import annotations

from typing import Any

from transformers import DistilBertConfig, DistilBertForSequenceClassification

from hydractl.families.bert import DISTILBERT
from tests import references
from tests.families.bert import WORDS, masked_words, text_model
from tests.families.vit import encoder
from tests.references import SIZES, Architecture, Built


def distilbert(**changes: Any) -> Built:
    sizes = dict(zip(("dim", "n_layers", "n_heads", "hidden_dim"), SIZES.values(), strict=True))
    config = DistilBertConfig(num_labels=references.CLASSES, **WORDS, **sizes, **changes)
    return DistilBertForSequenceClassification(config), text_model(types=False)[1]


ARCHITECTURE = Architecture(
    variants={"distilbert": distilbert, "distilbert-relu": lambda: distilbert(activation="relu")},
    typical=("distilbert",),
    configs=((DISTILBERT.config, DistilBertConfig),),
    inert=frozenset({"sinusoidal_pos_embds", "qa_dropout"}),  # before training; of another task
    bases=(("distilbert", encoder), ("distilbert", masked_words)),
)
