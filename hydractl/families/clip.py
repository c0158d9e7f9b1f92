"""CLIP and SigLIP as transformers writes them: zero-shot, an image tower with a classifier, one tower that embeds."""

from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import BeforeValidator, GetCoreSchemaHandler

from hydractl.checkpoint.spec import EMBEDDINGS, ModelSpec
from hydractl.checkpoint.tower_spec import Activation, ImageEmbeddings, TextEmbeddings, TowerSpec
from hydractl.families import config as read
from hydractl.families.bert import spelling
from hydractl.families.family import Base, Family, kin, layer_names

LEGACY_EOS = 2  # configs written before transformers fixed the field: their models pool the largest id instead


class TowerFields(read.Encoder):
    """The fields of either tower."""

    hidden_act: Activation = "quick_gelu"
    layer_norm_eps: read.NormEps = 1e-5
    intermediate_size: read.MlpWidth = 3072
    attention_dropout: read.Rate = 0.0

    def encoder(self, name: Literal["vision", "text"], embeddings: ImageEmbeddings | TextEmbeddings) -> TowerSpec:
        return self.tower(name, embeddings, self.intermediate_size, dropouts=(None, self.attention_dropout))


class VisionFields(read.Images, TowerFields):
    """The fields under `vision_config`."""

    patch_size: read.PatchSize = (32, 32)


class TextFields(TowerFields):
    """The fields under `text_config`."""

    hidden_size: read.Width = 512
    intermediate_size: read.MlpWidth = 2048
    num_attention_heads: read.Heads = 8
    vocab_size: read.Vocabulary = 49408
    max_position_embeddings: read.Positions = 77
    eos_token_id: read.Eos = 49407

    def text(self, early: bool = True) -> TowerSpec:
        """Returns the tower.

        Args:
            early: whether the config may have the early form, which pools the largest id of a text.
        """
        eos = None if early and self.eos_token_id == LEGACY_EOS else self.eos_token_id
        words = TextEmbeddings(self.vocab_size, self.max_position_embeddings, token_types=0, norm=False, eos=eos)
        return replace(self.encoder("text", words), causal=True, pool="eos")


def complete(config: Any) -> Any:
    """Returns a config with each of its parts in one place, also that of an early CLIP."""
    if not isinstance(config, dict):
        return config
    return config | {key: _part(config, key) for key in ("vision_config", "text_config")}


def _part(config: dict[str, Any], key: str) -> Any:
    # Early configs repeat each part under `..._config_dict`. In transformers that copy wins as a whole: a field that it
    # lacks has its default, whatever the other says.
    copies = (config.get(name) for name in (f"{key}_dict", key))
    return next((copy for copy in copies if copy is not None), {})


class PartsConfig(read.ArchitectureConfig):
    """The fields of a config.json with a part for each tower."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return BeforeValidator(complete).__get_pydantic_core_schema__(source, handler)


class VisionConfig(PartsConfig):
    """The fields of a config.json that has a CLIP's vision tower."""

    vision_config: VisionFields

    def vision(self) -> TowerSpec:
        part = self.vision_config
        return part.encoder("vision", part.embeddings(patch_bias=False, norm=True))


class ClipConfig(VisionConfig):
    """The fields of a CLIP's config.json."""

    early: ClassVar[bool] = True
    text_config: TextFields
    projection_dim: read.Projection = 512

    def spec(self) -> ModelSpec:
        towers = (self.vision(), self.text_config.text(self.early))
        return ModelSpec("zero-shot", towers, projection=self.projection_dim)


class MetaClip2Config(ClipConfig):
    """The fields of a MetaCLIP 2's config.json, which has no early form."""

    early = False


class ChineseTextFields(read.PlainEncoder):
    """The fields under `text_config` of a ChineseCLIP, whose texts a BERT reads."""

    vocab_size: read.Vocabulary = 30522
    max_position_embeddings: read.Positions = 512
    type_vocab_size: read.TokenTypes = 2
    hidden_dropout_prob: read.Rate = 0.1
    attention_probs_dropout_prob: read.Rate = 0.1


class ChineseClipConfig(VisionConfig):
    """The fields of a ChineseCLIP's config.json."""

    text_config: ChineseTextFields
    projection_dim: read.Projection = 512

    def spec(self) -> ModelSpec:
        part = self.text_config
        embeddings = TextEmbeddings(
            part.vocab_size, part.max_position_embeddings, token_types=part.type_vocab_size, norm=True
        )
        text = replace(part.plain_tower("text", embeddings), pre_norm=False, final_norm=False)
        return ModelSpec("zero-shot", (self.vision(), text), projection=self.projection_dim)


class ClipImageConfig(VisionConfig, read.Labelled):
    """The fields of a config.json of the image tower with a classifier."""

    def spec(self) -> ModelSpec:
        # The classifier reads the mean patch before the last norm.
        tower = replace(self.vision(), pool="mean", final_norm=False)
        return self.classifier(tower)


class SiglipVisionFields(VisionFields):
    """The fields under `vision_config`."""

    hidden_act: Activation = "gelu_pytorch_tanh"
    layer_norm_eps: read.NormEps = 1e-6
    patch_size: read.PatchSize = (16, 16)


class SiglipTextFields(TowerFields):
    """The fields under `text_config`."""

    hidden_act: Activation = "gelu_pytorch_tanh"
    layer_norm_eps: read.NormEps = 1e-6
    vocab_size: read.Vocabulary = 32000
    max_position_embeddings: read.Positions = 64
    projection_size: read.Projection | None = None


class SiglipVisionConfig(PartsConfig):
    """The fields of a config.json that has a SigLIP's vision tower."""

    vision_config: SiglipVisionFields

    def vision(self) -> TowerSpec:
        part = self.vision_config
        tower = part.encoder("vision", replace(part.embeddings(), class_token=False))
        return replace(tower, norm_tokens=True)


class SiglipConfig(SiglipVisionConfig):
    """The fields of a SigLIP's config.json."""

    text_config: SiglipTextFields

    def spec(self) -> ModelSpec:
        part = self.text_config
        embeddings = TextEmbeddings(
            part.vocab_size, part.max_position_embeddings, token_types=0, norm=False, filled=True
        )
        vision = replace(self.vision(), pool="attention", projected=False)
        text = replace(part.encoder("text", embeddings), pool="last", projection_bias=True)
        size = part.projection_size or part.hidden_size
        return ModelSpec("zero-shot", (vision, text), projection=size, logit_bias=True)


class SiglipImageConfig(SiglipVisionConfig, read.Labelled):
    """The fields of a config.json of the image tower with a classifier."""

    def spec(self) -> ModelSpec:
        return self.classifier(replace(self.vision(), pool="mean"))


def layers(tower: str) -> dict[str, str]:
    """Returns transformers' names in a tower's layers."""
    attention = [f"self_attn.{part}_proj" for part in ("q", "k", "v", "out")]
    norms, mlp = ("layer_norm1", "layer_norm2"), ("mlp.fc1", "mlp.fc2")
    return layer_names(tower, f"{tower}_model.encoder.layers.{{i}}.", attention, norms=norms, mlp=mlp)


VISION = {
    "vision.embeddings.patch": "vision_model.embeddings.patch_embedding",
    "vision.embeddings.class_token": "vision_model.embeddings.class_embedding",
    "vision.embeddings.position": "vision_model.embeddings.position_embedding.weight",
    "vision.embeddings.norm": "vision_model.pre_layrnorm",
    **layers("vision"),
    "vision.norm": "vision_model.post_layernorm",
}
TEXT = {
    "text.embeddings.word": "text_model.embeddings.token_embedding.weight",
    "text.embeddings.position": "text_model.embeddings.position_embedding.weight",
    **layers("text"),
    "text.norm": "text_model.final_layer_norm",
}

CLIP = Family(
    name="clip",
    title="CLIP",
    architectures=("CLIPModel",),
    config=ClipConfig,
    spellings=(
        {
            **VISION,
            **TEXT,
            "vision.projection": "visual_projection",
            "text.projection": "text_projection",
            "logit_scale": "logit_scale",
        },
    ),
    task="zero-shot",
    inert=(r"(vision|text)_model\.embeddings\.position_ids",),
)
CLIP_IMAGE = Family(
    name="clip-image",
    title="CLIP image classifier",
    config_type="clip",
    architectures=("CLIPForImageClassification",),
    config=ClipImageConfig,
    spellings=(VISION | {"classifier": "classifier"},),
    base=Base("vision_model.", model_type="clip_vision_model", part="vision_config", embeds=False),
    # Only the class token goes through this norm, and this classifier does not read it.
    inert=(r"vision_model\.post_layernorm\.(weight|bias)", *CLIP.inert),
)
CHINESE_CLIP = replace(
    kin(CLIP, "chinese-clip", "ChineseCLIP", "ChineseCLIPModel", config=ChineseClipConfig),
    config_type="chinese_clip",
    spellings=({**CLIP.spellings[0], **spelling("text_model", {})},),
    inert=(*CLIP.inert, r"text_model\.pooler\..*"),
)
METACLIP_2 = replace(
    kin(CLIP, "metaclip-2", "MetaCLIP 2", "MetaClip2Model", config=MetaClip2Config), config_type="metaclip_2"
)
METACLIP_2_IMAGE = replace(
    kin(CLIP_IMAGE, "metaclip-2-image", "MetaCLIP 2 image classifier", "MetaClip2ForImageClassification"),
    config_type="metaclip_2",
    base=Base("vision_model.", model_type="metaclip_2_vision_model", part="vision_config", embeds=False),
)
HEAD = "vision_model.head."
SIGLIP = Family(
    name="siglip-zero-shot",
    title="SigLIP, SigLIP 2 (fixed resolution)",
    config_type="siglip",
    architectures=("SiglipModel",),
    config=SiglipConfig,
    spellings=(
        {
            **VISION,
            **TEXT,
            "vision.attention_pool.probe": HEAD + "probe:3",
            **{f"vision.attention_pool.{part}": f"{HEAD}attention.in_proj_*[{i}/3]" for i, part in enumerate("qkv")},
            "vision.attention_pool.o": HEAD + "attention.out_proj",
            "vision.attention_pool.norm": HEAD + "layernorm",
            **{f"vision.attention_pool.mlp.{part}": f"{HEAD}mlp.{part}" for part in ("fc1", "fc2")},
            "text.projection": "text_model.head",
            "logit_scale": "logit_scale:1",
            "logit_bias": "logit_bias:1",
        },
    ),
    task="zero-shot",
    inert=CLIP.inert,
)
SIGLIP_IMAGE = Family(
    name="siglip",
    title="SigLIP image classifier",
    architectures=("SiglipForImageClassification",),
    config=SiglipImageConfig,
    spellings=(VISION | {"classifier": "classifier"},),
    base=Base("vision_model.", model_type="siglip_vision_model", part="vision_config", embeds=False),
    # The zero-shot model pools with the head; the classifier bypasses it.
    inert=(r"vision_model\.head\..*", r"vision_model\.embeddings\.position_ids"),
)


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
        return ModelSpec("text-embedding", (self.text(),), projection=self.projection_dim if self.projected else None)


class ProjectedTextTowerConfig(TextTowerConfig):
    """The fields of the config.json of a text tower with its projection."""

    projected = True


def tower_families(
    tower: Literal["vision", "text"],
    names: dict[str, str],
    config: type[read.ArchitectureConfig],
    projected_config: type[read.ArchitectureConfig],
) -> tuple[Family, Family]:
    """Returns the tables of a tower that embeds by itself, without its projection and with it.

    Args:
        names: those inside the model that adds the projection.
    """
    family = Family(
        name=f"clip-{tower}",
        title=f"CLIP {tower} tower",
        config_type=f"clip_{tower}_model",
        architectures=(f"CLIP{tower.capitalize()}Model",),
        config=config,
        spellings=({ours: name.removeprefix(f"{tower}_model.") for ours, name in names.items()}, names),
        task=EMBEDDINGS[tower],
        inert=(rf"({tower}_model\.)?embeddings\.position_ids",),
    )
    architecture = f"{family.architectures[0]}WithProjection"
    projected = kin(
        family, f"{family.name}-projected", f"{family.title} with projection", architecture, config=projected_config
    )
    return family, replace(projected, spellings=(names,))


IMAGE_TOWER, PROJECTED_IMAGE_TOWER = tower_families(
    "vision", {**VISION, "vision.projection": "visual_projection"}, ImageTowerConfig, ProjectedImageTowerConfig
)
TEXT_TOWER, PROJECTED_TEXT_TOWER = tower_families(
    "text", {**TEXT, "text.projection": "text_projection"}, TextTowerConfig, ProjectedTextTowerConfig
)
