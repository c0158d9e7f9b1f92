"""DINOv2 with a classifier, as transformers writes it, with registers or without."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from hydractl.checkpoint.spec import ModelSpec
from hydractl.families import config as read
from hydractl.families.family import Base, Family


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
        """How many tokens without a place in the image there are."""
        return 0

    def spec(self) -> ModelSpec:
        """The network it describes: class token and mean patch, side by side, are classified."""
        embeddings = replace(self.embeddings(), registers=self.registers, unplaced=self.registers)
        mlp_width = int(self.hidden_size * self.mlp_ratio)
        tower = replace(
            self.tower("vision", embeddings, mlp_width, self.hidden_dropout_prob, self.attention_probs_dropout_prob),
            qkv_bias=self.qkv_bias,
            norm_tokens=True,
            layer_scale=True,
            pool="first+mean",
        )
        return ModelSpec("image-classification", (tower,), classes=len(self.labels))


class RegistersConfig(Config):
    """The fields of a config.json of a DINOv2 with registers."""

    num_register_tokens: read.Registers = 4
    patch_size: read.PatchSize = (16, 16)

    @property
    def registers(self) -> int:
        """How many registers there are."""
        return self.num_register_tokens


def spellings(model: str) -> tuple[dict[str, str], dict[str, str]]:
    """What the tensors of the encoder `model` are called as saved, and what they are called in memory."""
    ours, theirs = "vision.layers.{i}.", f"{model}.encoder.layer.{{i}}."
    common = {
        "vision.embeddings.patch": f"{model}.embeddings.patch_embeddings.projection",
        "vision.embeddings.class_token": f"{model}.embeddings.cls_token:3",
        "vision.embeddings.registers": f"{model}.embeddings.register_tokens:3",
        "vision.embeddings.position": f"{model}.embeddings.position_embeddings:3",
        ours + "attention_norm": theirs + "norm1",
        ours + "attention_scale": theirs + "layer_scale1.lambda1",
        ours + "mlp.fc1": theirs + "mlp.fc1",
        ours + "mlp.fc2": theirs + "mlp.fc2",
        ours + "mlp_norm": theirs + "norm2",
        ours + "mlp_scale": theirs + "layer_scale2.lambda1",
        "vision.norm": f"{model}.layernorm",
        "classifier": "classifier",
    }
    return (
        common
        | {
            ours + "attention.q": theirs + "attention.attention.query",
            ours + "attention.k": theirs + "attention.attention.key",
            ours + "attention.v": theirs + "attention.attention.value",
            ours + "attention.o": theirs + "attention.output.dense",
        },
        common
        | {
            ours + "attention.q": theirs + "attention.q_proj",
            ours + "attention.k": theirs + "attention.k_proj",
            ours + "attention.v": theirs + "attention.v_proj",
            ours + "attention.o": theirs + "attention.o_proj",
        },
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
