"""RoBERTa for sequence classification, as transformers writes it, and XLM-RoBERTa, the same with more words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hydractl.checkpoint.spec import ModelSpec
from hydractl.errors import CheckpointError
from hydractl.families import bert
from hydractl.families.family import Base, Family

DEFAULTS = bert.DEFAULTS | {"vocab_size": 50265, "pad_token_id": 1}


def read_spec(config: Mapping[str, Any]) -> ModelSpec:
    """The network a RoBERTa config.json describes: a BERT whose positions are counted from the padding id."""
    padding = config["pad_token_id"]
    if not isinstance(padding, int) or padding < 0:
        raise CheckpointError(f"config.json: pad_token_id is {padding!r}, but positions are counted from it")
    return replace(bert.read_spec(config), towers=(bert.tower(config, padding),))


ENDS = {"text.pooler": "classifier.dense", "classifier": "classifier.out_proj"}

FAMILY = Family(
    name="roberta",
    title="RoBERTa",
    model_type="roberta",
    architectures=("RobertaForSequenceClassification",),
    read_spec=read_spec,
    spellings=(bert.spelling("roberta", ENDS),),
    defaults=DEFAULTS,
    demanded=bert.FAMILY.demanded,
    # Its base class has a pooler of its own; a classifier has a dense layer in that place, always untrained at first.
    base=Base("roberta."),
    inert=(r"roberta\.embeddings\.(position|token_type)_ids", r"roberta\.pooler\.dense\..*", r"lm_head\..*"),
    legacy=bert.FAMILY.legacy,
    task="text-classification",
)
XLM = replace(
    FAMILY,
    name="xlm-roberta",
    title="XLM-RoBERTa",
    model_type="xlm-roberta",
    architectures=("XLMRobertaForSequenceClassification",),
    defaults=DEFAULTS | {"vocab_size": 30522},
)
