"""The architectures this project reads, one file each."""

from hydractl.families import bert, clip, deit, dinov2, distilbert, open_clip, roberta, siglip, timm_vit, vit, vit_msn
from hydractl.families.family import Family

FAMILIES: tuple[Family, ...] = (
    vit.FAMILY,
    vit_msn.FAMILY,
    deit.FAMILY,
    deit.DISTILLED,
    dinov2.FAMILY,
    dinov2.WITH_REGISTERS,
    timm_vit.FAMILY,
    clip.FAMILY,
    clip.IMAGE,
    open_clip.FAMILY,
    siglip.FAMILY,
    bert.FAMILY,
    roberta.FAMILY,
    roberta.XLM,
    distilbert.FAMILY,
)

__all__ = ["FAMILIES", "Family"]
