"""The architectures this project reads, one file each, and those it refuses."""

from hydractl.families import beit, bert, clip, modernbert, open_clip, timm_vit, vit
from hydractl.families.family import Family

FAMILIES: tuple[Family, ...] = (
    vit.VIT,
    vit.MSN,
    vit.DEIT,
    vit.DISTILLED_DEIT,
    vit.DINOV2,
    vit.DINOV2_WITH_REGISTERS,
    vit.DINOV3,
    beit.BEIT,
    beit.DATA2VEC_VISION,
    timm_vit.FAMILY,
    clip.CLIP,
    clip.CLIP_IMAGE,
    open_clip.FAMILY,
    clip.SIGLIP,
    clip.SIGLIP_IMAGE,
    bert.BERT,
    bert.ELECTRA,
    bert.MPNET,
    bert.DEBERTA_V2,
    bert.ROBERTA,
    bert.XLM_ROBERTA,
    bert.DISTILBERT,
    modernbert.FAMILY,
)

#: Architectures that are not read: model_type of config.json to the reason.
REFUSED = {
    "albert": "its layers share one set of weights, so a head is dropped in all of them or in none",
    "convnext": "it has no attention heads",
    "deberta": "its queries, keys and values lie head by head in one map, which only version 1 does",
    "gpt2": "it is a decoder",
    "hydra": "it is an export, so give the hydractl file that it was exported from",
    "longformer": "its attention is sparse",
    "resnet": "it has no attention heads",
    "siglip2": "it takes images cut to patches of many sizes",
    "swin": "its attention works in windows and adds relative positions",
    "swinv2": "its attention works in windows and adds relative positions",
    "t5": "its attention adds relative positions",
    "xlnet": "its attention adds relative positions",
}

__all__ = ["FAMILIES", "REFUSED", "Family"]
