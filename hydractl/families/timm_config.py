"""Schemas of the settings that timm builds a network from; they are checked first, as timm builds any size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydractl.families import config as read
from hydractl.schema import Checked, Items, Schema


class _Pretrained(read.Fields):
    """The fields under `pretrained_cfg` that decide how the network is built."""

    input_size: tuple[read.Channels, read.ImageSide, read.ImageSide] | None = None
    fixed_input_size: bool | None = None
    num_classes: Annotated[int, Checked(ge=-1), read.within("classes")] | None = None
    global_pool: read.Name | None = None


_Word = Annotated[str, Checked(max_length=20)]
#: The arguments of timm's VisionTransformer and Eva that JSON can hold, by what each may be.
_ARGUMENTS: dict[Any, str] = {
    bool: "qkv_bias qk_norm scale_attn_norm scale_mlp_norm proj_bias class_token no_embed_class pre_norm final_norm "
    "fc_norm pool_include_prefix dynamic_img_size dynamic_img_pad fix_init qkv_fused swiglu_mlp scale_mlp "
    "scale_attn_inner attn_only_layer_scale use_abs_pos_emb use_rot_pos_emb rope_rotate_half use_post_norm "
    "use_pre_transformer_norm use_post_transformer_norm use_fc_norm",
    Literal[False]: "use_naflex",
    read.Name: "pos_embed embed_norm_layer norm_layer act_layer attn_layer attn_type rope_type rope_grid_indexing",
    _Word: "global_pool weight_init",
    read.Rate: "drop_rate pos_drop_rate patch_drop_rate proj_drop_rate attn_drop_rate drop_path_rate",
    float: "rope_grid_offset rope_shift_coords rope_jitter_coords rope_rescale_coords head_init_scale",
    Annotated[float, Checked(ge=-1000, le=1000)]: "init_values",
    Annotated[int, Checked(ge=0, le=4096)]: "swiglu_align_to",
    read.MlpRatio: "mlp_ratio attn_pool_mlp_ratio",
    read.ImageSize: "img_size ref_feat_shape",
    read.PatchSize: "patch_size",
    read.Channels: "in_chans",
    read.Classes: "num_classes",
    read.Width: "embed_dim",
    read.Layers: "depth",
    read.Heads: "num_heads num_kv_heads attn_pool_num_heads",
    read.Registers: "reg_tokens num_reg_tokens",
    read.Base: "rope_temperature",
}
_KINDS: dict[str, Any] = {name: kind | None for kind, names in _ARGUMENTS.items() for name in names.split()}
if TYPE_CHECKING:
    _Arguments = Schema
else:  # null leaves an argument to timm; one that is not named here is refused
    _Arguments = type("_Arguments", (Schema,), {"__annotations__": _KINDS, **dict.fromkeys(_KINDS)})


class Foreign(read.ClassNames):
    """The fields of a config.json that timm wrote, or transformers' wrapper of it."""

    architecture: read.Name
    num_classes: read.Classes | None = None
    label_names: Items[Annotated[str, Checked(max_length=1000)]] | None = None
    pretrained_cfg: _Pretrained
    model_args: _Arguments | None = None
