"""ViT for image classification, as transformers writes it (`ViTForImageClassification`)."""

from __future__ import annotations

from dataclasses import replace

from hydractl.checkpoint.spec import ModelSpec
from hydractl.families import config as read
from hydractl.families.family import Base, Family


class Config(read.Images, read.Encoder, read.Labelled):
    """The fields of a ViT's config.json."""

    intermediate_size: read.MlpWidth = 3072
    hidden_dropout_prob: read.Rate = 0.0
    attention_probs_dropout_prob: read.Rate = 0.0
    qkv_bias: bool = True

    def spec(self) -> ModelSpec:
        """The network it describes."""
        tower = self.tower(
            "vision",
            self.embeddings(),
            self.intermediate_size,
            self.hidden_dropout_prob,
            self.attention_probs_dropout_prob,
        )
        return ModelSpec("image-classification", (replace(tower, qkv_bias=self.qkv_bias),), classes=len(self.labels))


def spellings(model: str) -> tuple[dict[str, str], dict[str, str]]:
    """What the tensors of the encoder `model` are called as saved, and what they are called in memory."""
    outside = {
        "vision.embeddings.patch": f"{model}.embeddings.patch_embeddings.projection",
        "vision.embeddings.class_token": f"{model}.embeddings.cls_token:3",
        "vision.embeddings.position": f"{model}.embeddings.position_embeddings:3",
        "vision.norm": f"{model}.layernorm",
        "classifier": "classifier",
    }
    ours, saved, in_memory = "vision.layers.{i}.", f"{model}.encoder.layer.{{i}}.", f"{model}.layers.{{i}}."
    return (
        outside
        | {
            ours + "attention.q": saved + "attention.attention.query",
            ours + "attention.k": saved + "attention.attention.key",
            ours + "attention.v": saved + "attention.attention.value",
            ours + "attention.o": saved + "attention.output.dense",
            ours + "attention_norm": saved + "layernorm_before",
            ours + "mlp.fc1": saved + "intermediate.dense",
            ours + "mlp.fc2": saved + "output.dense",
            ours + "mlp_norm": saved + "layernorm_after",
        },
        outside
        | {
            ours + "attention.q": in_memory + "attention.q_proj",
            ours + "attention.k": in_memory + "attention.k_proj",
            ours + "attention.v": in_memory + "attention.v_proj",
            ours + "attention.o": in_memory + "attention.o_proj",
            ours + "attention_norm": in_memory + "layernorm_before",
            ours + "mlp.fc1": in_memory + "mlp.fc1",
            ours + "mlp.fc2": in_memory + "mlp.fc2",
            ours + "mlp_norm": in_memory + "layernorm_after",
        },
    )


FAMILY = Family(
    name="vit",
    title="ViT",
    model_type="vit",
    architectures=("ViTForImageClassification",),
    config=Config,
    spellings=spellings("vit"),
    base=Base("vit.", surplus=(r"decoder\..*",)),
    # Some released checkpoints carry the pooler or the mask token of the pre-training model; a classifier uses neither.
    inert=(r"vit\.pooler\.dense\.(weight|bias)", r"vit\.embeddings\.mask_token"),
)
