"""The recipes of the paper ([HE] C, D.2); `source` says where the rest of their numbers comes from."""

from dataclasses import replace
from pathlib import Path

from hydractl.errors import OptionError
from hydractl.training.recipe import Recipe, read_recipe

IMAGENET1K = Recipe(
    source="[HE] arXiv 2510.18358, C and D.2; batch 512 as in arXiv 2106.10270, from where the checkpoint comes",
    train_only=("attention", "mlp", "norm", "classifier"),
    optimizer="sgd",
    lr=(0.003, 0.01, 0.03, 0.06),
    schedule="cosine",
    warmup=5_000,
    final_rate=1e-5,
    steps=120_000,
    batch=512,
    validate_every=5_000,
    crop_scale=(0.08, 1.0),
    flip=True,
    randaugment=(2, 12),
    label_smoothing=0.1,
    dropout=0.1,
)
CIFAR100 = Recipe(
    source="[HE] arXiv 2510.18358, C and D.2; batch 512 as in arXiv 2106.10270; variant: `train_only` classifier",
    freeze_below=-5,
    new_classifier="zeros",
    optimizer="sgd",
    lr=(0.001, 0.003, 0.01, 0.03),
    schedule="cosine",
    warmup=500,
    final_rate=1e-5,
    steps=10_000,
    batch=512,
    validate_every=1_000,
    crop_scale=(0.08, 1.0),
    flip=True,
    label_smoothing=0.1,
)
SST2 = Recipe(
    source="[HE] arXiv 2510.18358, C and D.2 (a dense model: lr 8e-6); batch 32 as in arXiv 1810.04805",
    optimizer="adamw",
    lr=(1e-5,),
    weight_decay=0.01,
    clip=1.0,
    schedule="linear",
    warmup=0.1,
    epochs=7,
    batch=32,
    patience=2,
    improvement=5e-4,
    max_length=128,
    length_window=50,
)
CLIP_LIT = Recipe(
    source="[HE] arXiv 2510.18358, C; locked image tower as in arXiv 2111.07991; the rest by OpenCLIP's defaults",
    train_only=("text", "logit_scale"),
    optimizer="adamw",
    lr=(5e-5,),
    betas=(0.9, 0.98),
    eps=1e-6,
    weight_decay=0.2,
    schedule="cosine",
    warmup=100,
    epochs=1,
    batch=96_000,
    loss="contrastive",
)
DENSE = Recipe(
    source="[HE] arXiv 2510.18358, C (the dense checkpoints it starts from); batch 512 as in arXiv 2106.10270",
    optimizer="sgd",
    schedule="cosine",
    warmup=500,
    batch=512,
    validate_every=1_000,
    crop_scale=(0.08, 1.0),
    flip=True,
)

RECIPES = {
    "imagenet1k": IMAGENET1K,
    "cifar100": CIFAR100,
    "sst2": SST2,
    "clip-lit": CLIP_LIT,
    "imagenet1k-dense": replace(DENSE, lr=IMAGENET1K.lr, steps=20_000),
    "cifar100-dense": replace(DENSE, lr=CIFAR100.lr, steps=10_000),
}


def find_recipe(recipe: str | Path | Recipe) -> Recipe:
    """Returns the published recipe of that name, the one in a TOML file, or the recipe itself."""
    if isinstance(recipe, Recipe):
        return recipe
    if str(recipe) in RECIPES:
        return RECIPES[str(recipe)]
    if not str(recipe).endswith(".toml"):
        raise OptionError(f"`recipe` {recipe}: unknown: choose {', '.join(RECIPES)}, or name a .toml file")
    return read_recipe(Path(recipe))
