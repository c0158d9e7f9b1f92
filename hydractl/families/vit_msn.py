"""ViT-MSN for image classification, as transformers writes it: a ViT pre-trained by masked siamese networks."""

from __future__ import annotations

from hydractl.families import config as read
from hydractl.families import vit
from hydractl.families.family import Base, Family


class Config(vit.Config):
    """The fields of a ViT-MSN's config.json."""

    layer_norm_eps: read.NormEps = 1e-6


SAVED, IN_MEMORY = vit.spellings("vit")
#: What transformers 5 writes: layers outside of the encoder that the rest of the tensors is in.
OUTSIDE = {ours: theirs.removeprefix("vit.") if ".encoder." in theirs else theirs for ours, theirs in SAVED.items()}

FAMILY = Family(
    name="vit-msn",
    title="ViT-MSN",
    model_type="vit_msn",
    architectures=("ViTMSNForImageClassification",),
    config=Config,
    spellings=(SAVED, OUTSIDE, IN_MEMORY),
    base=Base("vit."),
    saved_as=lambda config: 1,
    inert=(r"vit\.embeddings\.mask_token",),
)
