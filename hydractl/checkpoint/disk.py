"""Weights and the small files beside them: a folder on disk, shards, pickles of tensors, and the hub's cache."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

from safetensors import SafetensorError, safe_open

from hydractl.checkpoint.contents import shorten
from hydractl.checkpoint.sentences import ABOUT, CONFIG, MODULES, SENTENCE_FOLDER, TEXT_NAMES, read_modules
from hydractl.checkpoint.tensors import DTYPES, LazyTensor, StoredNumbers, is_finite
from hydractl.errors import CheckpointError
from hydractl.schema import Checked, Origin, Schema, read_text
from hydractl.schema import read_json as read_json_file
from hydractl.watch import LOG

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS_NAME = "model.safetensors"
#: The files that weights lie in, or that name their shards; the first that is there counts.
WEIGHTS = (
    WEIGHTS_NAME,
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.bin",
)
INDEX_ENDING = ".index.json"
#: Pickles of torch.save; the names of the others do not tell what they hold, whole programs often.
STATE_SUFFIX, PICKLE_SUFFIXES = ".bin", (".pt", ".pth", ".ckpt", ".pkl")
DEEPSPEED = (
    "the shards of DeepSpeed: python {folder}/zero_to_fp32.py {folder} NEW --safe_serialization, and put the model's "
    "config.json into NEW"
)
FSDP = "the shards of FSDP: accelerate merge-weights {folder} NEW, and put the model's config.json into NEW"
#: What other programs leave in a folder, and what makes weights of it; DeepSpeed and accelerate write no config.json.
FOREIGN = {
    "tf_model.h5": "TensorFlow weights: load them by transformers 4 with from_tf=True and save them again",
    "flax_model.msgpack": "Flax weights: load them by transformers 4 with from_flax=True and save them again",
    "*.gguf": "GGUF weights, which transformers reads only for decoders: name the model that they were made from",
    "*.onnx": "an ONNX graph: name the model that it was exported from",
    "zero_to_fp32.py": DEEPSPEED,
    "global_step*": DEEPSPEED,
    "*.distcp": FSDP,
    "*/*.distcp": FSDP,
}
#: How raw images and texts become inputs; these files are carried along, so that a weights file stands alone.
JSON_FILES = (
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
)
TEXT_FILES = ("vocab.txt", "merges.txt")
#: The remedy where data may stand in the place of a model.
ANOTHER = "name a checkpoint; data follow an option such as --id-data"
SAVE_AGAIN = "load the model with the library that wrote it and save it as safetensors"
#: A name without an owner is one of the hub's oldest, such as bert-base-uncased; one with a dot is a file's.
REFERENCE = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*|[\w-]+)(@(?P<revision>[\w./-]+))?")
SECONDS = 10  # to wait for the hub's answer
OPEN_CLIP_CONFIG = "open_clip_config.json"
SMALL_FILES = ("config.json", OPEN_CLIP_CONFIG, *JSON_FILES, *TEXT_FILES, *TEXT_NAMES)


class _Index(Schema, extra="ignore"):
    weight_map: Annotated[dict[str, str], Checked(min_length=1)]


def open_weights(path: Path) -> tuple[dict[str, LazyTensor], dict[str, str]]:
    """Returns the tensors and header metadata of a file of weights, or of a folder's file or shards.

    Raises:
        CheckpointError: no such file, a pickle of more than tensors, a truncated or corrupt file, a shard that is
            missing or lies outside the folder.
    """
    if path.is_file():
        return _open_file(path)
    if not path.is_dir():
        raise CheckpointError(f"{path}: is neither a file nor a folder: name a checkpoint")
    if (name := weights_in(path)) is not None:
        return (_open_shards(path, name), {}) if name.endswith(INDEX_ENDING) else _open_file(path / name)
    for file in sorted(path.iterdir()):
        if file.suffix in PICKLE_SUFFIXES:
            raise _pickle_error(file)
    if (path / "adapter_config.json").is_file():
        raise CheckpointError(
            f"{path}: holds a LoRA adapter and no network: name the network first: hydractl fuse NETWORK {path} -o FILE"
        )
    for pattern, advice in FOREIGN.items():
        if (left := next(path.glob(pattern), None)) is not None:
            remedy = advice.replace("{folder}", str(left.parent))
            raise CheckpointError(f"{path}: no {WEIGHTS_NAME} in this folder, but {remedy}")
    raise CheckpointError(f"{path}: no {WEIGHTS_NAME} in this folder: {ANOTHER}")


def weights_in(folder: Path) -> str | None:
    """Returns the name of the file in a folder that holds its weights or names their shards."""
    return next((name for name in WEIGHTS if (folder / name).is_file()), None)


def holds_weights(path: Path) -> bool:
    """Returns whether a folder or file holds weights or a graph, as its names or its first bytes tell."""
    if path.is_dir():
        return weights_in(folder_of_weights(path)) is not None
    if not path.is_file():
        return False
    with path.open("rb") as file:
        size, brace = int.from_bytes(file.read(8), "little"), file.read(1)
    return path.suffix == ".onnx" or (size <= path.stat().st_size and brace == b"{")


def folder_of_weights(folder: Path) -> Path:
    """Returns the folder of a model's weights: itself, the last checkpoint of a Trainer, or sentence-transformers'."""
    if weights_in(folder) is not None:
        return folder
    if (inner := folder / SENTENCE_FOLDER).is_dir():
        return inner
    folders = {path.name.removeprefix("checkpoint-"): path for path in folder.glob("checkpoint-*") if path.is_dir()}
    steps = [step for step in folders if step.isdecimal()]
    return folders[max(steps, key=int)] if steps else folder


def _open_file(path: Path) -> tuple[dict[str, LazyTensor], dict[str, str]]:
    if path.suffix in PICKLE_SUFFIXES:
        raise _pickle_error(path)
    if path.suffix == STATE_SUFFIX:
        return open_pickle(path), {}
    try:
        # It checks the header against the file's size; numpy loads faster than torch, and reads no numbers here.
        with safe_open(path, framework="np") as checked:
            metadata = dict(checked.metadata() or {})
        # Held open, so that this file is read later, whatever takes its place meanwhile.
        file = path.open("rb")
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    except (SafetensorError, OSError) as error:
        remedy = "fetch or write it again" if path.suffix in ("", ".safetensors") else ANOTHER
        raise CheckpointError(f"{path}: not a readable safetensors file ({error}): {remedy}") from error
    names = sorted(header.keys() - {"__metadata__"})
    return {name: _lazy(path, file, 8 + size, name=name, entry=header[name]) for name in names}, metadata


def _open_shards(folder: Path, index: str) -> dict[str, LazyTensor]:
    weight_map = read_weight_map(folder / index)
    shards = {}
    for shard in sorted(set(weight_map.values())):
        path = folder / shard
        # The hub's cache keeps files as links into a blob folder: the link's own place is what counts, and it is named
        # by a plain file name.
        is_link = path.is_symlink() and Path(shard).name == shard
        if not path.resolve().is_relative_to(folder.resolve()) and not is_link:
            raise CheckpointError(f"{folder / index}: shard {shard!r} lies outside the folder: refused")
        if not path.is_file():
            raise CheckpointError(f"{folder}: shard {shard} is missing: fetch the checkpoint again")
        shards[shard] = _open_file(path)[0]
    tensors = {name: tensor for shard in shards.values() for name, tensor in shard.items()}
    misplaced = [name for name, shard in weight_map.items() if name not in shards[shard]]
    if misplaced:  # what no shard holds is missed where it is needed
        LOG.warn(f"note: {folder}: searches all shards, since {index} names a wrong one for {shorten(misplaced)}")
    return tensors | {name: shards[shard][name] for name, shard in weight_map.items() if name in shards[shard]}


def _lazy(path: Path, file: BinaryIO, start: int, name: str, entry: Mapping[str, Any]) -> LazyTensor:
    kind, shape = entry["dtype"], tuple(entry["shape"])
    if kind not in DTYPES:
        raise CheckpointError(f"{path}: {name} is stored as {kind}, which is not supported: convert it to float32")
    start += entry["data_offsets"][0]
    return LazyTensor(shape, kind, StoredNumbers(f"{path}: {name}", file, start, kind=kind, shape=shape))


def _pickle_error(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path}: is a pickle, which can run code when opened: convert it once: load the model with the library that "
        "wrote it, then model.save_pretrained(NEW) of transformers, or of timm "
        "timm.models.save_for_hf(model, NEW, safe_serialization=True)"
    )


def read_weight_map(index: Path) -> dict[str, str]:
    """Returns the file that each tensor of a checkpoint in shards lies in.

    Raises:
        CheckpointError: the index is missing, or names no files.
    """
    return read_json_file(index, _origin(index)).read(_Index).weight_map


def read_json_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file of a checkpoint.

    Raises:
        CheckpointError: the file is missing, is not JSON, or is not an object.
    """
    return read_json_file(path, _origin(path)).fields


def _origin(path: Path) -> Origin:
    return Origin(str(path), CheckpointError, "fetch or write it again")


def read_preprocessing(folder: Path) -> dict[str, Any]:
    """Returns the content (a JSON object, or text) of every preprocessing file in a checkpoint folder, by name."""
    files: dict[str, Any] = {name: read_json_object(folder / name) for name in JSON_FILES if (folder / name).is_file()}
    if "tokenizer.json" in files:  # the vocabulary that it was built from is a second copy
        files.pop("vocab.json", None)
        return files
    texts = [folder / name for name in TEXT_FILES if (folder / name).is_file()]
    return files | {path.name: read_text(path, Origin(str(path), CheckpointError, "fetch it again")) for path in texts}


def open_pickle(path: Path) -> dict[str, LazyTensor]:
    """Returns the tensors of a file that holds a state dict, by name; those of a zip archive are mapped.

    Raises:
        CheckpointError: the file is damaged, or holds anything but tensors by name; nothing of it is run.
    """
    import torch

    is_archive = _is_plain_archive(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
    except Exception as error:  # torch raises any kind of error on a damaged file, with advice to run its code
        raise CheckpointError(f"{path}: is damaged, or a pickle that holds more than tensors: {SAVE_AGAIN}") from error
    if not isinstance(content, Mapping) or not content:
        raise CheckpointError(f"{path}: holds no tensors by name: {SAVE_AGAIN}")
    return {key: _checked(path, key, value) for key, value in content.items()}


def _is_plain_archive(path: Path) -> bool:
    """Tells archives from the pickles of torch before 1.6, and refuses compressed ones, which may be of any size."""
    if not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError(f"{path}: is damaged: fetch or write it again") from error
    if any(entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size for entry in entries):
        raise CheckpointError(f"{path}: is compressed, which torch.save never does: {SAVE_AGAIN}")
    return True


def _checked(path: Path, name: object, value: Any) -> LazyTensor:
    import torch

    if not isinstance(name, str):
        raise CheckpointError(f"{path}: has a {type(name).__name__} for a tensor's name: {SAVE_AGAIN}")
    if not isinstance(value, torch.Tensor):
        raise CheckpointError(f"{path}: {name} is a {type(value).__name__}, not a tensor: {SAVE_AGAIN}")
    kind = next((kind for kind, dtype in DTYPES.items() if value.dtype == getattr(torch, dtype)), None)
    if kind is None or value.layout != torch.strided or value.device.type != "cpu":
        raise CheckpointError(
            f"{path}: {name} is a {value.dtype} tensor, which is not supported: convert it to dense float32"
        )
    # Strides may repeat a few numbers any number of times.
    if value.numel() * value.itemsize > value.untyped_storage().nbytes():
        raise CheckpointError(f"{path}: {name} has more numbers than the file holds: {SAVE_AGAIN}")
    tensor = value.detach()

    def load() -> Tensor:
        if not is_finite(tensor):
            raise CheckpointError(f"{path}: {name} holds NaN or infinite numbers: the checkpoint is damaged")
        return tensor.contiguous()

    return LazyTensor(tuple(tensor.shape), kind, load)


def fetch(reference: str) -> Path:
    """Fetches the files of `owner/name[@revision]` that a checkpoint needs; returns their folder in the hub's cache.

    HF_TOKEN, HF_HUB_OFFLINE, HF_ENDPOINT and HF_HOME mean what they mean to every tool of the hub. An interrupted
    download goes on where it stopped.

    Raises:
        CheckpointError: no such reference, repository or revision, no access, no connection, or no readable weights.
    """
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise CheckpointError(f"{reference}: no such file or folder: check the path")
    try:
        return _fetch(reference, match["repo"], match["revision"])
    except CheckpointError:
        raise
    except Exception as error:  # httpx, OSError and ValueError alike, as the hub's client raises them
        raise _explained(reference, error) from error


def _fetch(reference: str, repo: str, revision: str | None) -> Path:
    from huggingface_hub import HfApi, is_offline_mode, snapshot_download

    if is_offline_mode():
        # The list of files is not known offline: opening the folder finds out whether it is complete.
        return Path(snapshot_download(repo, revision=revision, allow_patterns=[], local_files_only=True))
    # Asked once: the client asks for a list of files six times in half a minute before it gives up.
    info = HfApi().model_info(repo, revision=revision, timeout=SECONDS)
    names = {file.rfilename for file in info.siblings or ()}
    places = (*WEIGHTS, *(f"{SENTENCE_FOLDER}/{name}" for name in WEIGHTS))
    if (weights := next((name for name in places if name in names), None)) is None:
        raise CheckpointError(
            f"{reference}: the hub has no {WEIGHTS_NAME} or pytorch_model.bin for it: load it with its own library, "
            "save it as safetensors, and name that folder"
        )
    inner = weights.rpartition("/")[0]
    beside = (f"{inner}/{name}" if inner else name for name in SMALL_FILES)
    first = [name for name in (*beside, weights, MODULES, ABOUT) if name in names]
    folder = Path(snapshot_download(repo, revision=revision, allow_patterns=first))
    modules = read_modules(folder) if MODULES in names else ()
    then = {f"{module.path}/{CONFIG}" for module in modules if module.path not in ("", inner)}
    if weights.endswith(INDEX_ENDING):
        then |= {str(Path(inner, shard)) for shard in read_weight_map(folder / weights).values()}
    if later := sorted(then & names):
        snapshot_download(repo, revision=revision, allow_patterns=later)
    return folder


def _explained(reference: str, error: Exception) -> CheckpointError:
    """Returns an error of the hub's client as one of ours; raises an error of the disk again."""
    from huggingface_hub import errors, is_offline_mode

    if isinstance(error, errors.RepositoryNotFoundError):  # gated ones too
        what = "and no repository that the hub shows: a private or gated one needs its terms accepted and HF_TOKEN"
    elif isinstance(error, errors.RevisionNotFoundError):
        what = "and the repository has no such revision: check what follows the @"
    elif is_offline_mode():
        what = "and not in the hub's cache: unset HF_HUB_OFFLINE to fetch it"
    elif isinstance(error, OSError) and error.filename is not None:
        raise error
    else:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        what = f"and the hub does not answer ({reason}): try again, a download goes on where it stopped"
    return CheckpointError(f"{reference}: no such file or folder, {what}")
