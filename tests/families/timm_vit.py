from inspect import signature
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


def turned(name: str, **changes: Any) -> Built:
    width = 8 * SIZES["num_attention_heads"]  # a head's is a multiple of 4
    return timm_model(name, embed_dim=width, mlp_ratio=SIZES["intermediate_size"] / width, **changes)


def pe_core() -> Built:
    """A network whose pooling has heads of another number."""
    ratio = SIZES["intermediate_size"] / (8 * SIZES["num_attention_heads"])
    pooling = {"attn_pool_num_heads": 2, "attn_pool_mlp_ratio": ratio}
    return turned("vit_pe_core_base_patch16_224", ref_feat_shape=[2, 5], **pooling)


def rotary_norms() -> dict[str, bool]:
    """Norms of queries and keys, which timm gives no rotary network before 1.0.30."""
    from timm.models.eva import Eva

    return {"qk_norm": True} if "qk_norm" in signature(Eva).parameters else {}


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
        "timm-map": lambda: timm_model(global_pool="map", class_token=False, qk_norm=True, proj_bias=False),
        "timm-map-prefix": lambda: timm_model(global_pool="map", reg_tokens=1, pos_embed="none"),
        "timm-average-all": lambda: timm_model(global_pool="avg", pool_include_prefix=True, scale_mlp_norm=True),
        "timm-swiglu": lambda: timm_model("vit_giant_patch14_dinov2", init_values=1e-5),
        "timm-eva": lambda: timm_model("eva_giant_patch14_224"),
        "timm-eva02": lambda: turned("eva02_base_patch14_224", ref_feat_shape=[2, 5]),
        "timm-eva02-tiny": lambda: turned("eva02_tiny_patch14_224", img_size=[8, 12]),
        "timm-rope-registers": lambda: turned("vit_base_patch16_rope_reg1_gap_256", num_reg_tokens=2, **rotary_norms()),
        "timm-rope-columns": lambda: turned("vit_base_patch16_rope_224", img_size=[8, 12]),
        "timm-dinov3": lambda: turned("vit_base_patch16_dinov3", img_size=[8, 12]),
        "timm-pe-core": pe_core,
        "timm-beit": lambda: timm_model("beit_base_patch16_224", img_size=[8, 12]),
        "timm-beit-shared-first": lambda: timm_model(
            "beit_base_patch16_224",
            use_rel_pos_bias=False,
            use_shared_rel_pos_bias=True,
            use_abs_pos_emb=True,
            global_pool="token",
            init_values=0.0,
        ),
        "timm-deit": lambda: timm_model("deit_tiny_distilled_patch16_224"),
        "timm-deit3": lambda: timm_model("deit3_small_patch16_224"),
    },
    typical=("timm-registers", "timm-deit", "timm-eva02-tiny", "timm-rope-registers", "timm-pe-core", "timm-beit"),
)
