from typing import Any

import torch
import transformers as hf
from torch import Tensor

from hydractl.families import clip as ours
from tests import references
from tests.references import BATCH, SIZES, Architecture, Built

TEXT = {"vocab_size": 60, "max_position_embeddings": 12, "bos_token_id": 1, "pad_token_id": 0}


def clip(
    eos: int = 59, padded: bool = True, model: Any = hf.CLIPModel, kind: Any = hf.CLIPConfig, **text: Any
) -> Built:
    vision = {**SIZES, "hidden_size": 24, "num_attention_heads": 3, "image_size": 12, "patch_size": 4}
    config = kind(text_config={**TEXT, **SIZES, "eos_token_id": eos, **text}, vision_config=vision, projection_dim=8)
    return model(config), images_and_prompts(padded)


def images_and_prompts(padded: bool) -> dict[str, Tensor]:
    """Images, and a prompt for each class, which end at different places."""
    ends = [7, 3, 5, 7, 4][: references.CLASSES]
    prompts = torch.randint(2, 58, (len(ends), 8))
    mask = torch.ones(len(ends), 8, dtype=torch.long)
    for row, end in enumerate(ends):
        prompts[row, end] = 59
        prompts[row, end + 1 :] = 0
        mask[row, end + 1 :] = 0
    inputs = {"pixel_values": torch.randn(BATCH, 3, 12, 12), "input_ids": prompts}
    return inputs | ({"attention_mask": mask} if padded else {})


def image_tower(model: Any = hf.CLIPForImageClassification, config: Any = hf.CLIPConfig, **changes: Any) -> Built:
    """The image tower of a model of images and texts, with a classifier."""
    vision = {**SIZES, "image_size": 12, "patch_size": 4, **changes}
    built = config(vision_config=vision, text_config=SIZES, num_labels=references.CLASSES)
    return model(built), {"pixel_values": torch.randn(BATCH, 3, 12, 12)}


def siglip(padded: bool = False, **text: Any) -> Built:
    """A SigLIP, which reads padding as text unless a mask hides it."""
    vision = {**SIZES, "image_size": 12, "patch_size": 4}
    text = {**TEXT, "max_position_embeddings": 8, **SIZES, "projection_size": SIZES["hidden_size"], **text}
    return hf.SiglipModel(hf.SiglipConfig(text_config=text, vision_config=vision)), images_and_prompts(padded)


VARIANTS = Architecture(
    variants={
        "clip": clip,
        "clip-unpadded": lambda: clip(padded=False),
        "clip-legacy-eos": lambda: clip(eos=2),
        "clip-gelu": lambda: clip(hidden_act="gelu"),
        "clip-image": image_tower,
        "clip-image-small-patches": lambda: image_tower(patch_size=3),
        "metaclip-2": lambda: clip(model=hf.MetaClip2Model, kind=hf.MetaClip2Config),
        "metaclip-2-image": lambda: image_tower(hf.MetaClip2ForImageClassification, hf.MetaClip2Config),
        "chinese-clip": lambda: clip(model=hf.ChineseCLIPModel, kind=hf.ChineseCLIPConfig),
        "siglip": lambda: image_tower(hf.SiglipForImageClassification, hf.SiglipConfig),
        "siglip-zero-shot": siglip,
        "siglip-zero-shot-narrow-text": lambda: siglip(padded=True, hidden_size=8, num_attention_heads=2),
    },
    typical=("clip", "clip-image", "chinese-clip", "siglip", "siglip-zero-shot"),
    configs=(
        (ours.VisionFields, hf.CLIPVisionConfig),
        (ours.TextFields, hf.CLIPTextConfig),
        (ours.CLIP.config, hf.CLIPConfig),
        (ours.VisionFields, hf.MetaClip2VisionConfig),
        (ours.TextFields, hf.MetaClip2TextConfig),
        (ours.METACLIP_2.config, hf.MetaClip2Config),
        (ours.VisionFields, hf.ChineseCLIPVisionConfig),
        (ours.ChineseTextFields, hf.ChineseCLIPTextConfig),
        (ours.CHINESE_CLIP.config, hf.ChineseCLIPConfig),
        (ours.SiglipVisionFields, hf.SiglipVisionConfig),
        (ours.SiglipTextFields, hf.SiglipTextConfig),
        (ours.SIGLIP.config, hf.SiglipConfig),
        (ours.SIGLIP_IMAGE.config, hf.SiglipConfig),
    ),
    inert=frozenset(
        {"projection_dim"}  # of a tower, whose model has its own
        | {"vision_config", "text_config", "vision_use_head"}  # read one by one; refused by its tensors
    ),
    bases=tuple((name, hf.AutoModel.from_config) for name in ("clip-image", "metaclip-2-image", "siglip")),
)
