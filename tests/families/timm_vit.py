"""Variants of timm's vision transformers."""

from __future__ import annotations

from typing import Any

import torch

from tests import references
from tests.references import BATCH, SIZES, Architecture, Built


def timm_model(name: str = "vit_tiny_patch16_224", **changes: Any) -> Built:
    width, depth, heads, hidden = SIZES.values()
    sizes = {"embed_dim": width, "depth": depth, "num_heads": heads, "mlp_ratio": hidden / width}
    sizes |= {"img_size": 12, "patch_size": 4, "num_classes": references.CLASSES}
    model = references.make_timm(name, **{**sizes, **changes})
    return model, {"pixel_values": torch.randn(BATCH, changes.get("in_chans", 3), *model.patch_embed.img_size)}


VARIANTS = Architecture(
    variants={
        "timm": timm_model,
        "timm-average": lambda: timm_model(global_pool="avg", class_token=False),
        "timm-average-norm-first": lambda: timm_model(global_pool="avg", fc_norm=False),
        "timm-average-no-norm": lambda: timm_model(global_pool="avg", final_norm=False, in_chans=1, qkv_bias=False),
        "timm-registers": lambda: timm_model(reg_tokens=2, no_embed_class=True, init_values=1e-5),
        "timm-registers-placed": lambda: timm_model(reg_tokens=3, dynamic_img_size=True, img_size=[8, 12]),
        "timm-clip": lambda: timm_model("vit_base_patch16_clip_224", act_layer="gelu_tanh", fc_norm=True),
        "timm-quick-gelu": lambda: timm_model("vit_base_patch16_clip_quickgelu_224"),
        "timm-deit": lambda: timm_model("deit_tiny_distilled_patch16_224"),
        "timm-deit3": lambda: timm_model("deit3_small_patch16_224"),
    },
    typical=("timm-registers", "timm-deit"),
)
ARCHITECTURES = (VARIANTS,)
