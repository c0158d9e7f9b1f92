"""Checkpoints on the Hugging Face hub, fetched into the cache that all its users share."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hydractl.checkpoint.disk import (
    INDEX_NAME,
    JSON_FILES,
    OPEN_CLIP_WEIGHTS,
    TEXT_FILES,
    WEIGHTS_NAME,
    read_weight_map,
)
from hydractl.errors import CheckpointError

REFERENCE = re.compile(r"(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w./-]+))?")
OPEN_CLIP_CONFIG = "open_clip_config.json"
SMALL_FILES = ("config.json", OPEN_CLIP_CONFIG, *JSON_FILES, *TEXT_FILES)
CHUNK = 1 << 20


def fetch(reference: str) -> Path:
    """Fetches the files of `owner/name[@revision]` that a checkpoint needs; returns their folder in the hub's cache.

    HF_TOKEN, HF_HUB_OFFLINE, HF_ENDPOINT and HF_HOME mean what they mean to every tool of the hub. A download that
    was cut short goes on where it stopped; what arrives is compared with the hub's checksum.

    Raises:
        CheckpointError: no such reference, repository or revision, no access, no connection, no readable weights, or
            damage on the way.
    """
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise CheckpointError(f"{reference}: no such file or folder")
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
    names = set(HfApi().list_repo_files(repo, revision=revision))
    weights = _weights(reference, names)
    folder = _download(reference, repo, revision, [name for name in (*SMALL_FILES, *weights) if name in names])
    if INDEX_NAME in weights:
        shards = set(read_weight_map(folder).values())
        _download(reference, repo, revision, sorted(shards & names))
    return folder


def _weights(reference: str, names: set[str]) -> list[str]:
    for name in (WEIGHTS_NAME, INDEX_NAME, OPEN_CLIP_WEIGHTS):
        if name in names:
            return [name]
    kind = "pickles, which can run code when opened" if any(n.endswith((".bin", ".pt")) for n in names) else "none"
    raise CheckpointError(
        f"{reference}: the hub has no safetensors weights of it ({kind}): load it with its own library, save it as "
        "safetensors, and name that folder"
    )


def _download(reference: str, repo: str, revision: str | None, names: Iterable[str]) -> Path:
    from huggingface_hub import snapshot_download, try_to_load_from_cache

    here = {n: try_to_load_from_cache(repo, n, revision=revision) for n in names}
    folder = Path(snapshot_download(repo, revision=revision, allow_patterns=list(names)))
    for name, before in here.items():
        if not isinstance(before, str) or Path(before).parent != folder:
            _verify(reference, folder / name)
    return folder


def _verify(reference: str, path: Path) -> None:
    """Compares a file that has just arrived with its checksum, which is its name in the cache."""
    blob = path.resolve()
    digest: Any
    if re.fullmatch(r"[0-9a-f]{64}", blob.name):
        digest = hashlib.sha256()
    elif re.fullmatch(r"[0-9a-f]{40}", blob.name):
        digest = hashlib.sha1(f"blob {blob.stat().st_size}\0".encode())  # as git names small files
    else:
        return
    with blob.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != blob.name:
        # In the cache every tool would take it for the real one.
        path.unlink()
        blob.unlink(missing_ok=True)
        raise CheckpointError(f"{reference}: {path.name} was damaged on its way and has been removed: try again")


def _explained(reference: str, error: Exception) -> CheckpointError:
    from huggingface_hub import errors, is_offline_mode

    if isinstance(error, errors.HFValidationError):
        return CheckpointError(f"{reference}: no such file or folder")
    if isinstance(error, errors.GatedRepoError):
        return CheckpointError(f"{reference}: is gated: accept its terms on the hub, then give `token` or HF_TOKEN")
    if isinstance(error, errors.RepositoryNotFoundError):
        return CheckpointError(
            f"{reference}: no such file or folder, and the hub shows no such repository: check the name; "
            "a private one needs `token` or HF_TOKEN"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return CheckpointError(f"{reference}: the repository has no such revision: check what follows the @")
    if isinstance(error, errors.LocalEntryNotFoundError) and is_offline_mode():
        return CheckpointError(
            f"{reference}: no such file or folder, nor is it in the hub's cache, and HF_HUB_OFFLINE forbids to fetch it"
        )
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        raise error  # an error of the disk, not of the hub
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return CheckpointError(
        f"{reference}: no such file or folder, and the hub does not answer ({reason}): "
        "try again, a download goes on where it stopped"
    )
