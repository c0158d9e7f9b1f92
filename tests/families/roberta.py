"""Variants of RoBERTa and XLM-RoBERTa."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    RobertaConfig,
    RobertaForSequenceClassification,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

from hydractl.families.bert import ROBERTA, XLM_ROBERTA
from tests.families.bert import masked_words, text_model
from tests.families.vit import encoder
from tests.references import Architecture, Built


def roberta(
    model: Any = RobertaForSequenceClassification, config: Any = RobertaConfig, padding: int = 1, **changes: Any
) -> Built:
    built, inputs = text_model(model, config, pad_token_id=padding, **{"type_vocab_size": 1, **changes})
    inputs["input_ids"] = torch.where(inputs["attention_mask"] == 0, padding, inputs["input_ids"].clamp(min=3))
    # The padding id counts as padding for positions wherever it stands.
    inputs["input_ids"][0, 3] = padding
    return built, {name: tensor for name, tensor in inputs.items() if name != "token_type_ids"}


ARCHITECTURE = Architecture(
    variants={
        "roberta": roberta,
        "roberta-padding-0": lambda: roberta(padding=0, type_vocab_size=2),
        "xlm-roberta": lambda: roberta(XLMRobertaForSequenceClassification, XLMRobertaConfig),
    },
    typical=("roberta", "xlm-roberta"),
    configs=((ROBERTA.config, RobertaConfig), (XLM_ROBERTA.config, XLMRobertaConfig)),
    bases=(
        ("roberta", encoder),
        ("roberta", masked_words),
        ("xlm-roberta", encoder),
        ("xlm-roberta", masked_words),
    ),
)
