"""Kin of BERT that turn queries and keys by the places of tokens, as transformers writes them."""

from dataclasses import replace

from hydractl.checkpoint.tower_spec import Activation, Rotary, TextEmbeddings, TowerSpec, Unbiased
from hydractl.families import config as read
from hydractl.families.bert import DENSE_ENDS, KinConfig
from hydractl.families.family import Base, Family, layer_names
from hydractl.families.modernbert import RotaryFields


class JinaConfig(KinConfig):
    """The fields of a Jina v3's config.json."""

    vocab_size: read.Vocabulary = 250002
    hidden_size: read.Width = 1024
    num_hidden_layers: read.Layers = 24
    num_attention_heads: read.Heads = 16
    intermediate_size: read.MlpWidth = 4096
    max_position_embeddings: read.Positions = 8194
    type_vocab_size: read.TokenTypes = 1
    layer_norm_eps: read.NormEps = 1e-5
    classifier_dropout: read.Rate = None
    rope_parameters: RotaryFields | None = None

    @property
    def base(self) -> float:
        """The base of the speeds of turning where the config names none."""
        return 20_000.0

    @property
    def last_dropout(self) -> float | None:
        return self.classifier_dropout

    def embeddings(self) -> TextEmbeddings:
        return replace(super().embeddings(), token_types=self.type_vocab_size, learned=False)

    def encoder(self) -> TowerSpec:
        theta = None if self.rope_parameters is None else self.rope_parameters.rope_theta
        return replace(super().encoder(), rotary=Rotary(self.base if theta is None else theta))


class NomicBertConfig(JinaConfig):
    """The fields of a NomicBERT's config.json."""

    vocab_size: read.Vocabulary = 30528
    hidden_size: read.Width = 768
    num_hidden_layers: read.Layers = 12
    num_attention_heads: read.Heads = 12
    intermediate_size: read.MlpWidth = 3072
    hidden_act: Activation = "silu"
    hidden_dropout_prob: read.Rate = 0.0
    attention_probs_dropout_prob: read.Rate = 0.0
    max_position_embeddings: read.Positions = 2048
    type_vocab_size: read.TokenTypes = 2
    layer_norm_eps: read.NormEps = 1e-12
    head_dim: read.Width | None = None

    @property
    def base(self) -> float:
        return 1_000.0

    def encoder(self) -> TowerSpec:
        tower = super().encoder()
        if self.head_dim not in (None, tower.head_width):
            raise ValueError(f"head_dim is {self.head_dim}, should be {tower.head_width}")
        unbiased: tuple[Unbiased, ...] = ("attention.q", "attention.k", "attention.v", "attention.o", "mlp")
        return replace(tower, gated=True, unbiased=unbiased)


def _spelling(model: str, attention: str, mlp: tuple[str, str]) -> dict[str, str]:
    """Returns the names of the encoder `model`; `attention` is theirs of a layer's, `mlp` are those of two maps."""
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
    model_type="jina_embeddings_v3",
    architectures=("JinaEmbeddingsV3ForSequenceClassification",),
    config=JinaConfig,
    spellings=(_spelling("roberta", "mixer", ("mlp.fc1", "mlp.fc2")) | DENSE_ENDS,),
    base=Base("roberta."),
    inert=(r"roberta\.pooler\.dense\..*", r"lm_head\..*"),
    task="text-classification",
)
NOMIC_BERT = Family(
    name="nomic-bert",
    title="NomicBERT",
    model_type="nomic_bert",
    architectures=("NomicBertForSequenceClassification",),
    config=NomicBertConfig,
    spellings=(
        _spelling("nomic_bert", "attn", ("mlp.fc12", "mlp.fc2"))
        | {
            "text.layers.{i}.mlp.factor": "nomic_bert.encoder.layers.{i}.mlp.fc11",
            "text.pooler": "nomic_bert.pooler.dense",
            "classifier": "classifier",
        },
    ),
    base=Base("nomic_bert."),
    inert=(r"cls\..*",),
    task="text-classification",
)
