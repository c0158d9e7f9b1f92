"""Tiny random reference models of every family and variant, built by transformers and saved as it saves them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import json

import pytest
import timm
import torch
import transformers
from open_clip.model import CLIP as OpenClip
from open_clip.model import CustomTextCLIP
from safetensors.torch import save_file
from timm.models import VisionTransformer
from timm.models._hub import save_for_hf
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    CLIPConfig,
    CLIPForImageClassification,
    CLIPModel,
    DeiTConfig,
    DeiTForImageClassification,
    DeiTForImageClassificationWithTeacher,
    Dinov2Config,
    Dinov2ForImageClassification,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersForImageClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PreTrainedModel,
    RobertaConfig,
    RobertaForSequenceClassification,
    SiglipConfig,
    SiglipForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

# A shell starts background jobs deaf to SIGINT, and so would be every command a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

#: Sizes of every variant below; tests of other sizes put theirs in for a while.
CLASSES = 5
SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 24}
BATCH = 3
BERT = {"vocab_size": 60, "num_labels": CLASSES, "max_position_embeddings": 32, **SIZES}
TEXT = {"vocab_size": 60, "max_position_embeddings": 12, "bos_token_id": 1, "pad_token_id": 0}


@dataclass(frozen=True)
class Reference:
    """Somebody else's model, inputs for it, and the logits `[B,C]` that its own forward gives."""

    name: str
    model: nn.Module
    inputs: dict[str, Tensor]

    @torch.no_grad()
    def logits(self) -> Tensor:
        if isinstance(self.model, VisionTransformer):
            return self.model(self.inputs["pixel_values"])
        if isinstance(self.model, OpenClip | CustomTextCLIP):
            return self.model.get_logits(self.inputs["pixel_values"], self.inputs["input_ids"])[0]
        output = self.model(**self.inputs)
        return output.logits_per_image if "logits_per_image" in output else output.logits

    def save(self, folder: Path) -> Path:
        if isinstance(self.model, VisionTransformer):
            save_for_hf(self.model, str(folder), safe_serialization=True)
        elif isinstance(self.model, OpenClip | CustomTextCLIP):
            folder.mkdir(parents=True, exist_ok=True)
            save_file(self.model.state_dict(), folder / "open_clip_model.safetensors")
            (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": self.model.built_from}))
        else:
            self.model.save_pretrained(folder)
        return folder


def _vit(
    model: Any = ViTForImageClassification, config: Any = ViTConfig, **changes: Any
) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    built = config(num_labels=CLASSES, **{"image_size": 12, "patch_size": 4, **SIZES, **changes})
    size = built.image_size if isinstance(built.image_size, list | tuple) else (built.image_size,) * 2
    return model(built), {"pixel_values": torch.randn(BATCH, built.num_channels, *size)}


def _dinov2(**changes: Any) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    return _vit(Dinov2ForImageClassification, Dinov2Config, **changes)


def _vision_of(model: Any, config: Any, **changes: Any) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    vision = {**SIZES, "image_size": 12, "patch_size": 4, **changes}
    built = config(vision_config=vision, text_config=SIZES, num_labels=CLASSES)
    return model(built), {"pixel_values": torch.randn(BATCH, 3, 12, 12)}


def _roberta(
    model: Any = RobertaForSequenceClassification, config: Any = RobertaConfig, padding: int = 1, **changes: Any
) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    reference, inputs = _bert(model=model, config=config, pad_token_id=padding, **{"type_vocab_size": 1, **changes})
    inputs["input_ids"] = torch.where(inputs["attention_mask"] == 0, padding, inputs["input_ids"].clamp(min=3))
    # The padding id counts as padding for positions wherever it stands.
    inputs["input_ids"][0, 3] = padding
    return reference, {name: tensor for name, tensor in inputs.items() if name != "token_type_ids"}


def _distilbert(**changes: Any) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    sizes = dict(zip(("dim", "n_layers", "n_heads", "hidden_dim"), SIZES.values(), strict=True))
    config = DistilBertConfig(num_labels=CLASSES, max_position_embeddings=32, vocab_size=60, **sizes, **changes)
    return DistilBertForSequenceClassification(config), _bert(types=False)[1]


def _bert(
    padded: bool = True,
    types: bool = True,
    model: Any = BertForSequenceClassification,
    config: Any = BertConfig,
    **changes: Any,
) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    inputs = {"input_ids": torch.randint(1, BERT["vocab_size"], (BATCH, 9))}
    if padded:
        mask = torch.ones(BATCH, 9, dtype=torch.long)
        mask[1, 4:] = 0
        mask[2, 7:] = 0
        inputs["attention_mask"] = mask
    if types:
        inputs["token_type_ids"] = torch.randint(0, 2, (BATCH, 9))
    return model(config(**{**BERT, **SIZES, "num_labels": CLASSES, **changes})), inputs


def _clip(eos: int = 59, padded: bool = True, **text: Any) -> tuple[PreTrainedModel, dict[str, Tensor]]:
    vision = {**SIZES, "hidden_size": 24, "num_attention_heads": 3, "image_size": 12, "patch_size": 4}
    config = CLIPConfig(
        text_config={**TEXT, **SIZES, "eos_token_id": eos, **text}, vision_config=vision, projection_dim=8
    )
    ends = [7, 3, 5, 7, 4][:CLASSES]
    prompts = torch.randint(2, 58, (len(ends), 8))
    mask = torch.ones(len(ends), 8, dtype=torch.long)
    for row, end in enumerate(ends):
        prompts[row, end] = 59
        prompts[row, end + 1 :] = 0
        mask[row, end + 1 :] = 0
    inputs = {"pixel_values": torch.randn(BATCH, 3, 12, 12), "input_ids": prompts}
    return CLIPModel(config), inputs | ({"attention_mask": mask} if padded else {})


def _timm(name: str = "vit_tiny_patch16_224", **changes: Any) -> tuple[VisionTransformer, dict[str, Tensor]]:
    width, depth, heads, hidden = SIZES.values()
    sizes = {"embed_dim": width, "depth": depth, "num_heads": heads, "mlp_ratio": hidden / width}
    sizes |= {"img_size": 12, "patch_size": 4, "num_classes": CLASSES}
    model = timm.create_model(name, **{**sizes, **changes})
    return model, {"pixel_values": torch.randn(BATCH, changes.get("in_chans", 3), *model.patch_embed.img_size)}


def _open_clip(
    vision: dict[str, Any] | None = None, text: dict[str, Any] | None = None, **changes: Any
) -> tuple[nn.Module, dict[str, Tensor]]:
    width, layers, heads, hidden = SIZES.values()
    sizes = {"layers": layers, "mlp_ratio": hidden / width}
    config = {
        "embed_dim": 8,
        "vision_cfg": {**sizes, "width": 24, "head_width": 8, "image_size": 12, "patch_size": 4, **(vision or {})},
        "text_cfg": {**sizes, "width": width, "heads": heads, "context_length": 8, "vocab_size": 60, **(text or {})},
        **changes,
    }
    model = (CustomTextCLIP if config.get("custom_text") else OpenClip)(
        **{name: value for name, value in config.items() if name != "custom_text"}
    )
    model.built_from = config
    # OpenCLIP pads with zeros to its full length and needs no mask: a text tower looks back only.
    inputs = _clip(padded=False)[1]
    return model, inputs


VARIANTS: dict[str, Callable[[], tuple[nn.Module, dict[str, Tensor]]]] = {
    "vit": _vit,
    "vit-one-channel": lambda: _vit(num_channels=1),
    "vit-wide-image": lambda: _vit(image_size=[8, 12], patch_size=[4, 2]),
    "vit-no-qkv-bias": lambda: _vit(qkv_bias=False),
    "vit-quick-gelu": lambda: _vit(hidden_act="quick_gelu", layer_norm_eps=1e-3),
    "deit": lambda: _vit(DeiTForImageClassification, DeiTConfig),
    "deit-distilled": lambda: _vit(DeiTForImageClassificationWithTeacher, DeiTConfig),
    "dinov2": _dinov2,
    "dinov2-two-channels-no-qkv-bias": lambda: _dinov2(num_channels=2, qkv_bias=False, mlp_ratio=3),
    "dinov2-registers": lambda: _vit(
        Dinov2WithRegistersForImageClassification, Dinov2WithRegistersConfig, num_register_tokens=3
    ),
    "timm": _timm,
    "timm-average": lambda: _timm(global_pool="avg", class_token=False),
    "timm-average-norm-first": lambda: _timm(global_pool="avg", fc_norm=False),
    "timm-average-no-norm": lambda: _timm(global_pool="avg", final_norm=False, in_chans=1, qkv_bias=False),
    "timm-registers": lambda: _timm(reg_tokens=2, no_embed_class=True, init_values=1e-5),
    "timm-registers-placed": lambda: _timm(reg_tokens=3, dynamic_img_size=True, img_size=[8, 12]),
    "timm-clip": lambda: _timm("vit_base_patch16_clip_224", act_layer="gelu_tanh", fc_norm=True),
    "timm-quick-gelu": lambda: _timm("vit_base_patch16_clip_quickgelu_224"),
    "timm-deit": lambda: _timm("deit_tiny_distilled_patch16_224"),
    "timm-deit3": lambda: _timm("deit3_small_patch16_224"),
    "open-clip": _open_clip,
    "open-clip-average": lambda: _open_clip(
        {"pool_type": "avg", "no_ln_pre": True, "norm_kwargs": {"eps": 1e-3}}, {"pool_type": "eos", "eos_id": 59}
    ),
    "open-clip-custom-text": lambda: _open_clip(
        {"pool_type": "avg", "final_ln_after_pool": True, "ls_init_value": 0.1},
        {"act_kwargs": {"approximate": "tanh"}},
        custom_text=True,
    ),
    "open-clip-quick-gelu": lambda: _open_clip(quick_gelu=True),
    "siglip": lambda: _vision_of(SiglipForImageClassification, SiglipConfig),
    "bert": _bert,
    "bert-unpadded": lambda: _bert(padded=False, types=False),
    "bert-relu-one-type": lambda: _bert(types=False, hidden_act="relu", type_vocab_size=1),
    "clip": _clip,
    "clip-unpadded": lambda: _clip(padded=False),
    "clip-legacy-eos": lambda: _clip(eos=2),
    "clip-gelu": lambda: _clip(hidden_act="gelu"),
    "clip-image": lambda: _vision_of(CLIPForImageClassification, CLIPConfig),
    "clip-image-small-patches": lambda: _vision_of(CLIPForImageClassification, CLIPConfig, patch_size=3),
    "roberta": _roberta,
    "roberta-padding-0": lambda: _roberta(padding=0, type_vocab_size=2),
    "xlm-roberta": lambda: _roberta(XLMRobertaForSequenceClassification, XLMRobertaConfig),
    "distilbert": _distilbert,
    "distilbert-relu": lambda: _distilbert(activation="relu"),
}
FAMILY_VARIANTS = (
    "vit",
    "deit",
    "deit-distilled",
    "dinov2",
    "dinov2-registers",
    "timm-registers",
    "timm-deit",
    "clip",
    "clip-image",
    "open-clip",
    "siglip",
    "bert",
    "roberta",
    "xlm-roberta",
    "distilbert",
)


def build_reference(name: str, seed: int = 0, dtype: torch.dtype = torch.float64) -> Reference:
    """A reference model whose every tensor is random: no bias at zero, no norm at one, no two layers alike."""
    torch.manual_seed(seed)
    return randomised(name, *VARIANTS[name](), dtype)


def randomised(name: str, model: nn.Module, inputs: dict[str, Tensor], dtype: torch.dtype = torch.float64) -> Reference:
    """The model as a reference, with numbers drawn for all of its parameters."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3 + (0.5 if parameter.ndim == 1 else 0.0))
    inputs = {key: value.to(dtype) if value.is_floating_point() else value for key, value in inputs.items()}
    return Reference(name, model.eval().to(dtype), inputs)


@pytest.fixture(params=VARIANTS)
def reference(request: pytest.FixtureRequest) -> Reference:
    """Each variant of each family in turn, in float64."""
    return build_reference(request.param)


@pytest.fixture(params=FAMILY_VARIANTS)
def family_reference(request: pytest.FixtureRequest) -> Reference:
    """One variant of each family, in float64."""
    return build_reference(request.param)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data."""
    folder = Path(os.environ.get("HYDRACTL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at HYDRACTL_DATA ({folder})")
    return folder


@pytest.fixture
def tf32() -> Iterator[Callable[[], set[bool]]]:
    """TF32 allowed, as a user may have it; called, it says whether it still is, for products and convolutions."""
    backends = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = True
    yield lambda: {backend.allow_tf32 for backend in backends}
    for backend, allowed in zip(backends, before, strict=True):
        backend.allow_tf32 = allowed
