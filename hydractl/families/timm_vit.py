"""Vision transformers as timm writes them; the structure is read from timm's own module, not from a name."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from hydractl.checkpoint.spec import ModelSpec, spec_to_json
from hydractl.checkpoint.tower_spec import Activation, ImageEmbeddings, Pool, Relative, Rotary, TowerSpec, Unbiased
from hydractl.errors import CheckpointError
from hydractl.families import config as read
from hydractl.families.timm_config import FAMILY, Foreign, nested

ACTIVATIONS: dict[str, Activation] = {
    "GELU": "gelu",
    "GELUTanh": "gelu_pytorch_tanh",
    "QuickGELU": "quick_gelu",
    "ReLU": "relu",
    "SiLU": "silu",
    "Swish": "silu",
    "Tanh": "tanh",
}
POOLS: dict[str, Pool] = {"token": "first", "avg": "mean", "map": "attention"}
#: timm's modules with plain vision transformers in them.
MODULES = ("vision_transformer", "deit", "eva", "beit")


def is_timm(config: Mapping[str, Any]) -> bool:
    """Tells a config.json of timm, or of transformers' wrapper of timm: it names a single architecture."""
    return "architecture" in config and config.get("model_type") in (None, "timm_wrapper")


def repository(name: str) -> str:
    """Returns the hub repository of the weights that timm knows by a name.

    Raises:
        CheckpointError: timm knows no such weights.
    """
    import timm

    config = timm.get_pretrained_cfg(name)
    if config is None or not config.hf_hub_id:
        raise CheckpointError(f"timm:{name}: timm has no weights of this name: timm.list_pretrained() lists them")
    return str(config.hf_hub_id)


def describe(name: str, folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Adds structure and labels to a timm config, so that our own files can be read without timm.

    Args:
        name: the checkpoint's, for messages.
        folder: the one that holds config.json.

    Raises:
        CheckpointError: a field has the wrong type or is out of range, timm does not know the architecture, or it has
            parts that are not supported.
    """
    foreign = read.read_config(name, {**config, **nested(config)}, Foreign)
    module = _built(name, folder, foreign.architecture)
    if obstacle := next(_reasons_against(module), None):
        raise CheckpointError(f"{name}: timm's {foreign.architecture} {obstacle}, which is not supported")
    names = _label_names(foreign)
    id2label = {str(i): names.get(i, f"LABEL_{i}") for i in range(module.num_classes)}
    try:
        structure = spec_to_json(_spec(module))
    except ValueError as error:
        raise read.config_origin(name).refusal(str(error)) from error
    added = {"id2label": id2label, "structure": structure, **_names(module)}
    return {**config, "model_type": FAMILY.model_type, **added}


def _built(name: str, folder: Path, architecture: str) -> Any:
    """Builds timm's own module on the meta device."""
    import timm
    import torch
    from timm.models import is_model, is_model_in_modules

    if not is_model(architecture):
        raise CheckpointError(f"{name}: timm cannot build {architecture!r} from config.json: it has no such model")
    if not is_model_in_modules(architecture, MODULES):
        raise CheckpointError(
            f"{name}: timm's {architecture} is not a plain VisionTransformer, the only kind of timm that is supported"
        )
    try:
        with torch.device("meta"):
            return timm.create_model(f"local-dir:{folder}", pretrained=False)
    except Exception as error:  # timm raises any kind of error on a config that it cannot build
        reason = str(error).strip() or type(error).__name__
        raise read.config_origin(name).refusal(f"timm cannot build {architecture} from it ({reason})") from error


def _label_names(config: Foreign) -> Mapping[int, str]:
    """Returns the class names of a config, or those of ImageNet where it has as many classes and names none."""
    from transformers import TimmWrapperConfig

    if config.label_names is not None:
        return dict(enumerate(config.label_names))
    if config.id2label is not None or not config.num_classes:
        return dict(enumerate(config.labels))
    wrapped: Any = TimmWrapperConfig
    return wrapped.from_dict({"num_classes": config.num_classes}).id2label


def timm_preprocessing(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of timm's transforms in the form of transformers' image processor."""
    return {"image_processor_type": "TimmWrapperImageProcessor", "pretrained_cfg": nested(config)["pretrained_cfg"]}


def _reasons_against(model: Any) -> Iterator[str]:
    """Yields each property of a timm module that our forward does not compute, the most telling first."""
    from timm.models.beit import Beit
    from timm.models.deit import VisionTransformerDistilled
    from timm.models.eva import Eva
    from timm.models.vision_transformer import VisionTransformer

    if type(model) not in (VisionTransformer, VisionTransformerDistilled, Eva, Beit):
        yield f"is a {type(model).__name__}, not a plain VisionTransformer"
        return
    for part, (called, kinds) in PARTS.items():
        other = next((kind for block in model.blocks if (kind := _kind(block.get_submodule(part))) not in kinds), None)
        if other is not None:
            yield f"has {called} of kind {other}"
            return
    yield from _reasons_against_block(model.blocks[0], model)
    checks = {
        f"pools by {model.global_pool!r}": model.global_pool not in POOLS,
        "norms before pooling and after it": not (_is_nothing(model.norm) or _is_nothing(model.fc_norm)),
        "pools with an attention of another size": _part(model, "attn_pool") is not None and not _pools_plainly(model),
        "does not cut plain patches": _kind(model.patch_embed) != "PatchEmbed"
        or not _is_nothing(model.patch_embed.norm)
        or model.patch_embed.dynamic_img_pad,
        "turns queries and keys by places of another kind": getattr(model, "rope", None) is not None
        and _rotary(model.rope) is None,
    }
    yield from (reason for reason, applies in checks.items() if applies)


#: The kinds of a block and of modules in it that are computed here.
PARTS = {
    "": ("blocks", ("Block", "EvaBlock")),
    "attn": ("attention", ("Attention", "EvaAttention", "AttentionRope")),
    "mlp": ("MLPs", ("Mlp", "GluMlp", "SwiGLU")),
}


def _kind(module: Any) -> str:
    return type(module).__name__


def _reasons_against_block(block: Any, model: Any) -> Iterator[str]:
    from torch import nn

    attention, mlp = block.attn, block.mlp
    norms = [m for m in model.modules() if isinstance(m, nn.LayerNorm)]
    scales = [getattr(block, name, None) is not None for name in ("gamma_1", "gamma_2")]
    checks = {
        "norms what attention mixes": not _is_nothing(_part(attention, "norm")),
        "adds relative positions of a layer to those of all": _has_table(attention) and _has_shared_table(model),
        "gates its attention": getattr(attention, "gate", None) is not None,
        "shares keys among heads": getattr(attention, "num_kv_groups", 1) > 1,
        "scales its attention alone": scales[0] != scales[1],
        "has norms other than LayerNorm with scale and shift": not _is_plain(block.norm1)
        or not (_is_nothing(_part(attention, "q_norm")) or _is_plain(attention.q_norm))
        or not (_is_nothing(mlp.norm) or _is_plain(mlp.norm))
        or any(not _is_plain(norm) or norm.eps != norms[0].eps for norm in norms),
        "gates by the second half of its maps": getattr(mlp, "gate_last", False),
        f"has activation {type(mlp.act).__name__}": _activation(mlp.act) is None,
    }
    yield from (reason for reason, applies in checks.items() if applies)


def _part(module: Any, name: str) -> Any:
    """Returns a part that not all of timm's modules have; None without it."""
    return getattr(module, name, None)


def _is_nothing(module: Any) -> bool:
    return module is None or _kind(module) == "Identity"


def _has_table(attention: Any) -> bool:
    return _part(attention, "relative_position_bias_table") is not None


def _has_shared_table(model: Any) -> bool:
    return _part(model, "rel_pos_bias") is not None


def _pools_plainly(model: Any) -> bool:
    pool, block = model.attn_pool, model.blocks[0]
    return (
        _kind(pool) == "AttentionPoolLatent"
        and (pool.latent_len, pool.pool) == (1, "token")
        and pool.pos_embed is None
        and not _is_nothing(pool.q)
        and pool.q.bias is not None
        and _is_nothing(pool.q_norm)
        and _kind(block.mlp) == "Mlp"
        and _is_nothing(block.mlp.norm)
        and (pool.mlp.fc1.out_features, _activation(pool.mlp.act))
        == (block.mlp.fc1.out_features, _activation(block.mlp.act))
    )


def _rotary(rope: Any) -> Rotary | None:
    """Returns how queries and keys are turned; None if in a way that is not computed here."""
    places: Literal["steps", "periods"]
    if _kind(rope) == "RotaryEmbeddingCat" and not rope.in_pixels and getattr(rope, "grid_type", "index") == "index":
        places, extent = "steps", rope.ref_feat_shape
    elif _kind(rope) == "RotaryEmbeddingDinoV3" and rope.normalize_coords == "separate" and rope.min_period is None:
        places, extent = "periods", None
    else:
        return None
    offset = float(getattr(rope, "grid_offset", 0))
    if offset and places != "steps":
        return None
    return Rotary(
        base=float(rope.temperature),
        places=places,
        extent=None if extent is None else tuple(extent),
        columns_first=getattr(rope, "grid_indexing", "ij") == "xy",
        interleaved=not getattr(rope, "rotate_half", False),
        offset=offset,
    )


def _is_plain(norm: Any) -> bool:
    from torch import nn

    return isinstance(norm, nn.LayerNorm) and norm.weight is not None and norm.bias is not None


def _activation(module: Any) -> Activation | None:
    name = ACTIVATIONS.get(type(module).__name__)
    return "gelu_pytorch_tanh" if name == "gelu" and getattr(module, "approximate", "none") == "tanh" else name


def _spec(model: Any) -> ModelSpec:
    from torch import nn

    block, distilled = model.blocks[0], hasattr(model, "dist_token")
    attention, mlp, rope, names = block.attn, block.mlp, _part(model, "rope"), _names(model)
    pool = _part(model, "attn_pool")
    q, k = (attention.q_proj, attention.k_proj) if names["attention_names"] == "apart" else (attention.qkv,) * 2
    has_q = q.bias is not None or names["attention_names"] == "biases"
    activation = _activation(mlp.act)
    assert activation is not None
    biases: dict[Unbiased, bool] = {
        "attention.k": k.bias is not None or not has_q,
        "attention.o": attention.proj.bias is not None,
        "mlp": mlp.fc2.bias is not None,
    }
    tower = TowerSpec(
        name="vision",
        layers=len(model.blocks),
        heads=attention.num_heads,
        head_width=attention.proj.in_features // attention.num_heads,
        width=model.embed_dim,
        mlp_width=mlp.fc2.in_features,
        activation=activation,
        norm_eps=block.norm1.eps,
        embeddings=_embeddings(model),
        qkv_bias=has_q,
        final_norm=not (_is_nothing(model.norm) and _is_nothing(model.fc_norm)),
        norm_tokens=not _is_nothing(model.norm) and model.global_pool != "token",
        layer_scale=names["scale_names"] == "gamma" or not _is_nothing(getattr(block, "ls1", nn.Identity())),
        pool="first+second" if distilled else POOLS[model.global_pool],
        dropout=attention.proj_drop.p,
        attention_dropout=attention.attn_drop.p,
        rotary=None if rope is None else _rotary(rope),
        relative=Relative() if _has_table(attention) or _has_shared_table(model) else None,
        unbiased=tuple(name for name, has_one in biases.items() if not has_one),
        gated=names["mlp_names"] != "plain",
        head_norm=not _is_nothing(_part(attention, "q_norm")),
        unit_norm=not _is_nothing(mlp.norm),
        # Eva's attention reads them without saying so.
        pool_all=model.num_prefix_tokens > 0
        and model.global_pool != "token"
        and getattr(model, "pool_include_prefix", pool is not None),
        pool_heads=None if pool is None or pool.num_heads == attention.num_heads else pool.num_heads,
    )
    return ModelSpec(
        "image-classification",
        (tower,),
        classes=model.num_classes,
        classifier_dropout=model.head_drop.p,
        distilled=distilled,
    )


def _embeddings(model: Any) -> ImageEmbeddings:
    return ImageEmbeddings(
        channels=model.patch_embed.proj.in_channels,
        image_size=tuple(model.patch_embed.img_size),
        patch_size=tuple(model.patch_embed.patch_size),
        patch_bias=model.patch_embed.proj.bias is not None,
        norm=not _is_nothing(_part(model, "norm_pre")),
        class_token=model.cls_token is not None,
        distillation_token=hasattr(model, "dist_token"),
        registers=0 if _part(model, "reg_token") is None else model.reg_token.shape[1],
        unplaced=model.num_prefix_tokens if _part(model, "no_embed_class") else 0,
        learned=model.pos_embed is not None,
    )


def _names(model: Any) -> dict[str, str]:
    """Returns by which of its names timm calls a part, where it has several."""
    block = model.blocks[0]
    apart = getattr(block.attn, "qkv", None) is None
    biases = getattr(block.attn, "q_bias", None) is not None
    return {
        "norm_name": "norm" if _is_nothing(model.fc_norm) else "fc_norm",
        "attention_names": "apart" if apart else "biases" if biases else "fused",
        "mlp_names": {"GluMlp": "fused", "SwiGLU": "apart"}.get(_kind(block.mlp), "plain"),
        "scale_names": "gamma" if getattr(block, "gamma_1", None) is not None else "ls",
        "relative_names": "shared" if _has_shared_table(model) else "own",
    }
