"""DistilBERT for sequence classification, as transformers writes it (`DistilBertForSequenceClassification`)."""

from __future__ import annotations

from hydractl.checkpoint.spec import Activation, ModelSpec, TextEmbeddings, TowerSpec
from hydractl.families import config as read
from hydractl.families.family import Base, Family, layer_names


class Config(read.Labelled):
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


FAMILY = Family(
    name="distilbert",
    title="DistilBERT",
    model_type="distilbert",
    architectures=("DistilBertForSequenceClassification",),
    config=Config,
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
