"""Networks without a classifier, which embed: their tables follow from those of classifiers."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hydractl.checkpoint.sentences import About, Sentences
from hydractl.checkpoint.spec import EMBEDDINGS, IDENTITY, SIGMOID, ModelSpec
from hydractl.checkpoint.tensors import TensorMap
from hydractl.checkpoint.tower_spec import Pool
from hydractl.errors import CheckpointError
from hydractl.families.config import ArchitectureConfig, ClassNames, Kind, read_config
from hydractl.families.family import Base, Family, locate

POOLER = r"(.*\.)?pooler\.dense\.(weight|bias)"  # reads the first token of pre-training
ENDS = ("classifier", "distillation_classifier", "text.pooler", "text.pooler_norm")


def embedding_family(
    name: str, config: Mapping[str, Any], tensors: TensorMap, families: list[Family], *, sentences: bool
) -> Family | None:
    """Returns the table of a network that embeds; None for one with a classifier or other last layers.

    Args:
        families: those of its model type.
        sentences: whether it is one of sentence-transformers, whose other last layers count for nothing.
    """
    listed = read_config(name, config, Kind).architectures
    for family in families:
        if family.base is None or not family.base.embeds:
            continue
        classifiers = set(family.architectures)
        ends = {locate(form, f"{end}.weight").name for form in family.names(config) for end in ENDS[:2] if end in form}
        is_bare = sentences or (listed is not None and all(each.endswith("Model") for each in listed))
        is_bare = is_bare or (family.library == "timm" and (listed is None or bool(classifiers & set(listed))))
        if is_bare and not ends & tensors.keys():
            return bare(family, family.base)
    return None


def bare(family: Family, base: Base) -> Family:
    """Returns the table of a family's networks without a classifier, whose tensors may lack the prefix."""

    def forms(spellings: tuple[Mapping[str, str], ...]) -> tuple[Mapping[str, str], ...]:
        kept = [{ours: name for ours, name in form.items() if ours not in ENDS} for form in spellings]
        return (*kept, *({ours: name.removeprefix(base.prefix) for ours, name in form.items()} for form in kept))

    spelled_by, start = family.spelled_by, re.escape(base.prefix)
    return replace(
        family,
        architectures=(),
        saved_as=lambda config: len(family.names(config)) + family.saved_as(config),
        config=_embedding_config(family.config),
        spellings=forms(family.spellings),
        spelled_by=None if spelled_by is None else lambda config: forms(spelled_by(config)),
        inert=(*family.inert, *(pattern.removeprefix(start) for pattern in family.inert), POOLER),
        base=None,
    )


def _embedding_config(kind: type[ArchitectureConfig]) -> type[ArchitectureConfig]:
    class Embedding(kind):  # type: ignore[misc, valid-type]
        def spec(self) -> ModelSpec:
            return embedding_spec(super().spec())

    return Embedding


def embedding_spec(spec: ModelSpec, pool: Pool = "mean") -> ModelSpec:
    """Returns a classifier's network without the classifier.

    Args:
        pool: the tokens of a text that become its embedding. Of an image they are those that the classifier reads, the
            class token where it reads two.
    """
    tower = replace(spec.towers[0], pooler=None, pooler_norm=False)
    if tower.name == "text":
        tower = replace(tower, pool=pool, norm_tokens=tower.final_norm)
    elif tower.pool.startswith("first"):
        tower = replace(tower, pool="first")
    return ModelSpec(EMBEDDINGS[tower.name], (tower,), adapter=spec.adapter)


def as_sentences(name: str, spec: ModelSpec, about: About, sentences: Sentences) -> ModelSpec:
    """Returns the network with the pooling, the length and the width of embeddings that sentence-transformers gives it.

    Raises:
        CheckpointError: it is a reranker, which has lost its classifier.
    """
    if about.reranks:
        raise CheckpointError(f"{name}: is a CrossEncoder without a classifier: name the folder that was trained")
    towers = (replace(spec.towers[0], pool=sentences.pool),)
    return replace(spec, towers=towers, unit_length=sentences.unit_length, truncate_dim=about.truncate_dim)


def as_reranker(name: str, config: Mapping[str, Any], about: About) -> dict[str, Any]:
    """Returns a config.json with the activation that sentence-transformers puts after a reranker's logits.

    Its own file wins over config.json; where neither names one, it is a sigmoid after one logit.
    """
    fields = read_config(name, config, ClassNames)
    default = SIGMOID if len(fields.labels) == 1 else IDENTITY
    activation = about.activation_fn or fields.logit_activation or default
    return {**config, "sentence_transformers": {"activation_fn": activation}}
