"""Networks without a classifier, which embed: their tables follow from those of classifiers."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.disk import MODULES, PROMPTS, SENTENCE_FOLDER, SENTENCE_LENGTH, read_json_object
from hydractl.checkpoint.spec import EMBEDDINGS, ModelSpec
from hydractl.checkpoint.tensors import TensorMap
from hydractl.checkpoint.tower_spec import Pool
from hydractl.errors import CheckpointError
from hydractl.families.config import ArchitectureConfig, Fields, Kind, Name, read_config
from hydractl.families.family import Base, Family, locate
from hydractl.schema import Origin, document, read_json
from hydractl.watch import LOG

POOLER = r"(.*\.)?pooler\.dense\.(weight|bias)"  # reads the first token of pre-training
ENDS = ("classifier", "distillation_classifier", "text.pooler", "text.pooler_norm")
#: The poolings of sentence-transformers that are read, as its field of the config and as our name.
POOLINGS: dict[str, Pool] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first"}
OTHER_POOLINGS = ("max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")


class _Module(Fields):
    type: Name
    path: str = ""


class _Pooling(Fields):
    pooling_mode: Literal["mean", "cls"] | None = None  # of releases that name one
    pooling_mode_mean_tokens: bool = False
    pooling_mode_cls_token: bool = False


class _Length(Fields):
    max_seq_length: int | None = None


def embedding_family(
    name: str, config: Mapping[str, Any], tensors: TensorMap, families: list[Family], *, sentences: bool
) -> Family | None:
    """Returns the table of a network that embeds; None for one with a classifier or other last layers.

    Args:
        families: those of its model type.
        sentences: whether it is one of sentence-transformers, whose other last layers count for nothing.
    """
    named = read_config(name, config, Kind).architectures
    for family in families:
        if family.base is None or not family.base.embeds:
            continue
        own = set(family.architectures)
        ends = {locate(one, f"{end}.weight").name for one in family.names(config) for end in ENDS[:2] if end in one}
        is_bare = sentences or (named is not None and all(each.endswith("Model") for each in named))
        is_bare = is_bare or (family.library == "timm" and (named is None or bool(own & set(named))))
        if is_bare and not ends & tensors.keys():
            return bare(family, family.base)
    return None


def bare(family: Family, base: Base) -> Family:
    """Returns the table of a family's networks without a classifier, whose tensors may lack the prefix."""

    def forms(spellings: tuple[Mapping[str, str], ...]) -> tuple[Mapping[str, str], ...]:
        whole = [{ours: name for ours, name in one.items() if ours not in ENDS} for one in spellings]
        return (*whole, *({ours: name.removeprefix(base.prefix) for ours, name in one.items()} for one in whole))

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


def sentence_folder(folder: Path) -> Path | None:
    """Returns the folder of sentence-transformers that a network belongs to: its own, or the one around an early one's.

    Returns None for a network of another library.
    """
    around = [folder, *([folder.parent] if folder.name == SENTENCE_FOLDER else [])]
    return next((one for one in around if (one / MODULES).is_file()), None)


def as_sentences(name: str, folder: Path, spec: ModelSpec) -> ModelSpec:
    """Returns the network with the pooling and the length of embeddings that sentence-transformers gives it.

    Args:
        folder: that of its modules.

    Raises:
        CheckpointError: it puts something else behind the network, or pools otherwise.
    """
    origin = Origin(f"{name}: {MODULES}", CheckpointError, "name a network that only pools and normalises")
    listed = read_json(folder / MODULES, origin).value
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise origin.refusal("is no list of modules")
    modules = [document(one, origin).read(_Module) for one in listed]
    kinds = {module.type.rpartition(".")[2]: module for module in modules}
    if unknown := sorted(kinds.keys() - {"Transformer", "Pooling", "Normalize"}):
        raise origin.refusal(f"has a {unknown[0]} behind the network")
    if (folder / PROMPTS).is_file() and read_json_object(folder / PROMPTS).get("default_prompt_name"):
        LOG.warn(f"note: {name}: sentence-transformers puts a prompt before each text: here texts stay as they are")
    pool: Pool = "mean"
    if "Pooling" in kinds:
        path = folder / Path(kinds["Pooling"].path).name / "config.json"
        settings = read_json_object(path)
        found = read_config(name, settings, _Pooling, str(path.relative_to(folder)))
        chosen = [ours for theirs, ours in POOLINGS.items() if getattr(found, theirs)]
        if found.pooling_mode is not None:
            chosen = ["mean" if found.pooling_mode == "mean" else "first"]
        if len(chosen) != 1 or any(settings.get(f"pooling_mode_{other}") for other in OTHER_POOLINGS):
            raise origin.refusal("pools neither by the mean nor by the first token")
        pool = chosen[0]
    return replace(spec, towers=(replace(spec.towers[0], pool=pool),), unit_length="Normalize" in kinds)


def sentence_files(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the files by which sentence-transformers pools and normalises as a network does; none for images."""
    spec = checkpoint.spec
    if spec.modality != "text" or spec.towers[0].pool not in POOLINGS.values():
        return {}
    kinds = {"Transformer": "", "Pooling": "1_Pooling", **({"Normalize": "2_Normalize"} if spec.unit_length else {})}
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (kind, path) in enumerate(kinds.items())
    ]
    chosen = {theirs: ours == spec.towers[0].pool for theirs, ours in POOLINGS.items()}
    others = {f"pooling_mode_{other}": False for other in OTHER_POOLINGS}
    pooling = {"word_embedding_dimension": spec.towers[0].width, **chosen, **others}
    length = {"max_seq_length": checkpoint.preprocessing.get("tokenizer_config.json", {}).get("model_max_length")}
    return {MODULES: modules, "1_Pooling/config.json": pooling, SENTENCE_LENGTH: {**length, "do_lower_case": False}}


def sentence_length(folder: Path, preprocessing: dict[str, Any]) -> dict[str, Any]:
    """Returns the preprocessing with the length at which sentence-transformers cuts texts."""
    file = folder / SENTENCE_LENGTH
    if not file.is_file() or "tokenizer_config.json" not in preprocessing:
        return preprocessing
    if (most := read_config(str(folder), read_json_object(file), _Length, file.name).max_seq_length) is None:
        return preprocessing
    tokenizer = {**preprocessing["tokenizer_config.json"], "model_max_length": most}
    return {**preprocessing, "tokenizer_config.json": tokenizer}
