"""BEiT and data2vec for images, as transformers writes them."""

from dataclasses import replace
from typing import Annotated

from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import Relative
from hydractl.families import config as read
from hydractl.families.family import Base, Family, Interpolation, layer_names
from hydractl.families.vit import SAVED_HEADS
from hydractl.schema import Checked

TABLE = "relative_position_bias.relative_position_bias_table^T"


class BeitConfig(read.Images, read.PlainEncoder, read.Labelled):
    """The fields of a BEiT's config.json."""

    use_absolute_position_embeddings: bool = False
    use_relative_position_bias: bool = False
    use_shared_relative_position_bias: bool = False
    layer_scale_init_value: Annotated[float, Checked(ge=0, le=1e6)] = 0.1
    use_mean_pooling: bool = True

    def spec(self) -> ModelSpec:
        embeddings = replace(self.embeddings(), learned=self.use_absolute_position_embeddings)
        relative = self.use_relative_position_bias + self.use_shared_relative_position_bias
        if relative == 2:
            raise ValueError("use_relative_position_bias and use_shared_relative_position_bias are both set")
        if relative and embeddings.grid[0] != embeddings.grid[1]:
            raise ValueError(f"image_size is {self.image_size}, should be square where positions are relative")
        tower = replace(
            self.plain_tower("vision", embeddings),
            unbiased=("attention.k",),
            relative=Relative() if relative else None,
            layer_scale=self.layer_scale_init_value > 0,
            pool="mean" if self.use_mean_pooling else "first",
        )
        return ModelSpec("image-classification", (tower,), classes=len(self.labels))


def _spellings(model: str) -> tuple[dict[str, str], ...]:
    """Returns the names of the encoder `model`: tables per layer or of all, the norm behind the mean or before it."""
    ours, theirs = "vision.layers.{i}.", f"{model}.encoder.layer.{{i}}."
    norms, mlp = ("layernorm_before", "layernorm_after"), ("intermediate.dense", "output.dense")
    common = {
        "vision.embeddings.patch": f"{model}.embeddings.patch_embeddings.projection",
        "vision.embeddings.class_token": f"{model}.embeddings.cls_token:3",
        "vision.embeddings.position": f"{model}.embeddings.position_embeddings:3",
        **layer_names("vision", theirs, SAVED_HEADS, norms=norms, mlp=mlp),
        ours + "attention_scale": theirs + "lambda_1",
        ours + "mlp_scale": theirs + "lambda_2",
        "classifier": "classifier",
    }
    tables = (f"{theirs}attention.attention.{TABLE}", f"{model}.encoder.{TABLE}")
    return tuple(
        common | {ours + "attention.relative": table, "vision.norm": f"{model}.{norm}"}
        for norm in ("pooler.layernorm", "layernorm")
        for table in tables
    )


BEIT = Family(
    name="beit",
    title="BEiT",
    model_type="beit",
    architectures=("BeitForImageClassification",),
    config=BeitConfig,
    spellings=_spellings("beit"),
    saved_as=lambda config: (
        2 * (not config.get("use_mean_pooling", True)) + bool(config.get("use_shared_relative_position_bias"))
    ),
    interpolation=Interpolation(single=False),
    # The model of masked patches has no norm behind the mean of patches.
    base=Base("beit.", untrained=("vision.norm",)),
    inert=(r"beit\.embeddings\.mask_token", r".*\.relative_position_index"),
)
DATA2VEC_VISION = replace(
    BEIT,
    name="data2vec-vision",
    title="data2vec (images)",
    model_type="data2vec-vision",
    architectures=("Data2VecVisionForImageClassification",),
    spellings=_spellings("data2vec_vision"),
    base=Base("data2vec_vision.", untrained=("vision.norm",)),
    inert=(r"data2vec_vision\.embeddings\.mask_token", r".*\.relative_position_index"),
)
