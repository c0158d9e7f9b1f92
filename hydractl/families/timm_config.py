"""timm's vision transformers as data: their settings, and what their config and their tensors are called."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from hydractl.checkpoint.spec import ModelSpec
from hydractl.families import config as read
from hydractl.families.family import Base, Family, layer_names
from hydractl.schema import Checked, Items, Schema


class _Pretrained(read.Fields):
    """The fields under `pretrained_cfg` that decide how the network is built."""

    input_size: tuple[read.Channels, read.ImageSide, read.ImageSide] | None = None
    fixed_input_size: bool | None = None
    num_classes: Annotated[int, Checked(ge=-1), read.within("classes")] | None = None
    global_pool: read.Name | None = None


#: The arguments of timm's VisionTransformer, Eva and Beit that JSON can hold, by their kind; null leaves one to timm.
#: They are checked first, as timm builds any size.
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


class TimmConfig(read.Labelled):
    """The fields of a config.json that `describe` has completed."""

    structure: ModelSpec
    norm_name: Literal["norm", "fc_norm"]
    attention_names: Literal["fused", "biases", "apart"] = "fused"
    mlp_names: Literal["plain", "fused", "apart"] = "plain"
    scale_names: Literal["ls", "gamma"] = "ls"
    relative_names: Literal["own", "shared"] = "own"
    model_args: dict[str, Any] | None = None

    def spec(self) -> ModelSpec:
        # Classes may have been replaced since `describe` looked at the network.
        return replace(self.structure, classes=len(self.labels))


def to_source(config: Mapping[str, Any], labels: Sequence[str] | None) -> dict[str, Any]:
    """Returns timm's own config.json, with the present classes."""
    ours = {"structure", "norm_name", "attention_names", "mlp_names", "scale_names", "relative_names"}
    ours |= {"id2label", "label2id", "model_type", "num_labels"}
    theirs = nested({name: value for name, value in config.items() if name not in ours})
    count = len(labels or ())
    theirs["num_classes"] = count
    theirs["model_args"] = {**(theirs.get("model_args") or {}), "num_classes": count}
    if labels and any(label != f"LABEL_{i}" for i, label in enumerate(labels)):
        theirs["label_names"] = list(labels)
    return theirs


def nested(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a config in timm's present form; the oldest has all settings in one place, and class names as `labels`.

    Source: timm's `_parse_model_cfg`.
    """
    if "pretrained_cfg" in config:
        return dict(config)
    settings = {"label_names" if name == "labels" else name: value for name, value in config.items()}
    above = ("architecture", "num_features", "label_names")
    return {name: settings.pop(name) for name in above if name in settings} | {"pretrained_cfg": settings}


FUSED = [*(f"attn.qkv[{part}/3]" for part in range(3)), "attn.proj"]
APART = [*(f"attn.{part}_proj" for part in "qkv"), "attn.proj"]
MLPS = {
    "plain": ("mlp.fc1", "mlp.fc2"),
    "fused": ("mlp.fc1[0/2]", "mlp.fc2", "mlp.fc1[1/2]"),
    "apart": ("mlp.fc1_g", "mlp.fc2", "mlp.fc1_x"),
}
SCALES = {"ls": ("ls1.gamma", "ls2.gamma"), "gamma": ("gamma_1", "gamma_2")}
POOL = {part: part for part in ("q", "norm", "mlp.fc1", "mlp.fc2")} | {"k": "kv[0/2]", "v": "kv[1/2]", "o": "proj"}


def _spelling(config: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Returns timm's names: it has several for some parts, and transformers' wrapper puts a prefix before all."""
    attention, layer = config.get("attention_names", "fused"), prefix + "blocks.{i}."
    mlp, scales = MLPS[config.get("mlp_names", "plain")], SCALES[config.get("scale_names", "ls")]
    layers = layer_names(
        "vision", layer, APART if attention == "apart" else FUSED, norms=("norm1", "norm2"), mlp=mlp, scales=scales
    )
    others = {"attention.q_norm": "attn.q_norm", "attention.k_norm": "attn.k_norm", "mlp.norm": "mlp.norm"}
    if attention == "biases":
        others |= {"attention.q.bias": "attn.q_bias", "attention.v.bias": "attn.v_bias"}
    table = prefix + "rel_pos_bias" if config.get("relative_names") == "shared" else layer + "attn"
    return {
        "vision.embeddings.patch": prefix + "patch_embed.proj",
        "vision.embeddings.class_token": prefix + "cls_token:3",
        "vision.embeddings.distillation_token": prefix + "dist_token:3",
        "vision.embeddings.registers": prefix + "reg_token:3",
        "vision.embeddings.position": prefix + "pos_embed:3",
        "vision.embeddings.norm": prefix + "norm_pre",
        **layers,
        **{f"vision.layers.{{i}}.{ours}": layer + theirs for ours, theirs in others.items()},
        "vision.layers.{i}.attention.relative": f"{table}.relative_position_bias_table^T",
        "vision.attention_pool.probe": prefix + "attn_pool.latent:3",
        **{f"vision.attention_pool.{ours}": f"{prefix}attn_pool.{theirs}" for ours, theirs in POOL.items()},
        "vision.norm": prefix + config["norm_name"],
        "classifier": prefix + "head",
        "distillation_classifier": prefix + "head_dist",
    }


def _spellings(config: Mapping[str, Any]) -> tuple[dict[str, str], ...]:
    return _spelling(config, ""), _spelling(config, "timm_model.")


FAMILY = Family(
    name="timm",
    title="timm ViT, EVA-02, PE-Core, BEiT",
    config_type="timm_wrapper",
    architectures=("TimmWrapperForImageClassification",),
    config=TimmConfig,
    spellings=_spellings({"norm_name": "norm"}),
    spelled_by=_spellings,
    base=Base(""),  # timm writes a network without classifier under the same names
    inert=(r".*\.relative_position_index",),
    library="timm",
    to_source=to_source,
)
