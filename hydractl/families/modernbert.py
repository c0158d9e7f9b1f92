"""ModernBERT for sequence classification, as transformers writes it."""

from typing import Literal

from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import Activation, Local, Rotary, TextEmbeddings, TowerSpec, Unbiased
from hydractl.families import config as read
from hydractl.families.family import Base, Family, layer_names
from hydractl.schema import Items

Kind = Literal["full_attention", "sliding_attention"]


class RotaryFields(read.Fields):
    """The fields of one kind of layer under `rope_parameters`."""

    rope_type: Literal["default"] = "default"
    type: Literal["default"] = "default"  # as older configs spell it
    rope_theta: read.Base | None = None


class RotaryKinds(read.Fields):
    """The fields under `rope_parameters`."""

    full_attention: RotaryFields | None = None
    sliding_attention: RotaryFields | None = None


class ModernBertConfig(read.Labelled):
    """The fields of a ModernBERT's config.json."""

    vocab_size: read.Vocabulary = 50368
    hidden_size: read.Width = 768
    intermediate_size: read.MlpWidth = 1152
    num_hidden_layers: read.Layers = 22
    num_attention_heads: read.Heads = 12
    hidden_activation: Activation = "gelu"
    max_position_embeddings: read.Positions = 8192
    norm_eps: read.NormEps = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    attention_dropout: read.Rate = 0.0
    embedding_dropout: read.NoRate = 0.0
    mlp_dropout: read.NoRate = 0.0
    layer_types: Items[Kind] | None = None
    global_attn_every_n_layers: read.Layers = 3
    local_attention: read.Reach = 128
    rope_parameters: RotaryKinds | None = None
    rope_scaling: None = None
    global_rope_theta: read.Base = 160_000.0
    local_rope_theta: read.Base = 10_000.0
    classifier_pooling: Literal["cls", "mean"] = "cls"
    classifier_dropout: read.Rate = 0.0
    classifier_bias: bool = False
    classifier_activation: Activation = "gelu"

    def spec(self) -> ModelSpec:
        biases: dict[tuple[Unbiased, ...], bool] = {
            ("attention.q", "attention.k", "attention.v", "attention.o"): self.attention_bias,
            ("mlp",): self.mlp_bias,
            ("norm",): self.norm_bias,
            ("pooler",): self.classifier_bias,
        }
        kinds = self.rope_parameters or RotaryKinds()
        turned, near = (kind or RotaryFields() for kind in (kinds.full_attention, kinds.sliding_attention))
        tower = TowerSpec(
            name="text",
            layers=self.num_hidden_layers,
            heads=self.num_attention_heads,
            head_width=read.head_width(self.hidden_size, self.num_attention_heads),
            width=self.hidden_size,
            mlp_width=self.intermediate_size,
            activation=self.hidden_activation,
            norm_eps=self.norm_eps,
            embeddings=TextEmbeddings(
                self.vocab_size, self.max_position_embeddings, token_types=0, norm=True, learned=False
            ),
            norm_tokens=self.classifier_pooling == "mean",
            pool="mean" if self.classifier_pooling == "mean" else "first",
            pooler=self.classifier_activation,
            attention_dropout=self.attention_dropout or 0.0,
            rotary=Rotary(turned.rope_theta or self.global_rope_theta),
            local=Local(self.local_layers(), self.local_attention // 2, near.rope_theta or self.local_rope_theta),
            unbiased=tuple(name for parts, has_one in biases.items() if not has_one for name in parts),
            first_norm=False,
            gated=True,
            pooler_norm=True,
        )
        return self.classifier(tower, self.classifier_dropout)

    def local_layers(self) -> tuple[int, ...]:
        """Returns the layers in which tokens see only those near them."""
        if self.layer_types is None:
            return tuple(i for i in range(self.num_hidden_layers) if i % self.global_attn_every_n_layers)
        if len(self.layer_types) != self.num_hidden_layers:
            raise ValueError(f"layer_types has {len(self.layer_types)} layers, should have {self.num_hidden_layers}")
        return tuple(i for i, kind in enumerate(self.layer_types) if kind == "sliding_attention")


ATTENTION = [*(f"attn.Wqkv[{part}/3]" for part in range(3)), "attn.Wo"]
MLP = ("mlp.Wi[0/2]", "mlp.Wo", "mlp.Wi[1/2]")

FAMILY = Family(
    name="modernbert",
    title="ModernBERT",
    architectures=("ModernBertForSequenceClassification",),
    config=ModernBertConfig,
    spellings=(
        {
            "text.embeddings.word": "model.embeddings.tok_embeddings.weight",
            "text.embeddings.norm": "model.embeddings.norm",
            **layer_names("text", "model.layers.{i}.", ATTENTION, norms=("attn_norm", "mlp_norm"), mlp=MLP),
            "text.norm": "model.final_norm",
            "text.pooler": "head.dense",
            "text.pooler_norm": "head.norm",
            "classifier": "classifier",
        },
    ),
    base=Base("model."),
    task="text-classification",
)
