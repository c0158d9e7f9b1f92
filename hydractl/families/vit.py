"""ViT and its kin (MSN, I-JEPA, DeiT, DINO, BEiT, data2vec) with a classifier, as transformers writes them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import ImageEmbeddings, Relative, Rotary, Unbiased
from hydractl.families import config as read
from hydractl.families.family import Base, Family, Interpolation, layer_names
from hydractl.schema import Checked


class VitConfig(read.Images, read.PlainEncoder, read.Labelled):
    """The fields of a ViT's config.json."""

    qkv_bias: bool = True

    def spec(self) -> ModelSpec:
        tower = replace(self.plain_tower("vision", self.embeddings()), qkv_bias=self.qkv_bias)
        return ModelSpec("image-classification", (tower,), classes=len(self.labels))


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
        return ModelSpec("image-classification", (tower,), classes=len(self.labels))


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
        return ModelSpec("image-classification", (tower,), classes=len(self.labels))


#: Names of q, k, v and o as saved, and as in memory.
SAVED_HEADS = [f"attention.{name}" for name in ("attention.query", "attention.key", "attention.value", "output.dense")]
HEADS = [f"attention.{part}_proj" for part in "qkvo"]


def _spellings(model: str) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the names of the encoder `model` as saved, and as in memory."""
    common, norms = _outside(model), ("layernorm_before", "layernorm_after")
    layer = f"{model}.encoder.layer.{{i}}."
    return (
        common | layer_names("vision", layer, SAVED_HEADS, norms=norms, mlp=("intermediate.dense", "output.dense")),
        common | layer_names("vision", f"{model}.layers.{{i}}.", HEADS, norms=norms, mlp=("mlp.fc1", "mlp.fc2")),
    )


Spellings = tuple[dict[str, str], ...]


def dinov2_spellings(model: str) -> Callable[[Mapping[str, Any]], Spellings]:
    """Returns a config's names of the encoder `model`, as saved and as in memory."""
    ours, theirs, norms = "vision.layers.{i}.", f"{model}.encoder.layer.{{i}}.", ("norm1", "norm2")
    common = _outside(model) | {
        "vision.embeddings.registers": f"{model}.embeddings.register_tokens:3",
        ours + "attention_scale": theirs + "layer_scale1.lambda1",
        ours + "mlp_scale": theirs + "layer_scale2.lambda1",
    }

    def spelling(heads: Sequence[str], mlp: tuple[str, str], factor: str) -> dict[str, str]:
        layer = layer_names("vision", theirs, heads, norms=norms, mlp=mlp)
        return common | layer | {ours + "mlp.factor": theirs + factor}

    def spelled(config: Mapping[str, Any]) -> Spellings:
        if not config.get("use_swiglu_ffn"):
            return tuple(spelling(heads, ("mlp.fc1", "mlp.fc2"), "") for heads in (SAVED_HEADS, HEADS))
        return (
            spelling(SAVED_HEADS, ("mlp.weights_in[0/2]", "mlp.weights_out"), "mlp.weights_in[1/2]"),
            spelling(HEADS, ("mlp.gate_proj", "mlp.down_proj"), "mlp.up_proj"),
        )

    return spelled


def _outside(model: str) -> dict[str, str]:
    """Returns the names outside of the layers."""
    return {
        "vision.embeddings.patch": f"{model}.embeddings.patch_embeddings.projection",
        "vision.embeddings.class_token": f"{model}.embeddings.cls_token:3",
        "vision.embeddings.position": f"{model}.embeddings.position_embeddings:3",
        "vision.norm": f"{model}.layernorm",
        "classifier": "classifier",
    }


SAVED, IN_MEMORY = _spellings("vit")
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
MSN = Family(
    name="vit-msn",
    title="ViT-MSN",
    config_type="vit_msn",
    architectures=("ViTMSNForImageClassification",),
    config=MsnConfig,
    spellings=(SAVED, OUTSIDE, IN_MEMORY),
    base=Base("vit."),
    saved_as=lambda config: 1,
    inert=(r"vit\.embeddings\.mask_token",),
)
IJEPA = Family(
    name="ijepa",
    title="I-JEPA",
    architectures=("IJepaForImageClassification",),
    config=IjepaConfig,
    spellings=_spellings("ijepa"),
    base=Base("ijepa."),
    inert=(r"ijepa\.pooler\.dense\.(weight|bias)", r"ijepa\.embeddings\.mask_token"),
)
TOKEN = {"vision.embeddings.distillation_token": "deit.embeddings.distillation_token:3"}
CLASSIFIERS = {"classifier": "cls_classifier", "distillation_classifier": "distillation_classifier"}
DEIT_INERT = (r"deit\.pooler\.dense\.(weight|bias)", r"deit\.embeddings\.mask_token")

DEIT = Family(
    name="deit",
    title="DeiT",
    architectures=("DeiTForImageClassification",),
    config=DeitConfig,
    spellings=tuple(spelling | TOKEN for spelling in _spellings("deit")),
    base=Base("deit."),
    inert=DEIT_INERT,
)
DISTILLED_DEIT = Family(
    name="deit-distilled",
    title="DeiT (distilled)",
    config_type="deit",
    architectures=("DeiTForImageClassificationWithTeacher",),
    config=DistilledDeitConfig,
    spellings=tuple(spelling | TOKEN | CLASSIFIERS for spelling in _spellings("deit")),
    inert=DEIT_INERT,
)
DINOV2 = Family(
    name="dinov2",
    title="DINOv2",
    architectures=("Dinov2ForImageClassification",),
    config=Dinov2Config,
    spellings=dinov2_spellings("dinov2")({}),
    spelled_by=dinov2_spellings("dinov2"),
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
    spellings=dinov2_spellings("dinov2_with_registers")({}),
    spelled_by=dinov2_spellings("dinov2_with_registers"),
    interpolation=Interpolation(antialias=True),
    base=Base("dinov2_with_registers."),
    inert=(r"dinov2_with_registers\.embeddings\.mask_token",),
)


def dinov3_spelling(layer: str) -> dict[str, str]:
    """Returns the names of a DINOv3 whose names of a layer begin with `layer`, as it is saved or as in memory."""
    ours = "vision.layers.{i}."
    attention, norms = [f"attention.{part}_proj" for part in "qkvo"], ("norm1", "norm2")
    return {
        "vision.embeddings.patch": "embeddings.patch_embeddings",
        "vision.embeddings.class_token": "embeddings.cls_token:3",
        "vision.embeddings.registers": "embeddings.register_tokens:3",
        **layer_names("vision", layer, attention, norms=norms, mlp=("mlp.up_proj", "mlp.down_proj")),
        ours + "attention_scale": layer + "layer_scale1.lambda1",
        ours + "mlp_scale": layer + "layer_scale2.lambda1",
        "vision.norm": "norm",
        "classifier": "classifier",
    }


def dinov3_spellings(config: Mapping[str, Any]) -> Spellings:
    """Returns a config's names, as saved and as in memory."""
    # A gated MLP has its activations from a map of its own, and what they are multiplied with from that of a plain MLP.
    gated = {"mlp.fc1": "mlp.gate_proj", "mlp.factor": "mlp.up_proj"} if config.get("use_gated_mlp") else {}
    return tuple(
        dinov3_spelling(layer) | {f"vision.layers.{{i}}.{ours}": layer + theirs for ours, theirs in gated.items()}
        for layer in ("layer.{i}.", "model.layer.{i}.")
    )


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


RELATIVE = "relative_position_bias.relative_position_bias_table^T"


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
        return ModelSpec("image-classification", (tower,), classes=len(self.labels))


def beit_spellings(model: str) -> tuple[dict[str, str], ...]:
    """Returns the names of the encoder `model`: tables per layer or of all, the norm behind the mean or before it."""
    ours, theirs = "vision.layers.{i}.", f"{model}.encoder.layer.{{i}}."
    norms, mlp = ("layernorm_before", "layernorm_after"), ("intermediate.dense", "output.dense")
    common = {
        "vision.embeddings.patch": f"{model}.embeddings.patch_embeddings.projection",
        "vision.embeddings.class_token": f"{model}.embeddings.cls_token:3",
        "vision.embeddings.position": f"{model}.embeddings.position_embeddings:3",
        **layer_names("vision", theirs, SAVED_HEADS, norms=norms, mlp=mlp),
        ours + "attention_scale": theirs + "lambda_1",
        ours + "mlp_scale": theirs + "lambda_2",
        "classifier": "classifier",
    }
    tables = (f"{theirs}attention.attention.{RELATIVE}", f"{model}.encoder.{RELATIVE}")
    return tuple(
        common | {ours + "attention.relative": table, "vision.norm": f"{model}.{norm}"}
        for norm in ("pooler.layernorm", "layernorm")
        for table in tables
    )


BEIT = Family(
    name="beit",
    title="BEiT",
    architectures=("BeitForImageClassification",),
    config=BeitConfig,
    spellings=beit_spellings("beit"),
    saved_as=lambda config: (
        2 * (not config.get("use_mean_pooling", True)) + bool(config.get("use_shared_relative_position_bias"))
    ),
    interpolation=Interpolation(single=False),
    # The model of masked patches has no norm behind the mean of patches.
    base=Base("beit.", untrained=("vision.norm",)),
    inert=(r"beit\.embeddings\.mask_token", r".*\.relative_position_index"),
)
DATA2VEC_VISION = replace(
    BEIT,
    name="data2vec-vision",
    title="data2vec (images)",
    architectures=("Data2VecVisionForImageClassification",),
    spellings=beit_spellings("data2vec_vision"),
    base=Base("data2vec_vision.", untrained=("vision.norm",)),
    inert=(r"data2vec_vision\.embeddings\.mask_token", r".*\.relative_position_index"),
)
