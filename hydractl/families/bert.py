"""BERT for sequence classification, as transformers writes it (`BertForSequenceClassification`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from hydractl.checkpoint.spec import ModelSpec, TextEmbeddings
from hydractl.families import config as read
from hydractl.families.family import Base, Family, layer_names


class Config(read.Encoder, read.Labelled):
    """The fields of a BERT's config.json."""

    vocab_size: read.Vocabulary = 30522
    max_position_embeddings: read.Positions = 512
    type_vocab_size: read.TokenTypes = 2
    intermediate_size: read.MlpWidth = 3072
    hidden_dropout_prob: read.Rate = 0.1
    attention_probs_dropout_prob: read.Rate = 0.1
    classifier_dropout: read.Rate = None
    is_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False
    position_embedding_type: Literal["absolute"] = "absolute"

    @property
    def padding(self) -> int | None:
        """The id of the padding token that positions are counted from, as in a RoBERTa."""
        return None

    def spec(self) -> ModelSpec:
        embeddings = TextEmbeddings(
            vocabulary=self.vocab_size,
            positions=self.max_position_embeddings,
            token_types=self.type_vocab_size,
            norm=True,
            padding=self.padding,
        )
        tower = self.tower(
            "text",
            embeddings,
            self.intermediate_size,
            dropouts=(self.hidden_dropout_prob, self.attention_probs_dropout_prob),
        )
        dropout = self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout
        return ModelSpec(
            "text-classification",
            (replace(tower, pre_norm=False, final_norm=False, pooler="tanh"),),
            classes=len(self.labels),
            classifier_dropout=dropout or 0.0,
        )


def spelling(model: str, ends: Mapping[str, str]) -> dict[str, str]:
    """Returns transformers' names for the encoder `model`; `ends` adds those behind its last layer."""
    attention = [f"attention.{name}" for name in ("self.query", "self.key", "self.value", "output.dense")]
    norms, mlp = ("attention.output.LayerNorm", "output.LayerNorm"), ("intermediate.dense", "output.dense")
    return {
        "text.embeddings.word": f"{model}.embeddings.word_embeddings.weight",
        "text.embeddings.position": f"{model}.embeddings.position_embeddings.weight",
        "text.embeddings.token_type": f"{model}.embeddings.token_type_embeddings.weight",
        "text.embeddings.norm": f"{model}.embeddings.LayerNorm",
        **layer_names("text", f"{model}.encoder.layer.{{i}}.", attention, norms=norms, mlp=mlp),
        **ends,
    }


FAMILY = Family(
    name="bert",
    title="BERT",
    model_type="bert",
    architectures=("BertForSequenceClassification",),
    config=Config,
    spellings=(spelling("bert", {"text.pooler": "bert.pooler.dense", "classifier": "classifier"}),),
    base=Base("bert.", surplus=(r"cls\..*",)),
    inert=(r"bert\.embeddings\.(position|token_type)_ids", r"cls\..*"),
    legacy={".gamma": ".weight", ".beta": ".bias"},
    task="text-classification",
)
