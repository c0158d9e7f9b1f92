"""RoBERTa for sequence classification, as transformers writes it, and XLM-RoBERTa, the same with more words."""

from __future__ import annotations

from dataclasses import replace

from hydractl.families import bert
from hydractl.families import config as read
from hydractl.families.family import Base, Family


class Config(bert.Config):
    """The fields of a RoBERTa's config.json."""

    vocab_size: read.Vocabulary = 50265
    pad_token_id: read.Padding = 1

    @property
    def padding(self) -> int:
        return self.pad_token_id


class XlmConfig(Config):
    """The fields of an XLM-RoBERTa's config.json."""

    vocab_size: read.Vocabulary = 30522


ENDS = {"text.pooler": "classifier.dense", "classifier": "classifier.out_proj"}

FAMILY = Family(
    name="roberta",
    title="RoBERTa",
    model_type="roberta",
    architectures=("RobertaForSequenceClassification",),
    config=Config,
    spellings=(bert.spelling("roberta", ENDS),),
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
    config=XlmConfig,
)
