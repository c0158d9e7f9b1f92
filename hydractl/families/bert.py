"""BERT and its kin for sequence classification, as transformers writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from hydractl.checkpoint.spec import Activation, ModelSpec, Relative, TextEmbeddings, TowerSpec
from hydractl.families import config as read
from hydractl.families.family import Base, Family, layer_names


class BertConfig(read.Encoder, read.Labelled):
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


class ElectraConfig(BertConfig):
    """The fields of an ELECTRA's config.json."""

    embedding_size: read.Width = 128
    hidden_size: read.Width = 256
    num_attention_heads: read.Heads = 4
    intermediate_size: read.MlpWidth = 1024

    def spec(self) -> ModelSpec:
        spec = super().spec()
        tower = replace(spec.towers[0], pooler="gelu")
        if self.embedding_size != self.hidden_size:
            assert isinstance(tower.embeddings, TextEmbeddings)
            tower = replace(tower, embeddings=replace(tower.embeddings, width=self.embedding_size))
        return replace(spec, towers=(tower,))


class RobertaConfig(BertConfig):
    """The fields of a RoBERTa's config.json."""

    vocab_size: read.Vocabulary = 50265
    pad_token_id: read.Padding = 1

    @property
    def padding(self) -> int:
        return self.pad_token_id


class MpnetConfig(read.Encoder, read.Labelled):
    """The fields of an MPNet's config.json."""

    vocab_size: read.Vocabulary = 30527
    max_position_embeddings: read.Positions = 512
    intermediate_size: read.MlpWidth = 3072
    hidden_dropout_prob: read.Rate = 0.1
    attention_probs_dropout_prob: read.Rate = 0.1
    relative_attention_num_buckets: Literal[32] = 32

    def spec(self) -> ModelSpec:
        # A BERT without sentence types. The id of padding is 1, whatever pad_token_id is.
        embeddings = TextEmbeddings(self.vocab_size, self.max_position_embeddings, token_types=0, norm=True, padding=1)
        dropouts = (self.hidden_dropout_prob, self.attention_probs_dropout_prob)
        tower = replace(
            self.tower("text", embeddings, self.intermediate_size, dropouts=dropouts),
            pre_norm=False,
            final_norm=False,
            pooler="tanh",
            relative=Relative(self.relative_attention_num_buckets),
        )
        return ModelSpec(
            "text-classification",
            (tower,),
            classes=len(self.labels),
            classifier_dropout=self.hidden_dropout_prob or 0.0,
        )


class XlmRobertaConfig(RobertaConfig):
    """The fields of an XLM-RoBERTa's config.json."""

    vocab_size: read.Vocabulary = 30522


class DistilBertConfig(read.Labelled):
    """The fields of a DistilBERT's config.json."""

    vocab_size: read.Vocabulary = 30522
    max_position_embeddings: read.Positions = 512
    n_layers: read.Layers = 6
    n_heads: read.Heads = 12
    dim: read.Width = 768
    hidden_dim: read.MlpWidth = 3072
    dropout: read.Rate = 0.1
    attention_dropout: read.Rate = 0.1
    activation: Activation = "gelu"
    seq_classif_dropout: read.Rate = 0.2

    def spec(self) -> ModelSpec:
        # A BERT without sentence types, its pooler with a ReLU.
        tower = TowerSpec(
            name="text",
            layers=self.n_layers,
            heads=self.n_heads,
            head_width=read.head_width(self.dim, self.n_heads, "dim"),
            width=self.dim,
            mlp_width=self.hidden_dim,
            activation=self.activation,
            norm_eps=1e-12,  # not a field of this config
            embeddings=TextEmbeddings(self.vocab_size, self.max_position_embeddings, token_types=0, norm=True),
            pre_norm=False,
            final_norm=False,
            pooler="relu",
            dropout=self.dropout or 0.0,
            attention_dropout=self.attention_dropout or 0.0,
        )
        return ModelSpec(
            "text-classification",
            (tower,),
            classes=len(self.labels),
            classifier_dropout=self.seq_classif_dropout or 0.0,
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


BERT = Family(
    name="bert",
    title="BERT",
    model_type="bert",
    architectures=("BertForSequenceClassification",),
    config=BertConfig,
    spellings=(spelling("bert", {"text.pooler": "bert.pooler.dense", "classifier": "classifier"}),),
    base=Base("bert.", surplus=(r"cls\..*",)),
    inert=(r"bert\.embeddings\.(position|token_type)_ids", r"cls\..*"),
    legacy={".gamma": ".weight", ".beta": ".bias"},
    task="text-classification",
)
ELECTRA = Family(
    name="electra",
    title="ELECTRA",
    model_type="electra",
    architectures=("ElectraForSequenceClassification",),
    config=ElectraConfig,
    spellings=(
        spelling(
            "electra",
            {
                "text.embeddings.projection": "electra.embeddings_project",
                "text.pooler": "classifier.dense",
                "classifier": "classifier.out_proj",
            },
        ),
    ),
    # The networks of its training: the generator predicts words, the discriminator which of them were replaced.
    base=Base("electra.", surplus=(r"(generator|discriminator)_.*",)),
    inert=(r"electra\.embeddings\.(position|token_type)_ids",),
    legacy=BERT.legacy,
    task="text-classification",
)
ROBERTA = Family(
    name="roberta",
    title="RoBERTa",
    model_type="roberta",
    architectures=("RobertaForSequenceClassification",),
    config=RobertaConfig,
    spellings=(spelling("roberta", {"text.pooler": "classifier.dense", "classifier": "classifier.out_proj"}),),
    # Its base class has a pooler of its own; a classifier has a dense layer in that place, always untrained at first.
    base=Base("roberta."),
    inert=(r"roberta\.embeddings\.(position|token_type)_ids", r"roberta\.pooler\.dense\..*", r"lm_head\..*"),
    legacy=BERT.legacy,
    task="text-classification",
)
XLM_ROBERTA = replace(
    ROBERTA,
    name="xlm-roberta",
    title="XLM-RoBERTa",
    model_type="xlm-roberta",
    architectures=("XLMRobertaForSequenceClassification",),
    config=XlmRobertaConfig,
)
MPNET_NAMES = [f"attention.attn.{part}" for part in "qkvo"]
MPNET = Family(
    name="mpnet",
    title="MPNet",
    model_type="mpnet",
    architectures=("MPNetForSequenceClassification",),
    config=MpnetConfig,
    spellings=(
        spelling("mpnet", {"text.pooler": "classifier.dense", "classifier": "classifier.out_proj"})
        | layer_names(
            "text",
            "mpnet.encoder.layer.{i}.",
            MPNET_NAMES,
            norms=("attention.LayerNorm", "output.LayerNorm"),
            mlp=("intermediate.dense", "output.dense"),
        )
        # One table for all layers: here each has its own, and may train it.
        | {"text.layers.{i}.attention.relative": "mpnet.encoder.relative_attention_bias.weight^T"},
    ),
    base=Base("mpnet."),
    inert=(r"mpnet\.embeddings\.position_ids", r"mpnet\.pooler\.dense\..*", r"lm_head\..*"),
    legacy=BERT.legacy,
    task="text-classification",
)
DISTILBERT = Family(
    name="distilbert",
    title="DistilBERT",
    model_type="distilbert",
    architectures=("DistilBertForSequenceClassification",),
    config=DistilBertConfig,
    spellings=(
        {
            "text.embeddings.word": "distilbert.embeddings.word_embeddings.weight",
            "text.embeddings.position": "distilbert.embeddings.position_embeddings.weight",
            "text.embeddings.norm": "distilbert.embeddings.LayerNorm",
            **layer_names(
                "text",
                "distilbert.transformer.layer.{i}.",
                ["attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"],
                norms=("sa_layer_norm", "output_layer_norm"),
                mlp=("ffn.lin1", "ffn.lin2"),
            ),
            "text.pooler": "pre_classifier",
            "classifier": "classifier",
        },
    ),
    base=Base("distilbert."),
    inert=(r"distilbert\.embeddings\.position_ids", r"vocab_.*"),
    task="text-classification",
)
