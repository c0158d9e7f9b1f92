"""ViT for image classification, as transformers writes it, and ViT-MSN (masked siamese networks)."""

from __future__ import annotations

from dataclasses import replace

from hydractl.checkpoint.spec import ModelSpec
from hydractl.families import config as read
from hydractl.families.family import Base, Family, layer_names


class Config(read.Images, read.Encoder, read.Labelled):
    """The fields of a ViT's config.json."""

    intermediate_size: read.MlpWidth = 3072
    hidden_dropout_prob: read.Rate = 0.0
    attention_probs_dropout_prob: read.Rate = 0.0
    qkv_bias: bool = True

    def spec(self) -> ModelSpec:
        tower = self.tower(
            "vision",
            self.embeddings(),
            self.intermediate_size,
            dropouts=(self.hidden_dropout_prob, self.attention_probs_dropout_prob),
        )
        return ModelSpec("image-classification", (replace(tower, qkv_bias=self.qkv_bias),), classes=len(self.labels))


class MsnConfig(Config):
    """The fields of a ViT-MSN's config.json."""

    layer_norm_eps: read.NormEps = 1e-6


def spellings(model: str) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the names of the encoder `model` as saved, and as in memory."""
    outside = {
        "vision.embeddings.patch": f"{model}.embeddings.patch_embeddings.projection",
        "vision.embeddings.class_token": f"{model}.embeddings.cls_token:3",
        "vision.embeddings.position": f"{model}.embeddings.position_embeddings:3",
        "vision.norm": f"{model}.layernorm",
        "classifier": "classifier",
    }
    norms = ("layernorm_before", "layernorm_after")
    saved = [f"attention.{name}" for name in ("attention.query", "attention.key", "attention.value", "output.dense")]
    in_memory = [f"attention.{part}_proj" for part in "qkvo"]
    layer = f"{model}.encoder.layer.{{i}}."
    return (
        outside | layer_names("vision", layer, saved, norms=norms, mlp=("intermediate.dense", "output.dense")),
        outside | layer_names("vision", f"{model}.layers.{{i}}.", in_memory, norms=norms, mlp=("mlp.fc1", "mlp.fc2")),
    )


SAVED, IN_MEMORY = spellings("vit")
#: ViT-MSN as transformers 5 writes it: with the layers outside of the encoder that holds all other tensors.
OUTSIDE = {ours: theirs.removeprefix("vit.") if ".encoder." in theirs else theirs for ours, theirs in SAVED.items()}

FAMILY = Family(
    name="vit",
    title="ViT",
    model_type="vit",
    architectures=("ViTForImageClassification",),
    config=Config,
    spellings=(SAVED, IN_MEMORY),
    base=Base("vit.", surplus=(r"decoder\..*",)),
    # Some released checkpoints carry the pooler or the mask token of the pre-training model; a classifier uses neither.
    inert=(r"vit\.pooler\.dense\.(weight|bias)", r"vit\.embeddings\.mask_token"),
)
MSN = Family(
    name="vit-msn",
    title="ViT-MSN",
    model_type="vit_msn",
    architectures=("ViTMSNForImageClassification",),
    config=MsnConfig,
    spellings=(SAVED, OUTSIDE, IN_MEMORY),
    base=Base("vit."),
    saved_as=lambda config: 1,
    inert=(r"vit\.embeddings\.mask_token",),
)
