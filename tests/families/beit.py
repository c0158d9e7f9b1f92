import transformers as hf

from hydractl.families.beit import BEIT, DATA2VEC_VISION
from tests.families.vit import image_model
from tests.references import Architecture


def masked_patches(config: hf.BeitConfig) -> hf.PreTrainedModel:
    config.use_mask_token = True
    return hf.BeitForMaskedImageModeling(config)


VARIANTS = Architecture(
    variants={
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
    typical=("beit", "beit-placed-first", "data2vec-vision"),
    configs=((BEIT.config, hf.BeitConfig), (DATA2VEC_VISION.config, hf.Data2VecVisionConfig)),
    inert=frozenset(
        {"vocab_size", "pool_scales", "semantic_loss_ignore_index", "add_fpn", "out_indices", "auxiliary_loss_weight"}
        | {"use_auxiliary_head", "auxiliary_channels", "auxiliary_num_convs", "auxiliary_concat_input"}  # other tasks
    ),
    bases=(
        ("beit", hf.AutoModel.from_config),
        ("beit", masked_patches),
        ("data2vec-vision", hf.AutoModel.from_config),
    ),
)
