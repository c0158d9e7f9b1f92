"""Vision transformers as timm writes them; the structure is read from timm's own module, not from a name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from hydractl.checkpoint.spec import Activation, ImageEmbeddings, ModelSpec, Pool, TowerSpec, spec_to_json
from hydractl.errors import CheckpointError
from hydractl.families import config as read
from hydractl.families.family import Base, Family, layer_names
from hydractl.families.timm_config import Foreign

ACTIVATIONS: dict[str, Activation] = {
    "GELU": "gelu",
    "GELUTanh": "gelu_pytorch_tanh",
    "QuickGELU": "quick_gelu",
    "ReLU": "relu",
    "SiLU": "silu",
    "Swish": "silu",
    "Tanh": "tanh",
}
POOLS: dict[str, Pool] = {"token": "first", "avg": "mean"}
#: timm's modules with plain vision transformers in them.
MODULES = ("vision_transformer", "deit")


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
        raise CheckpointError(f"timm:{name}: timm knows no weights of that name: timm.list_pretrained() lists them")
    return str(config.hf_hub_id)


def describe(name: str, folder: Path, config: Mapping[str, Any], without_classifier: bool = False) -> dict[str, Any]:
    """Adds structure and labels to a timm config, so that our own files can be read without timm.

    Args:
        name: the checkpoint's, for messages.
        folder: the one that holds config.json.
        without_classifier: accept a network without a classifier, as one with no classes.

    Raises:
        CheckpointError: a field has the wrong type or is out of range, timm does not know the architecture, or it has
            parts that are not supported.
    """
    foreign = read.read_config(name, {**config, "pretrained_cfg": _pretrained(config)}, Foreign)
    module = _built(name, folder, foreign.architecture)
    if obstacle := next(_reasons_against(module), None):
        raise CheckpointError(f"{name}: timm's {foreign.architecture} {obstacle}, which is not supported")
    if not (without_classifier or module.num_classes):
        raise CheckpointError(
            f"{name}: timm's {foreign.architecture} has no classifier: train one by finetune with `new_classifier`"
        )
    names = _label_names(foreign)
    id2label = {str(i): names.get(i, f"LABEL_{i}") for i in range(module.num_classes)}
    try:
        structure = spec_to_json(_spec(module))
    except ValueError as error:
        raise read.config_origin(name).refusal(str(error)) from error
    added = {"id2label": id2label, "structure": structure, "norm_name": _norm_name(module)}
    return {**config, "model_type": FAMILY.model_type, **added}


def _built(name: str, folder: Path, architecture: str) -> Any:
    """Builds timm's own module on the meta device."""
    import timm
    import torch
    from timm.models import is_model, is_model_in_modules

    if not is_model(architecture):
        raise CheckpointError(f"{name}: timm cannot build {architecture!r} of config.json: it knows no such model")
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
    named: Mapping[int, str] = wrapped.from_dict({"num_classes": config.num_classes}).id2label
    return named


def preprocessing(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of timm's transforms in the form of transformers' image processor."""
    return {"image_processor_type": "TimmWrapperImageProcessor", "pretrained_cfg": _pretrained(config)}


def _pretrained(config: Mapping[str, Any]) -> Any:
    # The oldest configs have all settings in one place.
    return config.get("pretrained_cfg", config)


def _reasons_against(model: Any) -> Iterator[str]:
    """Yields each property of a timm module that our forward does not compute, the most telling first."""
    from timm.layers.attention import Attention
    from timm.layers.mlp import Mlp
    from timm.layers.patch_embed import PatchEmbed
    from timm.models.deit import VisionTransformerDistilled
    from timm.models.vision_transformer import Block, VisionTransformer
    from torch import nn

    if type(model) not in (VisionTransformer, VisionTransformerDistilled):
        yield f"is a {type(model).__name__}, not a plain VisionTransformer"
        return
    for block in model.blocks:
        if type(block) is not Block:
            yield f"has blocks of kind {type(block).__name__}"
            return
        if type(block.attn) is not Attention:
            yield f"has attention of kind {type(block.attn).__name__}"
            return
        if type(block.mlp) is not Mlp:
            yield f"has MLPs of kind {type(block.mlp).__name__}"
            return
    block = model.blocks[0]
    attention = block.attn
    norms = [m for m in model.modules() if isinstance(m, nn.LayerNorm)]
    checks = {
        "norms queries and keys": not isinstance(attention.q_norm, nn.Identity),
        "norms what attention mixes": not isinstance(attention.norm, nn.Identity),
        "gates its attention": getattr(attention, "gate", None) is not None,
        "norms inside its MLPs": not isinstance(block.mlp.norm, nn.Identity),
        "has no bias after its attention": attention.proj.bias is None or block.mlp.fc1.bias is None,
        "has norms other than LayerNorm with scale and shift": not _is_plain(block.norm1)
        or any(not _is_plain(norm) or norm.eps != norms[0].eps for norm in norms),
        "pools with an attention of its own": model.attn_pool is not None,
        f"pools by {model.global_pool!r}": model.global_pool not in POOLS,
        "averages class token and registers along with the patches": model.pool_include_prefix,
        "has no learned positions": model.pos_embed is None,
        "does not cut plain patches": type(model.patch_embed) is not PatchEmbed
        or not isinstance(model.patch_embed.norm, nn.Identity)
        or model.patch_embed.dynamic_img_pad,
        f"has activation {type(block.mlp.act).__name__}": _activation(block.mlp.act) is None,
    }
    yield from (reason for reason, applies in checks.items() if applies)


def _is_plain(norm: Any) -> bool:
    from torch import nn

    return isinstance(norm, nn.LayerNorm) and norm.weight is not None and norm.bias is not None


def _activation(module: Any) -> Activation | None:
    name = ACTIVATIONS.get(type(module).__name__)
    return "gelu_pytorch_tanh" if name == "gelu" and getattr(module, "approximate", "none") == "tanh" else name


def _spec(model: Any) -> ModelSpec:
    from timm.models.deit import VisionTransformerDistilled
    from torch import nn

    distilled = isinstance(model, VisionTransformerDistilled)
    block = model.blocks[0]
    embeddings = ImageEmbeddings(
        channels=model.patch_embed.proj.in_channels,
        image_size=tuple(model.patch_embed.img_size),
        patch_size=tuple(model.patch_embed.patch_size),
        patch_bias=model.patch_embed.proj.bias is not None,
        norm=not isinstance(model.norm_pre, nn.Identity),
        class_token=model.cls_token is not None,
        distillation_token=distilled,
        registers=0 if model.reg_token is None else model.reg_token.shape[1],
        unplaced=model.num_prefix_tokens if model.no_embed_class else 0,
    )
    norm_first = not isinstance(model.norm, nn.Identity)
    activation = _activation(block.mlp.act)
    assert activation is not None
    tower = TowerSpec(
        name="vision",
        layers=len(model.blocks),
        heads=block.attn.num_heads,
        head_width=block.attn.head_dim,
        width=model.embed_dim,
        mlp_width=block.mlp.fc1.out_features,
        activation=activation,
        norm_eps=block.norm1.eps,
        embeddings=embeddings,
        qkv_bias=block.attn.qkv.bias is not None,
        final_norm=norm_first or not isinstance(model.fc_norm, nn.Identity),
        norm_tokens=norm_first and model.global_pool == "avg",
        layer_scale=not isinstance(block.ls1, nn.Identity),
        pool="first+second" if distilled else POOLS[model.global_pool],
        dropout=block.attn.proj_drop.p,
        attention_dropout=block.attn.attn_drop.p,
    )
    return ModelSpec(
        "image-classification",
        (tower,),
        classes=model.num_classes,
        classifier_dropout=model.head_drop.p,
        distilled=distilled,
    )


def _norm_name(model: Any) -> str:
    from torch import nn

    return "norm" if isinstance(model.fc_norm, nn.Identity) else "fc_norm"


class TimmConfig(read.Labelled):
    """The fields of a config.json that `describe` has completed."""

    structure: ModelSpec
    norm_name: Literal["norm", "fc_norm"]
    model_args: dict[str, Any] | None = None

    def spec(self) -> ModelSpec:
        # Classes may have been replaced since `describe` looked at the network.
        return replace(self.structure, classes=len(self.labels))


def to_source(config: Mapping[str, Any], labels: Sequence[str] | None) -> dict[str, Any]:
    """Returns timm's own config.json, with the present classes."""
    theirs = {k: v for k, v in config.items() if k not in ("structure", "norm_name", "id2label", "label2id")}
    count = len(labels or ())
    theirs["num_classes"] = count
    theirs["model_args"] = {**(theirs.get("model_args") or {}), "num_classes": count}
    if labels and any(label != f"LABEL_{i}" for i, label in enumerate(labels)):
        theirs["label_names"] = list(labels)
    return {name: value for name, value in theirs.items() if name not in ("model_type", "num_labels")}


def _spelling(norm: str, prefix: str) -> dict[str, str]:
    ours, theirs = "vision.layers.{i}.", prefix + "blocks.{i}."
    attention = [*(f"attn.qkv[{part}/3]" for part in range(3)), "attn.proj"]
    return {
        "vision.embeddings.patch": prefix + "patch_embed.proj",
        "vision.embeddings.class_token": prefix + "cls_token:3",
        "vision.embeddings.distillation_token": prefix + "dist_token:3",
        "vision.embeddings.registers": prefix + "reg_token:3",
        "vision.embeddings.position": prefix + "pos_embed:3",
        "vision.embeddings.norm": prefix + "norm_pre",
        **layer_names("vision", theirs, attention, norms=("norm1", "norm2"), mlp=("mlp.fc1", "mlp.fc2")),
        ours + "attention_scale": theirs + "ls1.gamma",
        ours + "mlp_scale": theirs + "ls2.gamma",
        "vision.norm": prefix + norm,
        "classifier": prefix + "head",
        "distillation_classifier": prefix + "head_dist",
    }


FAMILY = Family(
    name="timm",
    title="timm ViT",
    model_type="timm_wrapper",
    architectures=("TimmWrapperForImageClassification",),
    config=TimmConfig,
    # timm norms before pooling or after it, under two names; transformers' wrapper puts a prefix before all.
    spellings=tuple(_spelling(norm, prefix) for prefix in ("", "timm_model.") for norm in ("norm", "fc_norm")),
    base=Base(""),  # timm writes a network without classifier under the same names
    saved_as=lambda config: ("norm", "fc_norm").index(config["norm_name"]),
    library="timm",
    to_source=to_source,
)
