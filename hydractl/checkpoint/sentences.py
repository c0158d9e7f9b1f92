"""The files that sentence-transformers puts beside a network, each with one strict schema.

A key is used, is known to change no answer, or is refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from hydractl.checkpoint.spec import ModelSpec
from hydractl.checkpoint.tower_spec import ImageEmbeddings, Pool
from hydractl.errors import CheckpointError
from hydractl.schema import Checked, Items, Origin, Schema, document, read_json

SENTENCE_FOLDER = "0_Transformer"  # of early versions, for the network before its pooling
MODULES, ABOUT, TEXTS = "modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"
KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
#: The names that the settings of texts may have; the first that is there counts.
TEXT_NAMES = tuple(f"sentence_{kind}_config.json" for kind in KINDS)
CONFIG = "config.json"  # of a module, in its folder
LIBRARY = "sentence_transformers."
NETWORK, SCORES = "name a network that only pools and normalises", "name one whose network gives the scores"
#: The poolings that are read, by its name, and the field of earlier versions for each of its poolings.
POOLINGS: dict[str, Pool] = {"mean": "mean", "cls": "first"}
EARLY_POOLINGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
#: What a network gives by its task: the output of transformers, and the name for what comes next.
OUTPUTS = {
    "feature-extraction": ("last_hidden_state", "token_embeddings"),
    "sequence-classification": ("logits", "scores"),
}

S = TypeVar("S", bound="_File")


class _File(Schema):
    """A file of sentence-transformers."""

    idle: ClassVar[tuple[str, ...]] = ()  # the keys that change no answer


def _inner(path: str) -> str:
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or "\\" in path:
        raise ValueError("lies outside the folder")
    return path


class Module(_File):
    """A step from texts to an answer; its place and name say nothing, `kwargs` only what `encode` accepts."""

    idle = ("idx", "name", "kwargs")
    type: Annotated[str, Checked(max_length=200)]
    path: Annotated[str, Checked(_inner, max_length=200)] = ""


class About(_File):
    """The settings of the whole. How embeddings are compared and what trained them changes none."""

    idle = ("__version__", "similarity_fn_name", "requirements", "keep_in_fp32_modules")
    model_type: Literal["SentenceTransformer", "CrossEncoder"] = "SentenceTransformer"
    activation_fn: Annotated[str, Checked(min_length=1, max_length=200)] | None = None
    truncate_dim: Annotated[int, Checked(ge=1)] | None = None
    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None

    @property
    def reranks(self) -> bool:
        """True for a network that scores pairs of texts."""
        return self.model_type == "CrossEncoder"

    @property
    def prompted(self) -> bool:
        """True if a prompt comes before each text."""
        return bool(self.default_prompt_name and (self.prompts or {}).get(self.default_prompt_name) != "")


class _Modality(_File):
    method: Literal["forward"]
    method_output_name: str
    format: str | None = None  # of messages


class _TokenizerArguments(Schema):
    """Settings that win over those of tokenizer_config.json, but for two that decide how it is opened."""

    trust_remote_code: bool | None = None
    use_fast: bool | None = None
    model_max_length: Annotated[int, Checked(ge=1)] | None = None
    truncation_side: Literal["left", "right"] | None = None
    do_lower_case: bool | None = None
    add_prefix_space: bool | None = None
    strip_accents: bool | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """The settings by name, without those that are not set."""
        settings = {name: value for name, value in vars(self).items() if value is not None}
        return {name: value for name, value in settings.items() if name not in ("trust_remote_code", "use_fast")}


class _ModelArguments(Schema):
    """Settings of how a network is fetched, stored and run, none of what it computes."""

    trust_remote_code: bool | None = None
    attn_implementation: str | None = None
    torch_dtype: str | None = None
    dtype: str | None = None
    use_safetensors: bool | None = None
    low_cpu_mem_usage: bool | None = None
    device_map: str | None = None
    add_pooling_layer: bool | None = None  # behind the tokens that are pooled


class _ConfigArguments(Schema):
    trust_remote_code: bool | None = None
    use_cache: bool | None = None


class Texts(_File):
    """The settings of texts; those of queries and documents count only where the caller tells them apart."""

    idle = ("unpad_inputs", "query_length", "document_length")
    max_seq_length: Annotated[int, Checked(ge=1)] | None = None
    do_lower_case: bool | None = None
    transformer_task: Literal["feature-extraction", "sequence-classification"] = "feature-extraction"
    modality_config: dict[Literal["text", "message"], _Modality] | None = None
    module_output_name: str | None = None
    processing_kwargs: Annotated[dict[str, Any], Checked(max_length=0)] | None = None
    query_expansion: None = None
    tokenizer_args: _TokenizerArguments | None = None
    processor_kwargs: _TokenizerArguments | None = None
    model_args: _ModelArguments | None = None
    model_kwargs: _ModelArguments | None = None
    config_args: _ConfigArguments | None = None
    config_kwargs: _ConfigArguments | None = None

    def __post_init__(self) -> None:
        output, name = OUTPUTS[self.transformer_task]
        text = (self.modality_config or {}).get("text")
        if (text is not None and text.method_output_name != output) or self.module_output_name not in (None, name):
            raise ValueError(f"{self.transformer_task} gives another output than {output} as {name}")

    def applied(self, preprocessing: Mapping[str, Any]) -> dict[str, Any]:
        """Returns preprocessing that cuts texts and lowers their letters by these settings."""
        length = {} if self.max_seq_length is None else {"model_max_length": self.max_seq_length}
        arguments = self.processor_kwargs or self.tokenizer_args
        changes = {**length, **(arguments.changes if arguments else {})}
        settings = {**preprocessing.get("tokenizer_config.json", {}), **changes}
        lower = {TEXTS: {"do_lower_case": True}} if self.do_lower_case else {}
        return {**preprocessing, **({"tokenizer_config.json": settings} if changes else {}), **lower}


class Pooling(_File):
    """The settings of a pooling; prompts, which it may leave out, are put before no text here."""

    idle = ("word_embedding_dimension", "embedding_dimension", "include_prompt")
    pooling_mode: str | Items[str] | None = None
    pooling_mode_cls_token: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False
    pooling_mode_weightedmean_tokens: bool = False
    pooling_mode_lasttoken: bool = False

    @property
    def modes(self) -> tuple[str, ...]:
        """The poolings whose results lie side by side."""
        if self.pooling_mode is not None:
            return (self.pooling_mode,) if isinstance(self.pooling_mode, str) else self.pooling_mode
        return tuple(mode for mode, early in EARLY_POOLINGS.items() if getattr(self, early)) or ("mean",)


class Normalize(_File):
    """The settings of a module that gives embeddings unit length."""

    module_input_name: Literal["sentence_embedding"] = "sentence_embedding"
    module_output_name: Literal["sentence_embedding"] | None = None


@dataclass(frozen=True)
class Sentences:
    """A network in a folder of sentence-transformers: how texts become tokens, and tokens an embedding."""

    texts: Texts
    pool: Pool
    unit_length: bool


def sentence_folder(folder: Path) -> Path | None:
    """Returns the folder of sentence-transformers that a network belongs to: its own, or the one around an early one's.

    Returns None for a network of another library.
    """
    around = [folder, *([folder.parent] if folder.name == SENTENCE_FOLDER else [])]
    return next((place for place in around if (place / MODULES).is_file()), None)


def read_about(name: str, folder: Path) -> About:
    """Returns the settings of a network's folder as a whole; the defaults if it has none.

    Raises:
        CheckpointError: a key or its value is not supported.
    """
    return _read(name, sentence_folder(folder) or folder, ABOUT, kind=About)


def read_sentences(name: str, folder: Path, about: About) -> Sentences:
    """Returns what sentence-transformers puts before and behind a network.

    Args:
        name: the checkpoint's, for messages.
        folder: that of the network's weights.

    Raises:
        CheckpointError: a file has a key that is not supported, or modules do more than pool by the mean or the first
            token and normalise, or anything behind the scores of a reranker.
    """
    root = sentence_folder(folder) or folder
    modules = read_modules(root, name) if (root / MODULES).is_file() else ()
    place, remedy = ("scores of a CrossEncoder", SCORES) if about.reranks else ("network", NETWORK)
    expected = iter(["Transformer"] if about.reranks else ["Transformer", "Pooling", "Normalize"])
    origin, pool, unit_length = _origin(name, MODULES), POOLINGS["mean"], False
    for module in modules:
        kind = module.type.rpartition(".")[2]
        if not module.type.startswith(LIBRARY):
            raise origin.refusal(f"{module.type} is code of the repository, which is not run", remedy)
        if kind == "Dropout":  # in training alone
            continue
        if kind != next(expected, None):
            raise origin.refusal(f"has a {kind} behind the {place}", remedy)
        if kind == "Pooling":
            pool = _read_pool(name, root, f"{module.path}/{CONFIG}")
        elif kind == "Normalize":
            _read(name, root, f"{module.path}/{CONFIG}", kind=Normalize)
            unit_length = True
    file = next((each for each in TEXT_NAMES if (folder / each).is_file()), TEXTS)
    return Sentences(_read(name, folder, file, kind=Texts), pool, unit_length)


def _read_pool(name: str, root: Path, file: str) -> Pool:
    modes = _read(name, root, file, kind=Pooling).modes
    if len(modes) != 1 or modes[0] not in POOLINGS:
        finding = f"pools by {' and '.join(modes)}, should be {' or '.join(POOLINGS)}"
        raise _origin(name, file).refusal(finding, NETWORK)
    return POOLINGS[modes[0]]


def read_modules(folder: Path, name: str | None = None) -> tuple[Module, ...]:
    """Returns the modules that a folder of sentence-transformers lists, in order.

    Raises:
        CheckpointError: the list is missing, or has another form.
    """
    origin = _origin(name or str(folder), MODULES)
    listed = read_json(folder / MODULES, origin).value
    if not isinstance(listed, list) or not all(isinstance(module, dict) for module in listed):
        raise origin.refusal("is no list of modules")
    return tuple(_checked(module, origin, Module) for module in listed)


def _read(name: str, folder: Path, file: str, *, kind: type[S]) -> S:
    origin = _origin(name, file)
    return _checked(read_json(folder / file, origin).fields if (folder / file).is_file() else {}, origin, kind)


def _checked(settings: Mapping[str, Any], origin: Origin, kind: type[S]) -> S:
    return document({key: value for key, value in settings.items() if key not in kind.idle}, origin).read(kind)


def _origin(name: str, file: str) -> Origin:
    return Origin(f"{name}: {file}", CheckpointError, "remove it if it changes no answer, or name another network")


def sentence_files(spec: ModelSpec, length: object) -> dict[str, Any]:
    """Returns the files by which sentence-transformers embeds as a network does; none for images.

    Args:
        length: the most tokens of a text by its tokenizer's file; the network may take fewer.
    """
    pool, embeddings = spec.towers[0].pool, spec.towers[0].embeddings
    if spec.classes is not None or isinstance(embeddings, ImageEmbeddings) or pool not in POOLINGS.values():
        return {}
    most = min(length, embeddings.max_tokens) if isinstance(length, int | float) else embeddings.max_tokens
    kinds = {"Transformer": "", "Pooling": "1_Pooling", **({"Normalize": "2_Normalize"} if spec.unit_length else {})}
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"{LIBRARY}models.{kind}"}
        for place, (kind, path) in enumerate(kinds.items())
    ]
    pooling = {early: POOLINGS.get(mode) == pool for mode, early in EARLY_POOLINGS.items()}
    about: dict[str, Any] = {"prompts": {}, "default_prompt_name": None, "truncate_dim": spec.truncate_dim}
    return {
        MODULES: modules,
        f"1_Pooling/{CONFIG}": {"word_embedding_dimension": spec.towers[0].width, **pooling},
        TEXTS: {"max_seq_length": most, "do_lower_case": False},
        **({} if spec.truncate_dim is None else {ABOUT: about}),
    }
