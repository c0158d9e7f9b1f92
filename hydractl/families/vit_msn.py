"""ViT-MSN for image classification, as transformers writes it: a ViT pre-trained by masked siamese networks."""

from __future__ import annotations

from hydractl.families import vit
from hydractl.families.family import Base, Family

SAVED, IN_MEMORY = vit.spellings("vit")
#: What transformers 5 writes: layers outside of the encoder that the rest of the tensors is in.
OUTSIDE = {ours: theirs.removeprefix("vit.") if ".encoder." in theirs else theirs for ours, theirs in SAVED.items()}

FAMILY = Family(
    name="vit-msn",
    title="ViT-MSN",
    model_type="vit_msn",
    architectures=("ViTMSNForImageClassification",),
    read_spec=vit.read_spec,
    spellings=(SAVED, OUTSIDE, IN_MEMORY),
    defaults=vit.DEFAULTS | {"layer_norm_eps": 1e-6},
    base=Base("vit."),
    saved_as=lambda config: 1,
    inert=(r"vit\.embeddings\.mask_token",),
)
