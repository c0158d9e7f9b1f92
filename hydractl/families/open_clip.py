"""CLIP as OpenCLIP writes it: fused projections of queries, keys and values, projections stored the other way round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from hydractl.checkpoint.spec import Activation, ImageEmbeddings, ModelSpec, TextEmbeddings, TowerSpec
from hydractl.errors import CheckpointError
from hydractl.families import config as read
from hydractl.families.family import Family

BLOCK_DEFAULTS = {"mlp_ratio": 4.0, "ls_init_value": None, "act_kwargs": None, "norm_kwargs": None}
#: What has an effect that is not built here: the one value read.
BLOCK_DEMANDED = {
    "block_type": None,
    "qk_norm": False,
    "scaled_cosine_attn": False,
    "scale_heads": False,
    "scale_attn_inner": False,
    "scale_attn": False,
    "scale_fc": False,
}
VISION_DEFAULTS = BLOCK_DEFAULTS | {
    "layers": 12,
    "width": 768,
    "head_width": 64,
    "patch_size": 16,
    "image_size": 224,
    "no_ln_pre": False,
    "pool_type": "tok",
    "final_ln_after_pool": False,
}
VISION_DEMANDED = BLOCK_DEMANDED | {"timm_model_name": None, "attentional_pool": False}
TEXT_DEFAULTS = BLOCK_DEFAULTS | {
    "layers": 12,
    "width": 512,
    "heads": 8,
    "context_length": 77,
    "vocab_size": 49408,
    "pool_type": "argmax",
    "eos_id": 2,
}
TEXT_DEMANDED = BLOCK_DEMANDED | {
    "hf_model_name": None,
    "embed_cls": False,
    "no_causal_mask": False,
    "proj_bias": False,
    "proj_type": "linear",
}
#: Without an effect on a trained model: training, the tokenizer, how positions were made, what is returned.
INERT_FIELDS = {
    "patch_dropout", "pos_embed_type", "output_tokens", "attn_pooler_queries", "attn_pooler_heads",
    "timm_model_pretrained", "timm_pool", "timm_proj", "timm_proj_bias", "timm_drop", "timm_drop_path",
    "hf_tokenizer_name", "tokenizer_mode", "tokenizer_kwargs", "pad_id",
    "hf_model_pretrained", "hf_proj_type", "hf_pooler_type",
}  # fmt: skip


def read_spec(config: Mapping[str, Any]) -> ModelSpec:
    """The network an open_clip_config.json describes."""
    model = config["model_cfg"]
    read.demand(model, {"multimodal_cfg": None, "init_logit_bias": None}, "open_clip_config.json: model_cfg")
    vision = _part(model, "vision_cfg", VISION_DEFAULTS, VISION_DEMANDED)
    text = _part(model, "text_cfg", TEXT_DEFAULTS, TEXT_DEMANDED)
    towers = (_vision_tower(model, vision), _text_tower(model, text))
    return ModelSpec("zero-shot", towers, projection=read.integer(model, "embed_dim"))


def _part(
    model: Mapping[str, Any], key: str, defaults: Mapping[str, Any], demanded: Mapping[str, Any]
) -> dict[str, Any]:
    where, part = f"open_clip_config.json: {key}", model.get(key) or {}
    read.demand(part, demanded, where)
    if unknown := sorted(part.keys() - defaults.keys() - demanded.keys() - INERT_FIELDS):
        raise CheckpointError(f"{where}: {unknown[0]} is unknown, and with it what the model computes")
    return {**defaults, **part}


def _vision_tower(model: Mapping[str, Any], vision: Mapping[str, Any]) -> TowerSpec:
    if vision["pool_type"] not in ("tok", "avg"):
        raise CheckpointError(f"open_clip_config.json: pool_type is {vision['pool_type']!r}, which is not supported")
    embeddings = ImageEmbeddings(
        channels=3,
        image_size=read.pair(vision, "image_size"),
        patch_size=read.pair(vision, "patch_size"),
        patch_bias=False,
        norm=not vision["no_ln_pre"],
    )
    heads = read.integer(vision, "width") // read.integer(vision, "head_width")
    is_mean = vision["pool_type"] == "avg"
    return _tower("vision", model, vision, heads, embeddings, is_mean, not vision["final_ln_after_pool"])


def _text_tower(model: Mapping[str, Any], text: Mapping[str, Any]) -> TowerSpec:
    if text["pool_type"] not in ("argmax", "eos"):
        raise CheckpointError(f"open_clip_config.json: pool_type is {text['pool_type']!r}, which is not supported")
    embeddings = TextEmbeddings(
        vocabulary=read.integer(text, "vocab_size"),
        positions=read.integer(text, "context_length"),
        token_types=0,
        norm=False,
        eos=text["eos_id"] if text["pool_type"] == "eos" else None,
    )
    return _tower("text", model, text, read.integer(text, "heads"), embeddings)


def _tower(
    name: Literal["vision", "text"],
    model: Mapping[str, Any],
    part: Mapping[str, Any],
    heads: int,
    embeddings: ImageEmbeddings | TextEmbeddings,
    is_mean: bool = False,
    norm_tokens: bool = False,
) -> TowerSpec:
    width = read.integer(part, "width")
    return TowerSpec(
        name=name,
        layers=read.integer(part, "layers"),
        heads=heads,
        head_width=read.head_width({}, width, heads),
        width=width,
        mlp_width=int(width * part["mlp_ratio"]),
        activation=_activation(model, part),
        norm_eps=_norm_eps(part),
        embeddings=embeddings,
        causal=name == "text",
        norm_tokens=is_mean and norm_tokens,
        layer_scale=part["ls_init_value"] is not None,
        pool="eos" if name == "text" else "mean" if is_mean else "first",
    )


def _activation(model: Mapping[str, Any], part: Mapping[str, Any]) -> Activation:
    if model.get("quick_gelu"):
        return "quick_gelu"
    changes = part["act_kwargs"] or {}
    if changes not in ({}, {"approximate": "none"}, {"approximate": "tanh"}):
        raise CheckpointError(f"open_clip_config.json: act_kwargs is {changes!r}, which is not supported")
    return "gelu_pytorch_tanh" if changes.get("approximate") == "tanh" else "gelu"


def _norm_eps(part: Mapping[str, Any]) -> float:
    changes = part["norm_kwargs"] or {}
    if changes.keys() - {"eps"}:
        raise CheckpointError(f"open_clip_config.json: norm_kwargs is {changes!r}, of which only eps is supported")
    return float(changes.get("eps", 1e-5))


def preprocessing(config: Mapping[str, Any]) -> dict[str, Any]:
    """OpenCLIP's image transform, which is timm's with nothing cropped but what makes the image square."""
    given = config.get("preprocess_cfg") or {}
    height, width = read.pair({**VISION_DEFAULTS, **config["model_cfg"]["vision_cfg"]}, "image_size")
    modes = {"shortest": "center", "squash": "squash"}
    if (mode := given.get("resize_mode") or "shortest") not in modes:
        raise CheckpointError(f"open_clip_config.json: resize_mode is {mode!r}, which is not supported")
    transform = {
        "input_size": [3, height, width],
        "interpolation": given.get("interpolation") or "bicubic",
        "crop_pct": 1.0,
        "crop_mode": modes[mode],
        "mean": given.get("mean") or [0.48145466, 0.4578275, 0.40821073],
        "std": given.get("std") or [0.26862954, 0.26130258, 0.27577711],
    }
    return {"image_processor_type": "TimmWrapperImageProcessor", "pretrained_cfg": transform}


def _layers(ours: str, theirs: str) -> dict[str, str]:
    ours, theirs = f"{ours}.layers.{{i}}.", f"{theirs}transformer.resblocks.{{i}}."
    fused = {
        ours + f"attention.{part}.{kind}": theirs + f"attn.in_proj_{kind}[{number}/3]"
        for number, part in enumerate("qkv")
        for kind in ("weight", "bias")
    }
    return fused | {
        ours + "attention.o": theirs + "attn.out_proj",
        ours + "attention_norm": theirs + "ln_1",
        ours + "attention_scale": theirs + "ls_1.gamma",
        ours + "mlp.fc1": theirs + "mlp.c_fc",
        ours + "mlp.fc2": theirs + "mlp.c_proj",
        ours + "mlp_norm": theirs + "ln_2",
        ours + "mlp_scale": theirs + "ls_2.gamma",
    }


def _spelling(text: str) -> dict[str, str]:
    return {
        "vision.embeddings.patch": "visual.conv1",
        "vision.embeddings.class_token": "visual.class_embedding",
        "vision.embeddings.position": "visual.positional_embedding",
        "vision.embeddings.norm": "visual.ln_pre",
        **_layers("vision", "visual."),
        "vision.norm": "visual.ln_post",
        "vision.projection.weight": "visual.proj^T",
        "text.embeddings.word": f"{text}token_embedding.weight",
        "text.embeddings.position": f"{text}positional_embedding",
        **_layers("text", text),
        "text.norm": f"{text}ln_final",
        "text.projection.weight": f"{text}text_projection^T",
        "logit_scale": "logit_scale",
    }


FAMILY = Family(
    name="open-clip",
    title="OpenCLIP",
    model_type="open_clip",
    architectures=("CLIP",),
    read_spec=read_spec,
    spellings=(_spelling(""), _spelling("text.")),  # with `custom_text` the text tower is a module of its own
    defaults={},
    inert=(r"(text\.)?attn_mask",),
    saved_as=lambda config: int(bool(config["model_cfg"].get("custom_text"))),
    to_source=lambda config, _labels: {name: value for name, value in config.items() if name != "model_type"},
    task="zero-shot",
    library="open_clip",
    config_file="open_clip_config.json",
    weights_file="open_clip_model.safetensors",
)
