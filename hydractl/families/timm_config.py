"""Schemas of the settings that timm builds a network from; they are checked first, as timm builds any size."""

from typing import Annotated, Literal

from hydractl.families import config as read
from hydractl.schema import Checked, Items, Schema


class _Pretrained(read.Fields):
    """The fields under `pretrained_cfg` that decide how the network is built."""

    input_size: tuple[read.Channels, read.ImageSide, read.ImageSide] | None = None
    fixed_input_size: bool | None = None
    num_classes: Annotated[int, Checked(ge=-1), read.within("classes")] | None = None
    global_pool: read.Name | None = None


class _Arguments(Schema):
    """The arguments of timm's VisionTransformer, Eva and Beit that JSON can hold; null leaves one to timm."""

    img_size: read.ImageSize | None = None
    patch_size: read.PatchSize | None = None
    in_chans: read.Channels | None = None
    num_classes: read.Classes | None = None
    global_pool: Annotated[str, Checked(max_length=20)] | None = None
    embed_dim: read.Width | None = None
    depth: read.Layers | None = None
    num_heads: read.Heads | None = None
    mlp_ratio: read.MlpRatio | None = None
    qkv_bias: bool | None = None
    qk_norm: bool | None = None
    scale_attn_norm: bool | None = None
    scale_mlp_norm: bool | None = None
    proj_bias: bool | None = None
    init_values: Annotated[float, Checked(ge=-1000, le=1000)] | None = None
    class_token: bool | None = None
    pos_embed: read.Name | None = None
    no_embed_class: bool | None = None
    reg_tokens: read.Registers | None = None
    pre_norm: bool | None = None
    final_norm: bool | None = None
    fc_norm: bool | None = None
    pool_include_prefix: bool | None = None
    dynamic_img_size: bool | None = None
    dynamic_img_pad: bool | None = None
    drop_rate: read.Rate = None
    pos_drop_rate: read.Rate = None
    patch_drop_rate: read.Rate = None
    proj_drop_rate: read.Rate = None
    attn_drop_rate: read.Rate = None
    drop_path_rate: read.Rate = None
    weight_init: Annotated[str, Checked(max_length=20)] | None = None
    fix_init: bool | None = None
    embed_norm_layer: read.Name | None = None
    norm_layer: read.Name | None = None
    act_layer: read.Name | None = None
    attn_layer: read.Name | None = None
    use_naflex: Literal[False] | None = None
    # Eva's
    num_kv_heads: read.Heads | None = None
    qkv_fused: bool | None = None
    swiglu_mlp: bool | None = None
    swiglu_align_to: Annotated[int, Checked(ge=0, le=4096)] | None = None
    scale_mlp: bool | None = None
    scale_attn_inner: bool | None = None
    attn_type: read.Name | None = None
    attn_only_layer_scale: bool | None = None
    num_reg_tokens: read.Registers | None = None
    use_abs_pos_emb: bool | None = None
    use_rot_pos_emb: bool | None = None
    rope_type: read.Name | None = None
    rope_grid_offset: float | None = None
    rope_grid_indexing: read.Name | None = None
    rope_temperature: read.Base | None = None
    rope_rotate_half: bool | None = None
    rope_shift_coords: float | None = None
    rope_jitter_coords: float | None = None
    rope_rescale_coords: float | None = None
    use_post_norm: bool | None = None
    use_pre_transformer_norm: bool | None = None
    use_post_transformer_norm: bool | None = None
    use_fc_norm: bool | None = None
    attn_pool_num_heads: read.Heads | None = None
    attn_pool_mlp_ratio: read.MlpRatio | None = None
    ref_feat_shape: read.ImageSize | None = None
    head_init_scale: float | None = None
    # Beit's
    use_rel_pos_bias: bool | None = None
    use_shared_rel_pos_bias: bool | None = None


class Foreign(read.ClassNames):
    """The fields of a config.json that timm wrote, or transformers' wrapper of it."""

    architecture: read.Name
    num_classes: read.Classes | None = None
    label_names: Items[Annotated[str, Checked(max_length=1000)]] | None = None
    pretrained_cfg: _Pretrained
    model_args: _Arguments | None = None
