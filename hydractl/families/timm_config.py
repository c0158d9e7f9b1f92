"""Schemas of the settings that timm builds a network from; they are checked first, as timm builds any size."""

from typing import Annotated, Any, Literal

from hydractl.families import config as read
from hydractl.schema import Checked, Items, Schema


class _Pretrained(read.Fields):
    """The fields under `pretrained_cfg` that decide how the network is built."""

    input_size: tuple[read.Channels, read.ImageSide, read.ImageSide] | None = None
    fixed_input_size: bool | None = None
    num_classes: Annotated[int, Checked(ge=-1), read.within("classes")] | None = None
    global_pool: read.Name | None = None


#: The arguments of timm's VisionTransformer, Eva and Beit that JSON can hold, by their kind; null leaves one to timm.
ARGUMENTS: tuple[tuple[Any, str], ...] = (
    (read.ImageSize, "img_size ref_feat_shape"),
    (read.PatchSize, "patch_size"),
    (read.Channels, "in_chans"),
    (read.Classes, "num_classes"),
    (read.Width, "embed_dim"),
    (read.Layers, "depth"),
    (read.Heads, "num_heads num_kv_heads attn_pool_num_heads"),
    (read.MlpRatio, "mlp_ratio attn_pool_mlp_ratio"),
    (read.Registers, "reg_tokens num_reg_tokens"),
    (read.Base, "rope_temperature"),
    (read.Rate, "drop_rate pos_drop_rate patch_drop_rate proj_drop_rate attn_drop_rate drop_path_rate"),
    (read.Name, "pos_embed embed_norm_layer norm_layer act_layer attn_layer attn_type rope_type rope_grid_indexing"),
    (Annotated[str, Checked(max_length=20)], "global_pool weight_init"),
    (Annotated[float, Checked(ge=-1000, le=1000)], "init_values"),
    (Annotated[int, Checked(ge=0, le=4096)], "swiglu_align_to"),
    (float, "rope_grid_offset rope_shift_coords rope_jitter_coords rope_rescale_coords head_init_scale"),
    (Literal[False], "use_naflex"),
    (bool, "qkv_bias qk_norm scale_attn_norm scale_mlp_norm proj_bias class_token no_embed_class pre_norm final_norm"),
    (bool, "fc_norm pool_include_prefix dynamic_img_size dynamic_img_pad fix_init qkv_fused swiglu_mlp scale_mlp"),
    (bool, "scale_attn_inner attn_only_layer_scale use_abs_pos_emb use_rot_pos_emb rope_rotate_half use_post_norm"),
    (bool, "use_pre_transformer_norm use_post_transformer_norm use_fc_norm use_rel_pos_bias use_shared_rel_pos_bias"),
)
_KINDS = {name: kind | None for kind, names in ARGUMENTS for name in names.split()}
_Arguments = type("_Arguments", (Schema,), {"__annotations__": _KINDS, **dict.fromkeys(_KINDS)})


class Foreign(read.ClassNames):
    """The fields of a config.json that timm wrote, or transformers' wrapper of it."""

    architecture: read.Name
    num_classes: read.Classes | None = None
    label_names: Items[Annotated[str, Checked(max_length=1000)]] | None = None
    pretrained_cfg: _Pretrained
    model_args: _Arguments | None = None  # type: ignore[valid-type]
