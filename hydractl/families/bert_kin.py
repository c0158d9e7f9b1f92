"""Later kin of BERT and RoBERTa as transformers writes them, and networks of text families that label each token."""

from dataclasses import replace
from typing import ClassVar, Literal

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.slots import slots
from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import Activation, Rotary, TextEmbeddings, TowerSpec, Unbiased
from hydractl.errors import OptionError
from hydractl.families import config as read
from hydractl.families.bert import (
    BERT,
    DEBERTA_V2,
    DENSE_ENDS,
    DISTILBERT,
    ELECTRA,
    MPNET,
    ROBERTA,
    XLM_ROBERTA,
    BertConfig,
    KinConfig,
    RobertaConfig,
    spelling,
)
from hydractl.families.bert import XlmRobertaConfig as SmallRobertaConfig
from hydractl.families.family import Base, Family, kin, layer_names
from hydractl.families.modernbert import FAMILY as MODERNBERT
from hydractl.families.modernbert import RotaryFields


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


class LargeConfig(KinConfig):
    """The fields of kin that have the sizes of a large BERT where their config names none."""

    hidden_size: read.Width = 1024
    num_hidden_layers: read.Layers = 24
    num_attention_heads: read.Heads = 16
    intermediate_size: read.MlpWidth = 4096


class MegatronBertConfig(LargeConfig):
    """The fields of a Megatron-BERT's config.json."""

    vocab_size: read.Vocabulary = 29056
    type_vocab_size: read.TokenTypes = 2
    is_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False

    def embeddings(self) -> TextEmbeddings:
        return replace(super().embeddings(), token_types=self.type_vocab_size, norm=False)

    def encoder(self) -> TowerSpec:
        return pre_normed(super().encoder())


CAMEMBERT = kin(ROBERTA, "camembert", "CamemBERT", "CamembertForSequenceClassification", config=SmallRobertaConfig)
DATA2VEC_TEXT = kin(
    CAMEMBERT, "data2vec-text", "data2vec (texts)", "Data2VecTextForSequenceClassification", model="data2vec_text"
)
ERNIE = kin(
    BERT, "ernie", "ERNIE (without task ids)", "ErnieForSequenceClassification", config=ErnieConfig, model="ernie"
)
PRENORM = "roberta_prelayernorm"
ROBERTA_PRELAYERNORM = replace(
    ROBERTA,
    name="roberta-prelayernorm",
    title="RoBERTa-PreLayerNorm",
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


class RotaryConfig(KinConfig):
    """The fields of networks whose queries and keys are turned."""

    last_dropout = "classifier_dropout"
    base: ClassVar[float]  # of the speeds of turning, where the config names none
    type_vocab_size: read.TokenTypes
    classifier_dropout: read.Rate = None
    rope_parameters: RotaryFields | None = None
    rope_theta: read.Base | None = None  # of older configs
    rope_scaling: None = None

    def embeddings(self) -> TextEmbeddings:
        return replace(super().embeddings(), token_types=self.type_vocab_size, learned=False)

    def encoder(self) -> TowerSpec:
        theta = None if self.rope_parameters is None else self.rope_parameters.rope_theta
        theta = self.rope_theta if theta is None else theta
        return replace(super().encoder(), rotary=Rotary(self.base if theta is None else theta))


class JinaConfig(LargeConfig, RotaryConfig):
    """The fields of a Jina v3's config.json."""

    base = 20_000.0
    vocab_size: read.Vocabulary = 250002
    max_position_embeddings: read.Positions = 8194
    type_vocab_size: read.TokenTypes = 1
    layer_norm_eps: read.NormEps = 1e-5


class NomicBertConfig(RotaryConfig):
    """The fields of a NomicBERT's config.json."""

    base = 1_000.0
    vocab_size: read.Vocabulary = 30528
    hidden_act: Activation = "silu"
    hidden_dropout_prob: read.Rate = 0.0
    attention_probs_dropout_prob: read.Rate = 0.0
    max_position_embeddings: read.Positions = 2048
    type_vocab_size: read.TokenTypes = 2
    head_dim: read.Width | None = None

    def encoder(self) -> TowerSpec:
        tower = super().encoder()
        if self.head_dim not in (None, tower.head_width):
            raise ValueError(f"head_dim is {self.head_dim}, should be {tower.head_width}")
        unbiased: tuple[Unbiased, ...] = ("attention.q", "attention.k", "attention.v", "attention.o", "mlp")
        return replace(tower, gated=True, unbiased=unbiased)


def rotary_spelling(model: str, attention: str, mlp: tuple[str, ...]) -> dict[str, str]:
    """Returns the names of the encoder `model`; `attention` is theirs of a layer's, `mlp` are those of its maps."""
    maps = [*(f"{attention}.Wqkv[{part}/3]" for part in range(3)), f"{attention}.out_proj"]
    return {
        "text.embeddings.word": f"{model}.embeddings.word_embeddings.weight",
        "text.embeddings.token_type": f"{model}.embeddings.token_type_embeddings.weight",
        "text.embeddings.norm": f"{model}.emb_ln",
        **layer_names("text", f"{model}.encoder.layers.{{i}}.", maps, norms=("norm1", "norm2"), mlp=mlp),
    }


JINA_V3 = Family(
    name="jina-v3",
    title="Jina v3 (without adapters)",
    config_type="jina_embeddings_v3",
    architectures=("JinaEmbeddingsV3ForSequenceClassification",),
    config=JinaConfig,
    spellings=(rotary_spelling("roberta", "mixer", ("mlp.fc1", "mlp.fc2")) | DENSE_ENDS,),
    base=Base("roberta."),
    inert=(r"roberta\.pooler\.dense\..*", r"lm_head\..*"),
    task="text-classification",
)
NOMIC_BERT = Family(
    name="nomic-bert",
    title="NomicBERT",
    config_type="nomic_bert",
    architectures=("NomicBertForSequenceClassification",),
    config=NomicBertConfig,
    spellings=(
        rotary_spelling("nomic_bert", "attn", ("mlp.fc12", "mlp.fc2", "mlp.fc11"))
        | {"text.pooler": "nomic_bert.pooler.dense", "classifier": "classifier"},
    ),
    base=Base("nomic_bert."),
    inert=(r"cls\..*",),
    task="text-classification",
)


def reads_tokens(spec: ModelSpec) -> ModelSpec:
    """Returns the network whose classifier reads each token, without a pooler between."""
    tower = replace(spec.towers[0], pool="each", pooler=None)
    return replace(spec, task="token-classification", towers=(tower,))


def reads_dropped_tokens(spec: ModelSpec) -> ModelSpec:
    """Returns this network where tokens lose as much as hidden states do, whatever the classifier's own dropout."""
    return replace(reads_tokens(spec), classifier_dropout=spec.towers[0].dropout)


def reads_headed_tokens(spec: ModelSpec) -> ModelSpec:
    """Returns this network where each token passes through the pooler."""
    tower = replace(spec.towers[0], pool="each", norm_tokens=False)
    return replace(spec, task="token-classification", towers=(tower,))


SPECS = {"deberta-v2": reads_dropped_tokens, "distilbert": reads_dropped_tokens, "modernbert": reads_headed_tokens}
ENDING = "-tokens"


def _of_tokens(family: Family) -> Family:
    assert family.base is not None
    theirs = (name.replace("ForSequence", "ForToken") for name in family.architectures)
    return replace(
        family,
        name=family.name + ENDING,
        config_type=family.model_type,
        architectures=tuple(theirs),
        spellings=tuple({**spelling, "classifier": "classifier"} for spelling in family.spellings),
        # Older releases saved a pooler that nothing reads.
        inert=(*family.inert, rf"{family.base.prefix[:-1]}\.pooler\.dense\..*"),
        task="token-classification",
        base=None,
        described=SPECS.get(family.name, reads_tokens),
    )


_READING = (
    *(BERT, ELECTRA, MPNET, DEBERTA_V2, ROBERTA, XLM_ROBERTA, DISTILBERT, CAMEMBERT, DATA2VEC_TEXT, ERNIE),
    *(ROBERTA_PRELAYERNORM, XLM_ROBERTA_XL, MEGATRON_BERT, MODERNBERT, NOMIC_BERT, JINA_V3),
)
TAGGERS: tuple[Family, ...] = tuple(map(_of_tokens, _READING))


def label_tokens(checkpoint: Checkpoint) -> Checkpoint:
    """Returns a network of texts as one that labels each token, its classifier yet to be made; a tagger as it is.

    Raises:
        OptionError: not a network of texts that transformers has so.
    """
    if any(family.name == checkpoint.family for family in TAGGERS):
        return checkpoint
    family = next((candidate for candidate in TAGGERS if candidate.name == checkpoint.family + ENDING), None)
    if family is None:
        raise OptionError(f"{checkpoint.name}: a {checkpoint.family} cannot label tokens: choose a family of texts")
    spec = family.described(checkpoint.spec)
    tensors = {name: checkpoint.tensors[name] for name in slots(spec)}
    config = {key: value for key, value in checkpoint.config.items() if key != "problem_type"}
    tagger = replace(checkpoint, family=family.name, config=config)
    return replace(tagger, spec=spec, tensors=tensors, shared=checkpoint.shared & tensors.keys())
