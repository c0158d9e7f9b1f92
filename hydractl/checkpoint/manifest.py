"""The manifest: what a file of ours says of itself, as JSON in the safetensors header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.spec import ModelSpec
from hydractl.errors import CheckpointError

KEY = "hydractl"
FORMAT_VERSION = 1


def to_metadata(checkpoint: Checkpoint) -> dict[str, str]:
    """The header metadata of a checkpoint: the format mark every reader knows, and the manifest."""
    manifest = {
        "format_version": FORMAT_VERSION,
        "family": checkpoint.family,
        "config": dict(checkpoint.config),
        "members": checkpoint.members,
        "heads": {tower: [[list(m) for m in layer] for layer in layers] for tower, layers in checkpoint.heads.items()},
        # One member shares everything with itself: only what is stored per member needs saying.
        "separate": sorted(checkpoint.tensors.keys() - checkpoint.shared),
        "labels": list(checkpoint.labels) if checkpoint.labels is not None else None,
        "preprocessing": dict(checkpoint.preprocessing),
        "temperature": checkpoint.temperature,
        "provenance": dict(checkpoint.provenance),
    }
    return {"format": "pt", KEY: json.dumps(manifest, sort_keys=True, separators=(",", ":"))}


def parse_manifest(path: str, metadata: Mapping[str, str]) -> dict[str, Any]:
    """The manifest in a file's header metadata.

    Raises:
        CheckpointError: no manifest, not JSON, a newer version, or a field missing or of the wrong kind.
    """
    try:
        manifest = json.loads(metadata[KEY])
    except ValueError as error:
        raise CheckpointError(f"{path}: its manifest is not JSON ({error}): write the file again") from error
    if not isinstance(manifest, dict):
        raise CheckpointError(f"{path}: its manifest is no JSON object: write the file again")
    version = manifest.get("format_version")
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: has format_version {version}, this hydractl reads {FORMAT_VERSION}: update hydractl"
        )
    kinds = {
        "family": str,
        "config": dict,
        "members": int,
        "heads": dict,
        "separate": list,
        "provenance": dict,
    }
    for key, kind in kinds.items():
        if not isinstance(manifest.get(key), kind):
            raise CheckpointError(f"{path}: its manifest has no valid {key!r}: write the file again")
    return manifest


def parse_heads(path: str, manifest: Mapping[str, Any], spec: ModelSpec) -> KeptHeads:
    """The kept heads of a manifest, checked against the network's sizes.

    Raises:
        CheckpointError: towers, layers or members are too many or too few, or a head does not exist.
    """
    try:
        heads = {
            tower: tuple(tuple(tuple(int(h) for h in member) for member in layer) for layer in layers)
            for tower, layers in manifest["heads"].items()
        }
    except (TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}: its manifest has no valid 'heads': write the file again") from error
    if set(heads) != {tower.name for tower in spec.towers}:
        raise CheckpointError(f"{path}: its manifest lists heads of {sorted(heads)}, the config has other towers")
    for tower in spec.towers:
        if len(heads[tower.name]) != tower.layers:
            raise CheckpointError(
                f"{path}: lists heads for {len(heads[tower.name])} {tower.name} layers of {tower.layers}"
            )
        for layer, members in enumerate(heads[tower.name]):
            _check_layer(f"{path}: {tower.name} layer {layer}", members, manifest["members"], tower.heads)
    # The order of towers is the spec's, whatever the file's.
    return {tower.name: heads[tower.name] for tower in spec.towers}


def _check_layer(place: str, members: tuple[tuple[int, ...], ...], count: int, heads: int) -> None:
    if count < 1 or len(members) != count:
        raise CheckpointError(f"{place}: lists heads of {len(members)} members, the file has {count}")
    for kept in members:
        if list(kept) != sorted(set(kept)) or any(not 0 <= head < heads for head in kept):
            raise CheckpointError(f"{place}: keeps heads {list(kept)}, possible are 0 to {heads - 1}, ascending")
