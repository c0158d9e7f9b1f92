"""BERT and its kin for sequence classification, as transformers writes them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import AliasChoices, Field

from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import RANGES, Activation, Disentangled, Relative, TextEmbeddings, TowerSpec
from hydractl.families import config as read
from hydractl.families.family import Base, Family, kin, layer_names
from hydractl.schema import Checked, Items


class KinConfig(read.PlainEncoder, read.Labelled):
    """The fields that BERT and its kin share, and the network that most of them describe."""

    #: The field of the dropout before the classifier; where that is null, it is the dropout of hidden states.
    last_dropout: ClassVar[str] = "hidden_dropout_prob"
    vocab_size: read.Vocabulary = 30522
    max_position_embeddings: read.Positions = 512
    hidden_dropout_prob: read.Rate = 0.1
    attention_probs_dropout_prob: read.Rate = 0.1

    def embeddings(self) -> TextEmbeddings:
        """Returns the embeddings, without types of sentences."""
        return TextEmbeddings(self.vocab_size, self.max_position_embeddings, token_types=0, norm=True)

    def encoder(self) -> TowerSpec:
        """Returns the encoder, which norms after each residual sum."""
        tower = self.plain_tower("text", self.embeddings())
        return replace(tower, pre_norm=False, final_norm=False, pooler="tanh")

    def spec(self) -> ModelSpec:
        dropout: float | None = getattr(self, self.last_dropout)
        dropout = self.hidden_dropout_prob if dropout is None else dropout
        return self.classifier(self.encoder(), dropout)


class BertConfig(KinConfig):
    """The fields of a BERT's config.json."""

    last_dropout = "classifier_dropout"
    type_vocab_size: read.TokenTypes = 2
    classifier_dropout: read.Rate = None
    is_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False
    position_embedding_type: Literal["absolute"] = "absolute"

    def embeddings(self) -> TextEmbeddings:
        return replace(super().embeddings(), token_types=self.type_vocab_size)


class ElectraConfig(BertConfig):
    """The fields of an ELECTRA's config.json."""

    embedding_size: read.Width = 128
    hidden_size: read.Width = 256
    num_attention_heads: read.Heads = 4
    intermediate_size: read.MlpWidth = 1024

    def embeddings(self) -> TextEmbeddings:
        width = None if self.embedding_size == self.hidden_size else self.embedding_size
        return replace(super().embeddings(), width=width)

    def encoder(self) -> TowerSpec:
        return replace(super().encoder(), pooler="gelu")


class RobertaConfig(BertConfig):
    """The fields of a RoBERTa's config.json."""

    vocab_size: read.Vocabulary = 50265
    pad_token_id: read.Padding = 1

    def embeddings(self) -> TextEmbeddings:
        return replace(super().embeddings(), padding=self.pad_token_id)


class XlmRobertaConfig(RobertaConfig):
    """The fields of an XLM-RoBERTa's config.json."""

    vocab_size: read.Vocabulary = 30522


class MpnetConfig(KinConfig):
    """The fields of an MPNet's config.json."""

    vocab_size: read.Vocabulary = 30527
    relative_attention_num_buckets: Literal[32] = 32

    def embeddings(self) -> TextEmbeddings:
        return replace(super().embeddings(), padding=1)  # whatever pad_token_id is

    def encoder(self) -> TowerSpec:
        return replace(super().encoder(), relative=Relative(self.relative_attention_num_buckets))


class DebertaV2Config(KinConfig):
    """The fields of a DeBERTa-v2's or v3's config.json."""

    last_dropout = "cls_dropout"
    vocab_size: read.Vocabulary = 128100
    type_vocab_size: read.TokenTypes = 0
    hidden_size: read.Width = 1536
    num_hidden_layers: read.Layers = 24
    num_attention_heads: read.Heads = 24
    intermediate_size: read.MlpWidth = 6144
    layer_norm_eps: read.NormEps = 1e-7
    cls_dropout: read.Rate = None
    pooler_dropout: read.NoRate = 0.0
    pooler_hidden_act: Activation = "gelu"
    pooler_hidden_size: int | None = None
    embedding_size: int | None = None
    attention_head_size: int | None = None
    position_biased_input: bool = True
    relative_attention: bool = False
    max_relative_positions: Annotated[int, Checked(ge=-1, le=RANGES["distances"][1])] = -1
    position_buckets: Annotated[int, Checked(ge=-1, le=RANGES["distances"][1])] = -1
    pos_att_type: str | Items[str] | None = None
    share_att_key: bool = False
    norm_rel_ebd: str = "none"
    conv_kernel_size: int = 0

    def embeddings(self) -> TextEmbeddings:
        return replace(super().embeddings(), token_types=self.type_vocab_size, learned=self.position_biased_input)

    def encoder(self) -> TowerSpec:
        if self.conv_kernel_size > 0:
            raise ValueError("conv_kernel_size is set: a convolution over tokens is not supported")
        head = read.head_width(self.hidden_size, self.num_attention_heads)
        for field, expected in (("pooler_hidden_size", self.hidden_size), ("embedding_size", self.hidden_size),
                              ("attention_head_size", head)):  # fmt: skip
            if getattr(self, field) not in (None, expected):
                raise ValueError(f"{field} is {getattr(self, field)}, should be {expected}")
        return replace(super().encoder(), pooler=self.pooler_hidden_act, disentangled=self.distances())

    def distances(self) -> Disentangled | None:
        """Returns how attention depends on distances."""
        entries = self.pos_att_type.split("|") if isinstance(self.pos_att_type, str) else self.pos_att_type or []
        types = {name.strip().lower() for name in entries} - {""}
        if types - {"c2p", "p2c"} or self.relative_attention != bool(types):
            raise ValueError(
                "pos_att_type should be c2p, p2c or both where relative_attention is true, and none elsewhere"
            )
        if not types:
            return None
        most = self.max_position_embeddings if self.max_relative_positions < 1 else self.max_relative_positions
        bucketed = self.position_buckets > 0
        return Disentangled(
            tuple(part for part, name in DISTANCE_MAPS.items() if name in types),
            self.position_buckets if bucketed else most,
            most if bucketed else None,
            own=not self.share_att_key,
            norm="layer_norm" in [name.strip() for name in self.norm_rel_ebd.lower().split("|")],
        )


#: Content to position: queries meet keys of distances. Position to content: keys meet queries of them.
DISTANCE_MAPS: dict[Literal["k", "q"], str] = {"k": "c2p", "q": "p2c"}


class DistilBertConfig(read.Labelled):
    """The fields of a DistilBERT's config.json."""

    vocab_size: read.Vocabulary = 30522
    max_position_embeddings: read.Positions = 512
    # Their first names are those of other encoders, by which transformers' own config reads them too.
    n_layers: Annotated[read.Layers, Field(validation_alias=AliasChoices("num_hidden_layers", "n_layers"))] = 6
    n_heads: Annotated[read.Heads, Field(validation_alias=AliasChoices("num_attention_heads", "n_heads"))] = 12
    dim: Annotated[read.Width, Field(validation_alias=AliasChoices("hidden_size", "dim"))] = 768
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
        return self.classifier(tower, self.seq_classif_dropout)


#: Transformers' names in a layer of most of them: of q, k, v and o, of both norms, of both maps of the MLP.
ATTENTION = [f"attention.{name}" for name in ("self.query", "self.key", "self.value", "output.dense")]
NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
MLP = ("intermediate.dense", "output.dense")
#: Names behind the last layer, where the classifier has a dense layer in place of the base network's pooler.
DENSE_ENDS = {"text.pooler": "classifier.dense", "classifier": "classifier.out_proj"}


def spelling(
    model: str, ends: Mapping[str, str], attention: Sequence[str] = ATTENTION, norms: Sequence[str] = NORMS
) -> dict[str, str]:
    """Returns transformers' names for the encoder `model`; `ends` adds those behind its last layer.

    Args:
        attention, norms: see `layer_names`.
    """
    return {
        "text.embeddings.word": f"{model}.embeddings.word_embeddings.weight",
        "text.embeddings.position": f"{model}.embeddings.position_embeddings.weight",
        "text.embeddings.token_type": f"{model}.embeddings.token_type_embeddings.weight",
        "text.embeddings.norm": f"{model}.embeddings.LayerNorm",
        **layer_names("text", f"{model}.encoder.layer.{{i}}.", attention, norms=norms, mlp=MLP),
        **ends,
    }


BERT = Family(
    name="bert",
    title="BERT",
    architectures=("BertForSequenceClassification",),
    config=BertConfig,
    spellings=(spelling("bert", {"text.pooler": "bert.pooler.dense", "classifier": "classifier"}),),
    base=Base("bert."),
    inert=(r"bert\.embeddings\.(position|token_type)_ids", r"cls\..*"),
    legacy={".gamma": ".weight", ".beta": ".bias"},
    task="text-classification",
)
ELECTRA = replace(
    BERT,
    name="electra",
    title="ELECTRA",
    architectures=("ElectraForSequenceClassification",),
    config=ElectraConfig,
    spellings=(spelling("electra", DENSE_ENDS | {"text.embeddings.projection": "electra.embeddings_project"}),),
    base=Base("electra."),
    inert=(r"electra\.embeddings\.(position|token_type)_ids",),
)
ROBERTA = replace(
    BERT,
    name="roberta",
    title="RoBERTa",
    architectures=("RobertaForSequenceClassification",),
    config=RobertaConfig,
    spellings=(spelling("roberta", DENSE_ENDS),),
    # Its base class has a pooler of its own; a classifier has a dense layer in that place, always untrained at first.
    base=Base("roberta."),
    inert=(r"roberta\.embeddings\.(position|token_type)_ids", r"roberta\.pooler\.dense\..*", r"lm_head\..*"),
)
XLM_ROBERTA = kin(ROBERTA, "xlm-roberta", "XLM-RoBERTa", "XLMRobertaForSequenceClassification", config=XlmRobertaConfig)
MPNET_HEADS = [f"attention.attn.{part}" for part in "qkvo"]
MPNET = replace(
    BERT,
    name="mpnet",
    title="MPNet",
    architectures=("MPNetForSequenceClassification",),
    config=MpnetConfig,
    spellings=(
        spelling("mpnet", DENSE_ENDS, MPNET_HEADS, norms=("attention.LayerNorm", "output.LayerNorm"))
        # One table for all layers: here each has its own, and may train it.
        | {"text.layers.{i}.attention.relative": "mpnet.encoder.relative_attention_bias.weight^T"},
    ),
    base=Base("mpnet."),
    inert=(r"mpnet\.embeddings\.position_ids", r"mpnet\.pooler\.dense\..*", r"lm_head\..*"),
)
DEBERTA_V2_HEADS = [*(f"attention.self.{part}_proj" for part in ("query", "key", "value")), "attention.output.dense"]
DEBERTA_V2_ATTENTION = "deberta.encoder.layer.{i}.attention.self."
DEBERTA_V2 = Family(
    name="deberta-v2",
    title="DeBERTa-v2, v3",
    architectures=("DebertaV2ForSequenceClassification",),
    config=DebertaV2Config,
    spellings=(
        spelling("deberta", {"text.pooler": "pooler.dense", "classifier": "classifier"}, DEBERTA_V2_HEADS)
        | {
            "text.embeddings.distances": "deberta.encoder.rel_embeddings.weight",
            "text.embeddings.distance_norm": "deberta.encoder.LayerNorm",
            "text.layers.{i}.attention.distance_k": f"{DEBERTA_V2_ATTENTION}pos_key_proj",
            "text.layers.{i}.attention.distance_q": f"{DEBERTA_V2_ATTENTION}pos_query_proj",
        },
    ),
    base=Base("deberta."),
    inert=(
        r"deberta\.embeddings\.(position_ids|position_embeddings\..*)",
        r"(cls|lm_predictions|mask_predictions)\..*",
    ),
    task="text-classification",
)
DISTILBERT = Family(
    name="distilbert",
    title="DistilBERT",
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
