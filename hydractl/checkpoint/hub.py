"""Checkpoints on the Hugging Face hub, fetched into the cache that all its users share."""

import re
from pathlib import Path

from hydractl.checkpoint.disk import (
    INDEX_ENDING,
    JSON_FILES,
    TEXT_FILES,
    WEIGHTS,
    WEIGHTS_NAME,
    read_weight_map,
)
from hydractl.checkpoint.sentences import ABOUT, CONFIG, MODULES, SENTENCE_FOLDER, TEXT_NAMES, read_modules
from hydractl.errors import CheckpointError

#: A name without an owner is one of the hub's oldest, such as bert-base-uncased; one with a dot is a file's.
REFERENCE = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*|[\w-]+)(@(?P<revision>[\w./-]+))?")
SECONDS = 10  # to wait for the hub's answer
OPEN_CLIP_CONFIG = "open_clip_config.json"
SMALL_FILES = ("config.json", OPEN_CLIP_CONFIG, *JSON_FILES, *TEXT_FILES, *TEXT_NAMES)


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
    weights = _weights(reference, names)
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


def _weights(reference: str, names: set[str]) -> str:
    for name in (*WEIGHTS, *(f"{SENTENCE_FOLDER}/{name}" for name in WEIGHTS)):
        if name in names:
            return name
    raise CheckpointError(
        f"{reference}: the hub has no {WEIGHTS_NAME} or pytorch_model.bin of it: load it with its own library, save it "
        "as safetensors, and name that folder"
    )


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
