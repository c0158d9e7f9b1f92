"""Describes an architecture as data: what its config and its tensors are called, with a classifier and without."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hydractl.checkpoint.sentences import About, Sentences
from hydractl.checkpoint.spec import EMBEDDINGS, IDENTITY, SIGMOID, ModelSpec, TaskName
from hydractl.checkpoint.tensors import LazyTensor, StoredNumbers, TensorMap
from hydractl.errors import CheckpointError
from hydractl.families.config import ArchitectureConfig, ClassNames, Kind, read_config


@dataclass(frozen=True)
class Base:
    """The checkpoints without a classifier that a family can put a new classifier on.

    A bare encoder lacks `prefix`, which tensor names inside a classifier begin with. A model for another task, such as
    masked words, has the prefix, and its own last layers outside of it.
    """

    prefix: str
    untrained: tuple[str, ...] = ()  # our names of norms that some bases lack
    model_type: str | None = None  # a bare encoder's, where it differs from a classifier's
    part: str | None = None  # the field of a classifier's config that holds a config of that type
    embeds: bool = True  # a bare encoder's embedding is what the classifier reads, or the mean of a text


@dataclass(frozen=True)
class Interpolation:
    """Tells how the library interpolates positions to the size of its images in each forward pass."""

    single: bool = True  # in float32, whatever the dtype of the table
    antialias: bool = False


@dataclass(frozen=True)
class Family:
    """One architecture.

    Each of `spellings` maps our module or tensor names to theirs; a checkpoint uses one of them throughout. `{i}`
    stands for the layer; `.weight` or `.bias` is appended, or replaces a `*`. `name[1/3]` is the second of three equal
    parts of the rows of a fused tensor, `name^T` a transposed tensor, and `name:3` a tensor that is stored with three
    axes, the leading ones of length one.
    """

    name: str
    title: str
    architectures: tuple[str, ...]  # transformers classes whose checkpoints this family reads
    config: type[ArchitectureConfig]  # the fields of config.json that it reads
    spellings: tuple[Mapping[str, str], ...]
    config_type: str | None = None  # its `model_type` in config.json, where that is not its name
    inert: tuple[str, ...] = ()  # patterns of tensor names that real checkpoints carry to no effect
    interpolation: Interpolation | None = None  # None: the library takes images of one size
    base: Base | None = None  # None: only checkpoints with a classifier are read
    legacy: Mapping[str, str] = field(default_factory=dict)  # tensor name endings of older releases, to today's
    task: TaskName = "image-classification"
    #: From the network that a config describes to that of this task.
    described: Callable[[ModelSpec], ModelSpec] = lambda spec: spec
    library: str = "transformers"  # the tests compare with its forward pass
    #: For export: the index of the spelling that the library writes, and the config as the library wants it.
    saved_as: Callable[[Mapping[str, Any]], int] = lambda config: 0
    #: Spellings that depend on the config, in place of the others.
    spelled_by: Callable[[Mapping[str, Any]], tuple[Mapping[str, str], ...]] | None = None
    to_source: Callable[[Mapping[str, Any], Sequence[str] | None], dict[str, Any]] | None = None
    config_file: str = "config.json"
    weights_file: str = "model.safetensors"

    def names(self, config: Mapping[str, Any]) -> tuple[Mapping[str, str], ...]:
        """Returns the spellings that a checkpoint with this config may use."""
        return self.spellings if self.spelled_by is None else self.spelled_by(config)

    @property
    def model_type(self) -> str:
        """Its `model_type` in config.json."""
        return self.config_type or self.name

    @property
    def model_types(self) -> tuple[str, ...]:
        """Every `model_type` that a config.json of the family or of its base network may have."""
        base_type = self.base.model_type if self.base else None
        return (self.model_type, base_type) if base_type else (self.model_type,)


def layer_names(
    ours: str,
    theirs: str,
    attention: Sequence[str],
    norms: Sequence[str],
    mlp: Sequence[str],
    scales: Sequence[str] = (),
) -> dict[str, str]:
    """Maps our names in a layer of tower `ours` to theirs.

    Args:
        theirs: what their names of a layer begin with.
        attention: theirs for q, k, v and o.
        norms: theirs for the norms of attention and MLP.
        mlp: theirs for the two maps, and in a gated MLP for the one that multiplies.
        scales: theirs for the factors of what attention and MLP add, if they have any.
    """
    pairs = [
        *zip(("attention.q", "attention.k", "attention.v", "attention.o"), attention, strict=True),
        *zip(("attention_norm", "mlp_norm"), norms, strict=True),
        *zip(("mlp.fc1", "mlp.fc2", "mlp.factor"), mlp, strict=False),
        *zip(("attention_scale", "mlp_scale"), scales, strict=False),
    ]
    return {f"{ours}.layers.{{i}}.{part}": theirs + name for part, name in pairs}


def kin(
    family: Family,
    name: str,
    title: str,
    architecture: str,
    *,
    config: type[ArchitectureConfig] | None = None,
    model: str | None = None,
) -> Family:
    """Returns the table of a family that is like another in all but its names.

    Args:
        config: its fields, where they are others.
        model: what its names of tensors in the encoder begin with, where it is something else.
    """
    table = replace(family, name=name, title=title, architectures=(architecture,), config=config or family.config)
    if model is None or family.base is None:
        return table
    start = re.compile(rf"^{family.base.prefix[:-1]}(?=\\?\.)")  # of names, and of patterns of them
    return replace(
        table,
        spellings=tuple({ours: start.sub(model, each) for ours, each in form.items()} for form in family.spellings),
        base=replace(family.base, prefix=f"{model}."),
        inert=tuple(start.sub(model, pattern) for pattern in family.inert),
    )


@dataclass(frozen=True)
class Source:
    """The place of one of our tensors in their checkpoint: a tensor, a part of its rows, or its transpose."""

    name: str
    part: int = 0
    parts: int = 1
    transposed: bool = False
    axes: int = 0  # theirs, where they have more than ours


def locate(spelling: Mapping[str, str], ours: str) -> Source:
    """Returns the place that a spelling gives our tensor `ours`."""
    template = re.sub(r"\.layers\.(\d+)\.", ".layers.{i}.", ours)
    layer = re.search(r"\.layers\.(\d+)\.", ours)
    module, _, ending = template.rpartition(".")
    theirs, suffix = (spelling[template], "") if template in spelling else (spelling[module], f".{ending}")
    match = re.fullmatch(r"(.*?)(?:\[(\d)/(\d)\])?(\^T)?(?::(\d))?", theirs)
    assert match is not None
    name, part, parts, transposed, axes = match.groups()
    name = name.replace("*", ending) if "*" in name else name + suffix
    name = name.replace("{i}", layer[1] if layer else "")
    return Source(name, int(part or 0), int(parts or 1), transposed=transposed is not None, axes=int(axes or 0))


def read_from(name: str, source: Source, tensor: LazyTensor) -> LazyTensor:
    """Returns our tensor, still on disk, given the tensor of theirs that holds it.

    Args:
        name: the checkpoint's, for messages.

    Raises:
        CheckpointError: the tensor is no matrix to transpose, or its rows do not divide into parts.
    """
    if source.transposed:
        if len(tensor.shape) != 2:
            raise _misshapen(name, source, tensor, "a matrix")
        return LazyTensor(tensor.shape[::-1], tensor.kind, lambda: tensor.load().T.contiguous())
    if source.parts == 1:
        return tensor
    if not tensor.shape or tensor.shape[0] % source.parts:
        raise _misshapen(name, source, tensor, f"rows for {source.parts} parts of equal size")
    rows = tensor.shape[0] // source.parts
    start = source.part * rows
    shape = (rows, *tensor.shape[1:])
    if isinstance(tensor.load, StoredNumbers):
        # Reading only these rows keeps a fused tensor from being read three times.
        return LazyTensor(shape, tensor.kind, tensor.load.rows(start, start + rows))
    return LazyTensor(shape, tensor.kind, lambda: tensor.load()[start : start + rows])


def _misshapen(name: str, source: Source, tensor: LazyTensor, expected: str) -> CheckpointError:
    shape = list(tensor.shape)
    return CheckpointError(
        f"{name}: {source.name} has shape {shape}, expected {expected}: is this the right config.json?"
    )


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


def embedding_spec(spec: ModelSpec) -> ModelSpec:
    """Returns a classifier's network without the classifier.

    The embedding of a text is the mean of its tokens. Of an image it is what the classifier reads, the class token
    where that reads two.
    """
    tower = replace(spec.towers[0], pooler=None, pooler_norm=False)
    if tower.name == "text":
        tower = replace(tower, pool="mean", norm_tokens=tower.final_norm)
    elif tower.pool.startswith("first"):
        tower = replace(tower, pool="first")
    return ModelSpec(EMBEDDINGS[tower.name], (tower,))


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
