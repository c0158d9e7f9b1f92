"""Variants of BERT."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForPreTraining,
    BertForSequenceClassification,
    PreTrainedModel,
)

from hydractl.families.bert import BERT
from tests import references
from tests.families.vit import encoder
from tests.references import BATCH, SIZES, Architecture, Built

WORDS = {"vocab_size": 60, "max_position_embeddings": 32}


def text_model(
    model: Any = BertForSequenceClassification,
    config: Any = BertConfig,
    padded: bool = True,
    types: bool = True,
    **changes: Any,
) -> Built:
    """A classifier of texts and a batch of them."""
    inputs = {"input_ids": torch.randint(1, WORDS["vocab_size"], (BATCH, 9))}
    if padded:
        mask = torch.ones(BATCH, 9, dtype=torch.long)
        mask[1, 4:] = 0
        mask[2, 7:] = 0
        inputs["attention_mask"] = mask
    if types:
        inputs["token_type_ids"] = torch.randint(0, 2, (BATCH, 9))
    return model(config(**{**WORDS, **SIZES, "num_labels": references.CLASSES, **changes})), inputs


def masked_words(classifier: PreTrainedModel) -> PreTrainedModel:
    """The network that predicts masked words."""
    return AutoModelForMaskedLM.from_config(classifier.config)


def pre_trained(classifier: PreTrainedModel) -> PreTrainedModel:
    """The network that predicts masked words and the next sentence."""
    return BertForPreTraining(classifier.config)


ARCHITECTURE = Architecture(
    variants={
        "bert": text_model,
        "bert-unpadded": lambda: text_model(padded=False, types=False),
        "bert-relu-one-type": lambda: text_model(types=False, hidden_act="relu", type_vocab_size=1),
    },
    typical=("bert",),
    configs=((BERT.config, BertConfig),),
    bases=(("bert", encoder), ("bert", masked_words), ("bert", pre_trained)),
)
