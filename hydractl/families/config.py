"""Reading fields of a config.json, refusing what has an effect this project does not build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from hydractl.checkpoint.spec import Activation, ImageEmbeddings, TextEmbeddings, TowerSpec
from hydractl.errors import CheckpointError

ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)


def demand(config: Mapping[str, Any], demanded: Mapping[str, Any], where: str) -> None:
    """Raises CheckpointError where a field has another value than the one that is built here."""
    for key, value in demanded.items():
        if key in config and config[key] != value:
            raise CheckpointError(f"{where}: {key} is {config[key]!r}, which is not supported (only {value!r})")


def integer(config: Mapping[str, Any], key: str) -> int:
    """A positive whole number."""
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CheckpointError(f"config.json: {key} is {value!r}, expected a positive whole number")
    return value


def rate(config: Mapping[str, Any], key: str) -> float:
    """A dropout probability; null reads as 0."""
    value = config.get(key)
    if not isinstance(value, int | float | None) or not 0 <= (value or 0.0) < 1:
        raise CheckpointError(f"config.json: {key} is {value!r}, expected a probability")
    return float(value or 0.0)


def activation(config: Mapping[str, Any], key: str = "hidden_act") -> Activation:
    """The name of an activation this project has."""
    for name in ACTIVATIONS:
        if name == config.get(key):
            return name
    raise CheckpointError(
        f"config.json: {key} {config.get(key)!r} is not supported: known are {', '.join(sorted(ACTIVATIONS))}"
    )


def pair(config: Mapping[str, Any], key: str) -> tuple[int, int]:
    """Height and width, given as one number or as two."""
    value = config.get(key)
    sizes = [value, value] if isinstance(value, int) else value
    if not isinstance(sizes, list | tuple) or len(sizes) != 2 or not all(isinstance(n, int) and n > 0 for n in sizes):
        raise CheckpointError(f"config.json: {key} is {value!r}, expected a size or [height, width]")
    return sizes[0], sizes[1]


def head_width(config: Mapping[str, Any], width: int, heads: int) -> int:
    """K, the width of one head."""
    if width % heads:
        raise CheckpointError(f"config.json: hidden_size {width} is not a multiple of {heads} attention heads")
    return width // heads


def encoder(
    config: Mapping[str, Any],
    name: Literal["vision", "text"],
    embeddings: ImageEmbeddings | TextEmbeddings,
    dropout: str | None = "hidden_dropout_prob",
    attention_dropout: str = "attention_probs_dropout_prob",
) -> TowerSpec:
    """The tower that the fields most configs of transformers share describe; a family replaces what it does otherwise.

    Args:
        dropout: the field that holds the rate on hidden states; None where there is none.
        attention_dropout: the field that holds the rate on attention.
    """
    width, heads = integer(config, "hidden_size"), integer(config, "num_attention_heads")
    return TowerSpec(
        name=name,
        layers=integer(config, "num_hidden_layers"),
        heads=heads,
        head_width=head_width(config, width, heads),
        width=width,
        mlp_width=integer(config, "intermediate_size"),
        activation=activation(config),
        norm_eps=config["layer_norm_eps"],
        embeddings=embeddings,
        dropout=rate(config, dropout) if dropout else 0.0,
        attention_dropout=rate(config, attention_dropout),
    )


def image_embeddings(config: Mapping[str, Any], patch_bias: bool = True, norm: bool = False) -> ImageEmbeddings:
    """The embeddings of images that the fields most configs of transformers share describe."""
    return ImageEmbeddings(
        channels=integer(config, "num_channels"),
        image_size=pair(config, "image_size"),
        patch_size=pair(config, "patch_size"),
        patch_bias=patch_bias,
        norm=norm,
    )


def labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Label names in class order; LABEL_0, LABEL_1 ... where the config names none.

    Raises:
        CheckpointError: `id2label` does not number its labels 0 to C-1, or the task is not one-of-C classification.
    """
    if config.get("problem_type") not in (None, "single_label_classification"):
        raise CheckpointError(
            f"config.json: problem_type {config['problem_type']!r}: only one label per sample is supported"
        )
    names = config.get("id2label")
    if names is None:
        return tuple(f"LABEL_{i}" for i in range(config.get("num_labels") or 2))
    try:
        ordered = [names[key] for key in sorted(names, key=int)]
        numbered = [int(key) for key in names]
    except (TypeError, ValueError, AttributeError) as error:
        raise CheckpointError("config.json: id2label does not map class numbers to names") from error
    if sorted(numbered) != list(range(len(ordered))):
        raise CheckpointError(
            f"config.json: id2label numbers its classes {sorted(numbered)}, expected 0 to {len(ordered) - 1}"
        )
    return tuple(str(name) for name in ordered)
