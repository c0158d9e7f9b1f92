from pathlib import Path
from typing import Any

import torch
import transformers as hf
from packaging.version import Version
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.modeling_outputs import ImageClassifierOutput

from hydractl.families.vit import BEIT, DATA2VEC_VISION, DEIT, DINOV2, DINOV2_WITH_REGISTERS, DINOV3, IJEPA, MSN, VIT
from tests import references
from tests.references import BATCH, SIZES, Architecture, Built


def image_model(model: Any = hf.ViTForImageClassification, config: Any = hf.ViTConfig, **changes: Any) -> Built:
    """A classifier of images and a batch of them."""
    built = config(num_labels=references.CLASSES, **{"image_size": 12, "patch_size": 4, **SIZES, **changes})
    size = built.image_size if isinstance(built.image_size, list | tuple) else (built.image_size,) * 2
    return model(built), {"pixel_values": torch.randn(BATCH, built.num_channels, *size)}


def masked_patches(config: hf.PretrainedConfig) -> hf.PreTrainedModel:
    """The network with a decoder of masked patches."""
    config.encoder_stride = config.patch_size
    return hf.AutoModelForMaskedImageModeling.from_config(config)


def masked_beit_patches(config: hf.BeitConfig) -> hf.PreTrainedModel:
    config.use_mask_token = True
    return hf.BeitForMaskedImageModeling(config)


def dinov2(**changes: Any) -> Built:
    return image_model(hf.Dinov2ForImageClassification, hf.Dinov2Config, **changes)


class Dinov3Classifier(hf.DINOv3ViTModel):
    """A DINOv3 with a classifier on its pooled output, for which transformers has no class."""

    def __init__(self, config: hf.DINOv3ViTConfig) -> None:
        super().__init__(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, pixel_values: Tensor) -> ImageClassifierOutput:
        return ImageClassifierOutput(logits=self.classifier(super().forward(pixel_values).pooler_output))

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        super().save_pretrained(save_directory, **kwargs)
        # Only classes of their own get the names that files have.
        weights = Path(save_directory) / "model.safetensors"
        save_file({name.removeprefix("model."): tensor for name, tensor in load_file(weights).items()}, weights)


installed = Version(hf.__version__)
#: A DINOv3 of transformers before 5.18 takes square images only.
WIDE = [8, 12] if installed >= Version("5.18") else 12
#: Of a file without classifier, a classifier of transformers before 5.16 loads no weights of these.
LOST = ("vit", "deit") if installed < Version("5.16") else ()

Dinov3Classifier.__name__ = hf.DINOv3ViTModel.__name__  # as config.json names the class


def dinov3(**changes: Any) -> Built:
    width = 8 * SIZES["num_attention_heads"]  # a head's is a multiple of 4
    return image_model(
        Dinov3Classifier, hf.DINOv3ViTConfig, **{"hidden_size": width, "num_register_tokens": 2, **changes}
    )


VARIANTS = Architecture(
    variants={
        "vit": image_model,
        "vit-one-channel": lambda: image_model(num_channels=1),
        "vit-wide-image": lambda: image_model(image_size=[8, 12], patch_size=[4, 2]),
        "vit-no-qkv-bias": lambda: image_model(qkv_bias=False),
        "vit-quick-gelu": lambda: image_model(hidden_act="quick_gelu", layer_norm_eps=1e-3),
        "vit-multi-label": lambda: image_model(problem_type="multi_label_classification"),
        "vit-msn": lambda: image_model(hf.ViTMSNForImageClassification, hf.ViTMSNConfig),
        "ijepa": lambda: image_model(hf.IJepaForImageClassification, hf.IJepaConfig),
        "deit": lambda: image_model(hf.DeiTForImageClassification, hf.DeiTConfig),
        "deit-distilled": lambda: image_model(hf.DeiTForImageClassificationWithTeacher, hf.DeiTConfig),
        "dinov2": dinov2,
        "dinov2-two-channels-no-qkv-bias": lambda: dinov2(num_channels=2, qkv_bias=False, mlp_ratio=3),
        "dinov2-gated": lambda: dinov2(use_swiglu_ffn=True),
        "dinov2-registers": lambda: image_model(
            hf.Dinov2WithRegistersForImageClassification, hf.Dinov2WithRegistersConfig, num_register_tokens=3
        ),
        "dinov3": dinov3,
        "dinov3-gated-wide": lambda: dinov3(
            use_gated_mlp=True, hidden_act="silu", image_size=WIDE, key_bias=True, mlp_bias=False, proj_bias=False
        ),
        "beit": lambda: image_model(hf.BeitForImageClassification, hf.BeitConfig, use_relative_position_bias=True),
        "beit-placed-first": lambda: image_model(
            hf.BeitForImageClassification,
            hf.BeitConfig,
            use_absolute_position_embeddings=True,
            use_relative_position_bias=True,
            use_mean_pooling=False,
            layer_scale_init_value=0.0,
        ),
        "data2vec-vision": lambda: image_model(
            hf.Data2VecVisionForImageClassification, hf.Data2VecVisionConfig, use_shared_relative_position_bias=True
        ),
    },
    typical=(
        *("vit", "vit-msn", "ijepa", "deit", "deit-distilled", "dinov2", "dinov2-registers", "dinov3"),
        *("beit", "beit-placed-first", "data2vec-vision"),
    ),
    configs=(
        (VIT.config, hf.ViTConfig),
        (MSN.config, hf.ViTMSNConfig),
        (IJEPA.config, hf.IJepaConfig),
        (DEIT.config, hf.DeiTConfig),
        (DINOV2.config, hf.Dinov2Config),
        (DINOV2_WITH_REGISTERS.config, hf.Dinov2WithRegistersConfig),
        (DINOV3.config, hf.DINOv3ViTConfig),
        (BEIT.config, hf.BeitConfig),
        (DATA2VEC_VISION.config, hf.Data2VecVisionConfig),
    ),
    inert=frozenset(
        {"encoder_stride", "pooler_output_size", "pooler_act"}  # of parts that a classifier lacks
        | {"layerscale_value", "drop_path_rate"}  # before training, and in it
        | {f"pos_embed_{change}" for change in ("shift", "jitter", "rescale")}  # in training
        | {"use_mask_token", "apply_layernorm", "reshape_hidden_states", "_out_features", "_out_indices"}  # other tasks
        | {"vocab_size", "pool_scales", "semantic_loss_ignore_index", "add_fpn", "out_indices", "auxiliary_loss_weight"}
        | {"use_auxiliary_head", "auxiliary_channels", "auxiliary_num_convs", "auxiliary_concat_input"}
    ),
    bases=(
        *(
            (name, hf.AutoModel.from_config)
            for name in ("vit", "vit-msn", "ijepa", "deit", "dinov2", "dinov2-registers", "dinov3")
            if name not in LOST
        ),
        *((name, masked_patches) for name in ("vit", "deit")),
        *((name, hf.AutoModel.from_config) for name in ("beit", "data2vec-vision")),
        ("beit", masked_beit_patches),
    ),
)
