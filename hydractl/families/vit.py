"""ViT and its kin (MSN, I-JEPA, DeiT, DINO, BEiT, data2vec) with a classifier, as transformers writes them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import ImageEmbeddings, Relative, Rotary, Unbiased
from hydractl.families import config as read
from hydractl.families.family import Base, Family, Interpolation, kin, layer_names
from hydractl.schema import Checked


class VitConfig(read.Images, read.PlainEncoder, read.Labelled):
    """The fields of a ViT's config.json."""

    qkv_bias: bool = True

    def spec(self) -> ModelSpec:
        tower = replace(self.plain_tower("vision", self.embeddings()), qkv_bias=self.qkv_bias)
        return self.classifier(tower)


class MsnConfig(VitConfig):
    """The fields of a ViT-MSN's config.json."""

    layer_norm_eps: read.NormEps = 1e-6


class IjepaConfig(VitConfig):
    """The fields of an I-JEPA's config.json."""

    def embeddings(self, patch_bias: bool = True, norm: bool = False) -> ImageEmbeddings:
        return replace(super().embeddings(patch_bias, norm), class_token=False)

    def spec(self) -> ModelSpec:
        spec = super().spec()
        return replace(spec, towers=(replace(spec.towers[0], norm_tokens=True, pool="mean"),))


class DeitConfig(VitConfig):
    """The fields of a DeiT's config.json."""

    def embeddings(self, patch_bias: bool = True, norm: bool = False) -> ImageEmbeddings:
        # A DeiT without its distilled classifier ignores the distillation token in the end.
        return replace(super().embeddings(patch_bias, norm), distillation_token=True)


class DistilledDeitConfig(DeitConfig):
    """The fields of a DeiT with a classifier on each of its two tokens."""

    def spec(self) -> ModelSpec:
        spec = super().spec()
        return replace(spec, towers=(replace(spec.towers[0], pool="first+second"),), distilled=True)


class Dinov2Config(read.Images, read.Encoder, read.Labelled):
    """The fields of a DINOv2's config.json."""

    mlp_ratio: read.MlpRatio = 4
    hidden_dropout_prob: read.Rate = 0.0
    attention_probs_dropout_prob: read.Rate = 0.0
    layer_norm_eps: read.NormEps = 1e-6
    patch_size: read.PatchSize = (14, 14)
    qkv_bias: bool = True
    use_swiglu_ffn: bool = False

    @property
    def registers(self) -> int:
        """The number of tokens without a place in the image."""
        return 0

    def spec(self) -> ModelSpec:
        hidden = int(self.hidden_size * self.mlp_ratio)
        tower = self.tower(
            "vision",
            replace(self.embeddings(), registers=self.registers, unplaced=self.registers),
            (int(hidden * 2 / 3) + 7) // 8 * 8 if self.use_swiglu_ffn else hidden,
            dropouts=(self.hidden_dropout_prob, self.attention_probs_dropout_prob),
        )
        # The classifier reads the class token and the mean patch, side by side.
        tower = replace(tower, qkv_bias=self.qkv_bias, norm_tokens=True, layer_scale=True, pool="first+mean")
        if self.use_swiglu_ffn:
            tower = replace(tower, gated=True, activation="silu")
        return self.classifier(tower)


class Dinov2RegistersConfig(Dinov2Config):
    """The fields of a config.json of a DINOv2 with registers."""

    num_register_tokens: read.Registers = 4
    patch_size: read.PatchSize = (16, 16)

    @property
    def registers(self) -> int:
        return self.num_register_tokens


class Dinov3Config(read.Images, read.Encoder, read.Labelled):
    """The fields of a DINOv3's config.json."""

    hidden_size: read.Width = 384
    num_attention_heads: read.Heads = 6
    intermediate_size: read.MlpWidth = 1536
    attention_dropout: read.Rate = 0.0
    layer_norm_eps: read.NormEps = 1e-5
    num_register_tokens: read.Registers = 0
    rope_theta: read.Base = 100.0
    query_bias: bool = True
    key_bias: bool = False
    value_bias: bool = True
    proj_bias: bool = True
    mlp_bias: bool = True
    use_gated_mlp: bool = False

    def spec(self) -> ModelSpec:
        embeddings = replace(self.embeddings(), registers=self.num_register_tokens, learned=False)
        tower = self.tower("vision", embeddings, self.intermediate_size, dropouts=(None, self.attention_dropout))
        biases: dict[Unbiased, bool] = {
            "attention.q": self.query_bias,
            "attention.k": self.key_bias,
            "attention.v": self.value_bias,
            "attention.o": self.proj_bias,
            "mlp": self.mlp_bias,
        }
        tower = replace(
            tower,
            layer_scale=True,
            rotary=Rotary(self.rope_theta),
            gated=self.use_gated_mlp,
            unbiased=tuple(part for part, has_one in biases.items() if not has_one),
        )
        return self.classifier(tower)


#: Names of q, k, v and o as saved, and as in memory.
SAVED_HEADS = [f"attention.{name}" for name in ("attention.query", "attention.key", "attention.value", "output.dense")]
HEADS = [f"attention.{part}_proj" for part in "qkvo"]
NORMS, MLP = ("layernorm_before", "layernorm_after"), ("intermediate.dense", "output.dense")
DINO_NORMS, DINO_SCALES = ("norm1", "norm2"), ("layer_scale1.lambda1", "layer_scale2.lambda1")
GATED_MLPS = (
    ("mlp.weights_in[0/2]", "mlp.weights_out", "mlp.weights_in[1/2]"),
    ("mlp.gate_proj", "mlp.down_proj", "mlp.up_proj"),
)
Spellings = tuple[dict[str, str], ...]


def dinov2_spellings(model: str, config: Mapping[str, Any]) -> Spellings:
    """Returns a config's names of the encoder `model`, as saved and as in memory."""
    common = _outside(model) | {"vision.embeddings.registers": f"{model}.embeddings.register_tokens:3"}
    layer = partial(layer_names, "vision", f"{model}.encoder.layer.{{i}}.", norms=DINO_NORMS, scales=DINO_SCALES)
    mlps = GATED_MLPS if config.get("use_swiglu_ffn") else (("mlp.fc1", "mlp.fc2"),) * 2
    return tuple(common | layer(heads, mlp=mlp) for heads, mlp in zip((SAVED_HEADS, HEADS), mlps, strict=True))


def _outside(model: str) -> dict[str, str]:
    """Returns the names outside of the layers."""
    return {
        "vision.embeddings.patch": f"{model}.embeddings.patch_embeddings.projection",
        "vision.embeddings.class_token": f"{model}.embeddings.cls_token:3",
        "vision.embeddings.position": f"{model}.embeddings.position_embeddings:3",
        "vision.norm": f"{model}.layernorm",
        "classifier": "classifier",
    }


SAVED = _outside("vit") | layer_names("vision", "vit.encoder.layer.{i}.", SAVED_HEADS, norms=NORMS, mlp=MLP)
IN_MEMORY = _outside("vit") | layer_names("vision", "vit.layers.{i}.", HEADS, norms=NORMS, mlp=("mlp.fc1", "mlp.fc2"))
#: ViT-MSN as transformers 5 writes it: with the layers outside of the encoder that holds all other tensors.
OUTSIDE = {ours: theirs.removeprefix("vit.") if ".encoder." in theirs else theirs for ours, theirs in SAVED.items()}

VIT = Family(
    name="vit",
    title="ViT",
    architectures=("ViTForImageClassification",),
    config=VitConfig,
    spellings=(SAVED, IN_MEMORY),
    base=Base("vit."),
    # Some released checkpoints carry the pooler or the mask token of the pre-training model; a classifier uses neither.
    inert=(r"vit\.pooler\.dense\.(weight|bias)", r"vit\.embeddings\.mask_token"),
)
MSN = replace(
    kin(VIT, "vit-msn", "ViT-MSN", "ViTMSNForImageClassification", config=MsnConfig),
    config_type="vit_msn",
    spellings=(SAVED, OUTSIDE, IN_MEMORY),
    saved_as=lambda config: 1,
    inert=(r"vit\.embeddings\.mask_token",),
)
IJEPA = kin(VIT, "ijepa", "I-JEPA", "IJepaForImageClassification", config=IjepaConfig, model="ijepa")
TOKEN = {"vision.embeddings.distillation_token": "deit.embeddings.distillation_token:3"}
CLASSIFIERS = {"classifier": "cls_classifier", "distillation_classifier": "distillation_classifier"}

UNDISTILLED = kin(VIT, "deit", "DeiT", "DeiTForImageClassification", config=DeitConfig, model="deit")
DEIT = replace(UNDISTILLED, spellings=tuple({**spelling, **TOKEN} for spelling in UNDISTILLED.spellings))
DISTILLED_DEIT = replace(
    DEIT,
    name="deit-distilled",
    title="DeiT (distilled)",
    config_type="deit",
    architectures=("DeiTForImageClassificationWithTeacher",),
    config=DistilledDeitConfig,
    spellings=tuple({**spelling, **CLASSIFIERS} for spelling in DEIT.spellings),
    base=None,
)
DINOV2 = Family(
    name="dinov2",
    title="DINOv2",
    architectures=("Dinov2ForImageClassification",),
    config=Dinov2Config,
    spellings=dinov2_spellings("dinov2", {}),
    spelled_by=partial(dinov2_spellings, "dinov2"),
    interpolation=Interpolation(),
    base=Base("dinov2."),
    inert=(r"dinov2\.embeddings\.mask_token",),
)
DINOV2_WITH_REGISTERS = Family(
    name="dinov2-registers",
    title="DINOv2 with registers",
    config_type="dinov2_with_registers",
    architectures=("Dinov2WithRegistersForImageClassification",),
    config=Dinov2RegistersConfig,
    spellings=dinov2_spellings("dinov2_with_registers", {}),
    spelled_by=partial(dinov2_spellings, "dinov2_with_registers"),
    interpolation=Interpolation(antialias=True),
    base=Base("dinov2_with_registers."),
    inert=(r"dinov2_with_registers\.embeddings\.mask_token",),
)


def dinov3_spelling(layer: str, mlp: Sequence[str]) -> dict[str, str]:
    """Returns the names of a DINOv3 whose names of a layer begin with `layer`, as it is saved or as in memory."""
    return {
        "vision.embeddings.patch": "embeddings.patch_embeddings",
        "vision.embeddings.class_token": "embeddings.cls_token:3",
        "vision.embeddings.registers": "embeddings.register_tokens:3",
        **layer_names("vision", layer, HEADS, norms=DINO_NORMS, mlp=mlp, scales=DINO_SCALES),
        "vision.norm": "norm",
        "classifier": "classifier",
    }


def dinov3_spellings(config: Mapping[str, Any]) -> Spellings:
    """Returns a config's names, as saved and as in memory."""
    # A gated MLP has its activations from a map of its own, and what they are multiplied with from that of a plain MLP.
    mlp = GATED_MLPS[1] if config.get("use_gated_mlp") else ("mlp.up_proj", "mlp.down_proj")
    return tuple(dinov3_spelling(layer, mlp) for layer in ("layer.{i}.", "model.layer.{i}."))


DINOV3 = Family(
    name="dinov3",
    title="DINOv3",
    config_type="dinov3_vit",
    # transformers has no classifier over it: the one that is trained here lies beside its tensors.
    architectures=("DINOv3ViTModel",),
    config=Dinov3Config,
    spellings=dinov3_spellings({}),
    spelled_by=dinov3_spellings,
    interpolation=Interpolation(),  # it turns queries and keys by any grid
    base=Base(""),
    inert=(r"embeddings\.mask_token",),
)


class BeitConfig(read.Images, read.PlainEncoder, read.Labelled):
    """The fields of a BEiT's config.json."""

    use_absolute_position_embeddings: bool = False
    use_relative_position_bias: bool = False
    use_shared_relative_position_bias: bool = False
    layer_scale_init_value: Annotated[float, Checked(ge=0, le=1e6)] = 0.1
    use_mean_pooling: bool = True

    def spec(self) -> ModelSpec:
        embeddings = replace(self.embeddings(), learned=self.use_absolute_position_embeddings)
        relative = self.use_relative_position_bias + self.use_shared_relative_position_bias
        if relative == 2:
            raise ValueError("use_relative_position_bias and use_shared_relative_position_bias are both set")
        if relative and embeddings.grid[0] != embeddings.grid[1]:
            raise ValueError(f"image_size is {self.image_size}, should be square where positions are relative")
        tower = replace(
            self.plain_tower("vision", embeddings),
            unbiased=("attention.k",),
            relative=Relative() if relative else None,
            layer_scale=self.layer_scale_init_value > 0,
            pool="mean" if self.use_mean_pooling else "first",
        )
        return self.classifier(tower)


BEIT_LAYER, BEIT_SCALES = "beit.encoder.layer.{i}.", ("lambda_1", "lambda_2")
RELATIVE = "relative_position_bias.relative_position_bias_table^T"

BEIT = Family(
    name="beit",
    title="BEiT",
    architectures=("BeitForImageClassification",),
    config=BeitConfig,
    # Tables per layer or of all, the norm behind the mean or before it.
    spellings=tuple(
        _outside("beit")
        | layer_names("vision", BEIT_LAYER, SAVED_HEADS, norms=NORMS, mlp=MLP, scales=BEIT_SCALES)
        | {"vision.layers.{i}.attention.relative": table + RELATIVE, "vision.norm": f"beit.{norm}"}
        for norm in ("pooler.layernorm", "layernorm")
        for table in (f"{BEIT_LAYER}attention.attention.", "beit.encoder.")
    ),
    saved_as=lambda config: (
        2 * (not config.get("use_mean_pooling", True)) + bool(config.get("use_shared_relative_position_bias"))
    ),
    interpolation=Interpolation(single=False),
    # The model of masked patches has no norm behind the mean of patches.
    base=Base("beit.", untrained=("vision.norm",)),
    inert=(r"beit\.embeddings\.mask_token", r".*\.relative_position_index"),
)
DATA2VEC_VISION = kin(
    BEIT, "data2vec-vision", "data2vec (images)", "Data2VecVisionForImageClassification", model="data2vec_vision"
)
