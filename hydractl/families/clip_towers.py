"""The towers of a CLIP alone, as transformers writes them: they embed images or texts."""

from dataclasses import replace
from typing import ClassVar

from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import TextEmbeddings
from hydractl.families import config as read
from hydractl.families.clip import LEGACY_EOS, VISION, TextFields, VisionFields, layers
from hydractl.families.family import Family


class ImageTowerConfig(VisionFields, read.ArchitectureConfig):
    """The fields of the config.json of a vision tower without its projection."""

    projected: ClassVar[bool] = False
    projection_dim: read.Projection = 512

    def spec(self) -> ModelSpec:
        tower = self.encoder("vision", self.embeddings(patch_bias=False, norm=True))
        return ModelSpec("image-embedding", (tower,), projection=self.projection_dim if self.projected else None)


class ProjectedImageTowerConfig(ImageTowerConfig):
    """The fields of the config.json of a vision tower with its projection."""

    projected = True


class TextTowerConfig(TextFields, read.ArchitectureConfig):
    """The fields of the config.json of a text tower without its projection."""

    projected: ClassVar[bool] = False
    projection_dim: read.Projection = 512

    def spec(self) -> ModelSpec:
        eos = None if self.eos_token_id == LEGACY_EOS else self.eos_token_id
        words = TextEmbeddings(self.vocab_size, self.max_position_embeddings, token_types=0, norm=False, eos=eos)
        tower = replace(self.encoder("text", words), causal=True, pool="eos")
        return ModelSpec("text-embedding", (tower,), projection=self.projection_dim if self.projected else None)


class ProjectedTextTowerConfig(TextTowerConfig):
    """The fields of the config.json of a text tower with its projection."""

    projected = True


#: Names inside the model that adds the projection.
IMAGES = {**VISION, "vision.norm": "vision_model.post_layernorm", "vision.projection": "visual_projection"}
TEXTS = {
    "text.embeddings.word": "text_model.embeddings.token_embedding.weight",
    "text.embeddings.position": "text_model.embeddings.position_embedding.weight",
    **layers("text"),
    "text.norm": "text_model.final_layer_norm",
    "text.projection": "text_projection",
}
IMAGE_TOWER = Family(
    name="clip-vision",
    title="CLIP vision tower",
    model_type="clip_vision_model",
    architectures=("CLIPVisionModel",),
    config=ImageTowerConfig,
    spellings=({ours: name.removeprefix("vision_model.") for ours, name in IMAGES.items()}, IMAGES),
    task="image-embedding",
    inert=(r"(vision_model\.)?embeddings\.position_ids",),
)
PROJECTED_IMAGE_TOWER = replace(
    IMAGE_TOWER,
    name="clip-vision-projected",
    title="CLIP vision tower with projection",
    architectures=("CLIPVisionModelWithProjection",),
    config=ProjectedImageTowerConfig,
    spellings=(IMAGES,),
)
TEXT_TOWER = Family(
    name="clip-text",
    title="CLIP text tower",
    model_type="clip_text_model",
    architectures=("CLIPTextModel",),
    config=TextTowerConfig,
    spellings=({ours: name.removeprefix("text_model.") for ours, name in TEXTS.items()}, TEXTS),
    task="text-embedding",
    inert=(r"(text_model\.)?embeddings\.position_ids",),
)
PROJECTED_TEXT_TOWER = replace(
    TEXT_TOWER,
    name="clip-text-projected",
    title="CLIP text tower with projection",
    architectures=("CLIPTextModelWithProjection",),
    config=ProjectedTextTowerConfig,
    spellings=(TEXTS,),
)
