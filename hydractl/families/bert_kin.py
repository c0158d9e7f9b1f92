"""Later kin of BERT and RoBERTa for sequence classification, as transformers writes them."""

from dataclasses import replace
from typing import Literal

from hydractl.checkpoint.tower_spec import TextEmbeddings, TowerSpec
from hydractl.families import config as read
from hydractl.families.bert import BERT, DENSE_ENDS, ROBERTA, BertConfig, KinConfig, RobertaConfig, spelling
from hydractl.families.bert import XlmRobertaConfig as SmallRobertaConfig
from hydractl.families.family import Base


class ErnieConfig(BertConfig):
    """The fields of an ERNIE's config.json."""

    use_task_id: Literal[False] = False


def pre_normed(tower: TowerSpec) -> TowerSpec:
    """Returns an encoder that norms before attention and MLP, and at its end."""
    return replace(tower, pre_norm=True, final_norm=True)


class PreLayerNormConfig(RobertaConfig):
    """The fields of a RoBERTa-PreLayerNorm's config.json."""

    def encoder(self) -> TowerSpec:
        return pre_normed(super().encoder())


class XlmRobertaXlConfig(PreLayerNormConfig):
    """The fields of an XLM-RoBERTa-XL's config.json."""

    vocab_size: read.Vocabulary = 250880
    hidden_size: read.Width = 2560
    num_hidden_layers: read.Layers = 36
    num_attention_heads: read.Heads = 32
    intermediate_size: read.MlpWidth = 10240
    max_position_embeddings: read.Positions = 514
    type_vocab_size: read.TokenTypes = 1
    layer_norm_eps: read.NormEps = 1e-5

    def embeddings(self) -> TextEmbeddings:
        return replace(super().embeddings(), norm=False)


class MegatronBertConfig(KinConfig):
    """The fields of a Megatron-BERT's config.json."""

    vocab_size: read.Vocabulary = 29056
    hidden_size: read.Width = 1024
    num_hidden_layers: read.Layers = 24
    num_attention_heads: read.Heads = 16
    intermediate_size: read.MlpWidth = 4096
    type_vocab_size: read.TokenTypes = 2
    is_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False

    def embeddings(self) -> TextEmbeddings:
        return replace(super().embeddings(), token_types=self.type_vocab_size, norm=False)

    def encoder(self) -> TowerSpec:
        return pre_normed(super().encoder())


CAMEMBERT = replace(
    ROBERTA,
    name="camembert",
    title="CamemBERT",
    model_type="camembert",
    architectures=("CamembertForSequenceClassification",),
    config=SmallRobertaConfig,
)
DATA2VEC_TEXT = replace(
    ROBERTA,
    name="data2vec-text",
    title="data2vec (texts)",
    model_type="data2vec-text",
    architectures=("Data2VecTextForSequenceClassification",),
    config=SmallRobertaConfig,
    spellings=(spelling("data2vec_text", DENSE_ENDS),),
    base=Base("data2vec_text."),
    inert=(
        r"data2vec_text\.embeddings\.(position|token_type)_ids",
        r"data2vec_text\.pooler\.dense\..*",
        r"lm_head\..*",
    ),
)
ERNIE = replace(
    BERT,
    name="ernie",
    title="ERNIE (without task ids)",
    model_type="ernie",
    architectures=("ErnieForSequenceClassification",),
    config=ErnieConfig,
    spellings=(spelling("ernie", {"text.pooler": "ernie.pooler.dense", "classifier": "classifier"}),),
    base=Base("ernie."),
    inert=(r"ernie\.embeddings\.(position|token_type)_ids", r"cls\..*"),
)
PRENORM = "roberta_prelayernorm"
ROBERTA_PRELAYERNORM = replace(
    ROBERTA,
    name="roberta-prelayernorm",
    title="RoBERTa-PreLayerNorm",
    model_type="roberta-prelayernorm",
    architectures=("RobertaPreLayerNormForSequenceClassification",),
    config=PreLayerNormConfig,
    spellings=(
        spelling(
            PRENORM,
            DENSE_ENDS | {"text.norm": f"{PRENORM}.LayerNorm"},
            norms=("attention.LayerNorm", "intermediate.LayerNorm"),
        ),
    ),
    base=Base(f"{PRENORM}."),
    inert=(rf"{PRENORM}\.embeddings\.(position|token_type)_ids", rf"{PRENORM}\.pooler\.dense\..*", r"lm_head\..*"),
)
XLM_ROBERTA_XL = replace(
    ROBERTA,
    name="xlm-roberta-xl",
    title="XLM-RoBERTa-XL",
    model_type="xlm-roberta-xl",
    architectures=("XLMRobertaXLForSequenceClassification",),
    config=XlmRobertaXlConfig,
    spellings=(
        spelling(
            "roberta",
            DENSE_ENDS | {"text.norm": "roberta.encoder.LayerNorm"},
            norms=("attention.self_attn_layer_norm", "LayerNorm"),
        ),
    ),
)
MEGATRON_BERT = replace(
    BERT,
    name="megatron-bert",
    title="Megatron-BERT",
    model_type="megatron-bert",
    architectures=("MegatronBertForSequenceClassification",),
    config=MegatronBertConfig,
    spellings=(
        spelling(
            "bert",
            {"text.pooler": "bert.pooler.dense", "text.norm": "bert.encoder.ln", "classifier": "classifier"},
            norms=("attention.ln", "ln"),
        ),
    ),
)
