"""CLIP as OpenCLIP writes it: q, k and v are one tensor, and projections are stored transposed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import ImageEmbeddings, TextEmbeddings, TowerSpec
from hydractl.families import config as read
from hydractl.families.family import Family, layer_names
from hydractl.schema import Checked, Schema

#: A number for each of red, green and blue.
Channel = Annotated[float, Checked(ge=-1000, le=1000)]
Rgb = tuple[Channel, Channel, Channel]
#: Fields of a tower without an effect once it is trained: training, tokenizer, initial positions, form of outputs.
INERT = frozenset(
    {"patch_dropout", "pos_embed_type", "output_tokens", "attn_pooler_queries", "attn_pooler_heads",
     "timm_model_pretrained", "timm_pool", "timm_proj", "timm_proj_bias", "timm_drop", "timm_drop_path",
     "hf_tokenizer_name", "tokenizer_mode", "tokenizer_kwargs", "pad_id", "hf_model_pretrained", "hf_proj_type",
     "hf_pooler_type"}
)  # fmt: skip


def _without_inert(fields: Any) -> Any:
    return {k: v for k, v in fields.items() if k not in INERT} if isinstance(fields, dict) else fields


class _Activation(Schema):
    approximate: Literal["none", "tanh"] = "none"


class _Norm(Schema):
    eps: read.NormEps = 1e-5


class _OpenTower(Schema):
    """The fields that both towers have."""

    layers: read.Layers = 12
    width: read.Width
    mlp_ratio: read.MlpRatio = 4.0
    ls_init_value: Annotated[float, Checked(ge=-1000, le=1000)] | None = None
    act_kwargs: _Activation | None = None
    norm_kwargs: _Norm | None = None
    block_type: None = None
    qk_norm: Literal[False] = False
    scaled_cosine_attn: Literal[False] = False
    scale_heads: Literal[False] = False
    scale_attn_inner: Literal[False] = False
    scale_attn: Literal[False] = False
    scale_fc: Literal[False] = False

    def spec(
        self,
        name: Literal["vision", "text"],
        heads: int,
        embeddings: ImageEmbeddings | TextEmbeddings,
        quick_gelu: bool,
    ) -> TowerSpec:
        is_tanh = self.act_kwargs is not None and self.act_kwargs.approximate == "tanh"
        return TowerSpec(
            name=name,
            layers=self.layers,
            heads=heads,
            head_width=read.head_width(self.width, heads, "width"),
            width=self.width,
            mlp_width=int(self.width * self.mlp_ratio),
            activation="quick_gelu" if quick_gelu else "gelu_pytorch_tanh" if is_tanh else "gelu",
            norm_eps=(self.norm_kwargs or _Norm()).eps,
            embeddings=embeddings,
            layer_scale=self.ls_init_value is not None,
        )


class _OpenVision(_OpenTower):
    """The fields under `vision_cfg`."""

    width: read.Width = 768
    head_width: Annotated[int, read.within("head_width")] = 64
    image_size: read.ImageSize = (224, 224)
    patch_size: read.PatchSize = (16, 16)
    no_ln_pre: bool = False
    pool_type: Literal["tok", "avg"] = "tok"
    final_ln_after_pool: bool = False
    attentional_pool: Literal[False] = False
    timm_model_name: None = None

    def tower(self, quick_gelu: bool) -> TowerSpec:
        embeddings = ImageEmbeddings(3, self.image_size, self.patch_size, patch_bias=False, norm=not self.no_ln_pre)
        if self.head_width > self.width:
            raise ValueError(f"vision_cfg.head_width is {self.head_width}, should be at most the width {self.width}")
        spec = self.spec("vision", self.width // self.head_width, embeddings, quick_gelu)
        is_mean = self.pool_type == "avg"
        return replace(spec, pool="mean" if is_mean else "first", norm_tokens=is_mean and not self.final_ln_after_pool)


class _OpenText(_OpenTower):
    """The fields under `text_cfg`."""

    width: read.Width = 512
    heads: read.Heads = 8
    context_length: read.Positions = 77
    vocab_size: read.Vocabulary = 49408
    pool_type: Literal["argmax", "eos"] = "argmax"
    eos_id: read.Eos = 2
    embed_cls: Literal[False] = False
    no_causal_mask: Literal[False] = False
    proj_bias: Literal[False] = False
    proj_type: Literal["linear"] = "linear"
    hf_model_name: None = None

    def tower(self, quick_gelu: bool) -> TowerSpec:
        eos = self.eos_id if self.pool_type == "eos" else None
        embeddings = TextEmbeddings(self.vocab_size, self.context_length, token_types=0, norm=False, eos=eos)
        return replace(self.spec("text", self.heads, embeddings, quick_gelu), causal=True, pool="eos")


class _Model(read.Fields):
    """The fields under `model_cfg`."""

    embed_dim: read.Projection
    vision_cfg: Annotated[_OpenVision, BeforeValidator(_without_inert)] = _OpenVision()
    text_cfg: Annotated[_OpenText, BeforeValidator(_without_inert)] = _OpenText()
    quick_gelu: bool = False
    custom_text: bool = False
    multimodal_cfg: None = None
    init_logit_bias: None = None


class _Transform(read.Fields):
    """The fields under `preprocess_cfg`."""

    resize_mode: Literal["shortest", "squash"] | None = None
    interpolation: Literal["bicubic", "bilinear", "nearest", "lanczos", "hamming", "box", "random"] | None = None
    mean: Rgb | None = None
    std: Rgb | None = None


class OpenClipConfig(read.ArchitectureConfig):
    """The fields of an open_clip_config.json."""

    model_cfg: _Model
    preprocess_cfg: _Transform | None = None

    def spec(self) -> ModelSpec:
        model = self.model_cfg
        towers = (model.vision_cfg.tower(model.quick_gelu), model.text_cfg.tower(model.quick_gelu))
        return ModelSpec("zero-shot", towers, projection=model.embed_dim)


def preprocessing(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns OpenCLIP's image transform in timm's form, which crops only to make the image square.

    Raises:
        CheckpointError: see `read_config`.
    """
    fields = read.read_config(name, config, OpenClipConfig, FAMILY.config_file)
    settings = fields.preprocess_cfg or _Transform()
    height, width = fields.model_cfg.vision_cfg.image_size
    # OpenCLIP draws at random in training alone, and ignores the setting where it crops to another ratio.
    is_followed = settings.interpolation != "random" and (height == width or settings.resize_mode == "squash")
    transform = {
        "input_size": [3, height, width],
        "interpolation": (settings.interpolation if is_followed else None) or "bicubic",
        "crop_pct": 1.0,
        "crop_mode": {"shortest": "center", "squash": "squash"}[settings.resize_mode or "shortest"],
        "mean": list(settings.mean or (0.48145466, 0.4578275, 0.40821073)),
        "std": list(settings.std or (0.26862954, 0.26130258, 0.27577711)),
    }
    return {"image_processor_type": "TimmWrapperImageProcessor", "pretrained_cfg": transform}


def _layers(tower: str, prefix: str) -> dict[str, str]:
    theirs, scales = f"{prefix}transformer.resblocks.{{i}}.", ("ls_1.gamma", "ls_2.gamma")
    attention = [*(f"attn.in_proj_*[{part}/3]" for part in range(3)), "attn.out_proj"]
    norms, mlp = ("ln_1", "ln_2"), ("mlp.c_fc", "mlp.c_proj")
    return layer_names(tower, theirs, attention, norms=norms, mlp=mlp, scales=scales)


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
    config_type="open_clip",
    architectures=("CLIP",),
    config=OpenClipConfig,
    spellings=(_spelling(""), _spelling("text.")),  # with `custom_text` the text tower is a module of its own
    inert=(r"(text\.)?attn_mask",),
    saved_as=lambda config: int(config["model_cfg"].get("custom_text", False)),
    to_source=lambda config, _labels: {name: value for name, value in config.items() if name != "model_type"},
    task="zero-shot",
    library="open_clip",
    config_file="open_clip_config.json",
    weights_file="open_clip_model.safetensors",
)
