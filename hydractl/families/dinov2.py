"""DINOv2 with a classifier, as transformers writes it, with registers or without."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from hydractl.checkpoint.spec import ModelSpec
from hydractl.families import config as read
from hydractl.families.family import Base, Family, layer_names


class Config(read.Images, read.Encoder, read.Labelled):
    """The fields of a DINOv2's config.json."""

    mlp_ratio: read.MlpRatio = 4
    hidden_dropout_prob: read.Rate = 0.0
    attention_probs_dropout_prob: read.Rate = 0.0
    layer_norm_eps: read.NormEps = 1e-6
    patch_size: read.PatchSize = (14, 14)
    qkv_bias: bool = True
    use_swiglu_ffn: Literal[False] = False

    @property
    def registers(self) -> int:
        """The number of tokens without a place in the image."""
        return 0

    def spec(self) -> ModelSpec:
        tower = self.tower(
            "vision",
            replace(self.embeddings(), registers=self.registers, unplaced=self.registers),
            int(self.hidden_size * self.mlp_ratio),
            dropouts=(self.hidden_dropout_prob, self.attention_probs_dropout_prob),
        )
        # The classifier reads the class token and the mean patch, side by side.
        tower = replace(tower, qkv_bias=self.qkv_bias, norm_tokens=True, layer_scale=True, pool="first+mean")
        return ModelSpec("image-classification", (tower,), classes=len(self.labels))


class RegistersConfig(Config):
    """The fields of a config.json of a DINOv2 with registers."""

    num_register_tokens: read.Registers = 4
    patch_size: read.PatchSize = (16, 16)

    @property
    def registers(self) -> int:
        return self.num_register_tokens


def spellings(model: str) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the names of the encoder `model` as saved, and as in memory."""
    ours, theirs = "vision.layers.{i}.", f"{model}.encoder.layer.{{i}}."
    common = {
        "vision.embeddings.patch": f"{model}.embeddings.patch_embeddings.projection",
        "vision.embeddings.class_token": f"{model}.embeddings.cls_token:3",
        "vision.embeddings.registers": f"{model}.embeddings.register_tokens:3",
        "vision.embeddings.position": f"{model}.embeddings.position_embeddings:3",
        ours + "attention_scale": theirs + "layer_scale1.lambda1",
        ours + "mlp_scale": theirs + "layer_scale2.lambda1",
        "vision.norm": f"{model}.layernorm",
        "classifier": "classifier",
    }
    norms, mlp = ("norm1", "norm2"), ("mlp.fc1", "mlp.fc2")
    saved = [f"attention.{name}" for name in ("attention.query", "attention.key", "attention.value", "output.dense")]
    in_memory = [f"attention.{part}_proj" for part in "qkvo"]
    return (
        common | layer_names("vision", theirs, saved, norms=norms, mlp=mlp),
        common | layer_names("vision", theirs, in_memory, norms=norms, mlp=mlp),
    )


FAMILY = Family(
    name="dinov2",
    title="DINOv2",
    model_type="dinov2",
    architectures=("Dinov2ForImageClassification",),
    config=Config,
    spellings=spellings("dinov2"),
    base=Base("dinov2."),
    inert=(r"dinov2\.embeddings\.mask_token",),
)
WITH_REGISTERS = Family(
    name="dinov2-registers",
    title="DINOv2 with registers",
    model_type="dinov2_with_registers",
    architectures=("Dinov2WithRegistersForImageClassification",),
    config=RegistersConfig,
    spellings=spellings("dinov2_with_registers"),
    base=Base("dinov2_with_registers."),
    inert=(r"dinov2_with_registers\.embeddings\.mask_token",),
)
