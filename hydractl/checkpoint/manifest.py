"""Our file, read and written without the table of any architecture: tensors, and a manifest in the header."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

from hydractl.checkpoint.calibration import NOT_CALIBRATED, PREFIX, WrittenCalibration
from hydractl.checkpoint.contents import Checkpoint, identity, tensors_identity
from hydractl.checkpoint.disk import JSON_FILES, TEXT_FILES, open_weights
from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.layout import Kept, KeptUnits, tidy
from hydractl.checkpoint.sentences import TEXTS
from hydractl.checkpoint.slots import slots
from hydractl.checkpoint.spec import ModelSpec, spec_to_json
from hydractl.checkpoint.tensors import TensorMap, write_safetensors
from hydractl.errors import CheckpointError
from hydractl.schema import Checked, Items, Origin, Schema, parse_json, shown
from hydractl.text import shortened

KEY = "hydractl"
FORMAT_VERSION = 1

#: The fields that a manifest and a checkpoint have alike.
CARRIED = ("family", "config", "labels", "preprocessing", "provenance")


def _kinds_fit(files: dict[str, Any]) -> dict[str, Any]:
    for name, content in files.items():
        # They are written into a folder for transformers to read: no other names, no paths.
        if name not in (*JSON_FILES, *TEXT_FILES, TEXTS):
            raise ValueError("contains a file that does not belong to a tokenizer or image processor")
        kind: type = str if name in TEXT_FILES else dict
        if not isinstance(content, kind):
            raise ValueError(f"{name} should be {'text' if kind is str else 'an object'}")
    return files


Preprocessing = Annotated[dict[str, Any], Checked(_kinds_fit)]


class _Manifest(Schema):
    """The manifest of a file."""

    format_version: Literal[1]
    family: Annotated[str, Checked(min_length=1, max_length=100)]
    config: dict[str, Any]
    spec: ModelSpec
    members: Annotated[int, Checked(ge=1, le=1000)]
    heads: dict[Literal["vision", "text"], Items[Items[Items[int]]]]
    separate: Items[str]
    provenance: dict[str, Any]
    units: dict[Literal["vision", "text"], Items[Items[Items[int]] | None]] = field(default_factory=dict)
    labels: Items[str] | None = None
    preprocessing: Preprocessing = field(default_factory=dict)
    calibration: WrittenCalibration | None = None


def to_metadata(checkpoint: Checkpoint) -> dict[str, str]:
    """Returns the header metadata of a checkpoint: the format mark every reader knows, and the manifest."""
    manifest = {
        **{key: getattr(checkpoint, key) for key in CARRIED},
        "format_version": FORMAT_VERSION,
        "spec": spec_to_json(checkpoint.spec),
        "members": checkpoint.members,
        "heads": checkpoint.heads,
        # One member shares everything with itself: only what is stored per member needs saying.
        "separate": sorted(checkpoint.tensors.keys() - checkpoint.shared),
        **({"calibration": fitted} if (fitted := checkpoint.calibration.to_json()) else {}),
        **({"units": checkpoint.units} if checkpoint.units else {}),
    }
    return {"format": "pt", KEY: json.dumps(manifest, sort_keys=True, separators=(",", ":"))}


def fingerprint(checkpoint: Checkpoint) -> dict[str, str]:
    """Returns hashes of the weights and of all other content, which determine what is computed with a checkpoint."""
    settings = to_metadata(checkpoint)[KEY].encode()
    ood = checkpoint.calibration.ood
    fitted = {} if ood is None else {"ood": tensors_identity(ood.tensors)}
    return {"weights": identity(checkpoint), "settings": hashlib.sha256(settings).hexdigest(), **fitted}


def from_metadata(name: str, metadata: Mapping[str, str], tensors: TensorMap) -> Checkpoint:
    """Returns the checkpoint that a file's header metadata describes.

    Args:
        name: what messages call the file.
        metadata: with a manifest in it.
        tensors: those of the file.

    Raises:
        CheckpointError: not a manifest, of a newer version, a field missing or of the wrong kind, or not what the
            tensors are.
    """
    checkpoint = described(name, metadata, tensors)
    checkpoint.verify()
    return checkpoint


def described(name: str, metadata: Mapping[str, str], tensors: TensorMap) -> Checkpoint:
    """Returns the checkpoint that metadata describe, unverified: a graph holds its tensors in other forms.

    Raises:
        CheckpointError: see `from_metadata`.
    """
    document = parse_json(metadata[KEY], Origin(f"{name}: manifest", CheckpointError, "write the file again"))
    origin, version = document.origin, document.fields.get("format_version")
    if type(version) is int and version > FORMAT_VERSION:
        raise origin.refusal(
            f"format_version is {shown(version)}, this hydractl reads {FORMAT_VERSION}", "update hydractl"
        )
    manifest = document.read(_Manifest)
    spec, written, table = manifest.spec, manifest.calibration, slots(manifest.spec)
    if unknown := sorted(set(manifest.separate) - table.keys()):
        raise origin.refusal(f"separate: the network has no {unknown[0]}")
    if manifest.labels is not None and len(manifest.labels) != spec.classes:
        raise origin.refusal(f"labels are {len(manifest.labels)}, the network has {spec.classes or 0} classes")
    statistics: TensorMap = {}
    if written is not None and written.ood is not None:
        statistics = {key.removeprefix(PREFIX): tensor for key, tensor in tensors.items() if key.startswith(PREFIX)}
        tensors = {key: tensor for key, tensor in tensors.items() if not key.startswith(PREFIX)}
    try:
        calibration = NOT_CALIBRATED if written is None else written.read(spec, statistics)
    except ValueError as error:
        raise origin.refusal(str(error)) from None
    return Checkpoint(
        **{key: getattr(manifest, key) for key in CARRIED},
        name=name,
        spec=spec,
        heads=_kept_heads(origin, manifest, spec),
        shared=frozenset(table) - frozenset(manifest.separate),
        tensors=tensors,
        calibration=calibration,
        units=_kept_units(origin, manifest, spec),
    )


def _kept_heads(origin: Origin, manifest: _Manifest, spec: ModelSpec) -> KeptHeads:
    """Returns the kept heads, checked against the network's sizes, with towers in the order of the spec."""
    if set(manifest.heads) != {tower.name for tower in spec.towers}:
        raise origin.refusal(f"heads are of {' and '.join(manifest.heads) or 'no tower'}, the network has other towers")
    for tower in spec.towers:
        sizes = (tower.layers, manifest.members, tower.heads)
        _check_kept(origin, f"heads.{tower.name}", manifest.heads[tower.name], sizes)
    return {tower.name: manifest.heads[tower.name] for tower in spec.towers}


def _kept_units(origin: Origin, manifest: _Manifest, spec: ModelSpec) -> KeptUnits:
    """Returns the kept units, checked likewise."""
    if unknown := sorted(manifest.units.keys() - {tower.name for tower in spec.towers}):
        raise origin.refusal(f"units are of a {unknown[0]} tower, which the network does not have")
    for tower in spec.towers:
        if tower.name in manifest.units:
            if tower.unit_norm:
                raise origin.refusal(f"units are of a {tower.name} tower that normalises all of them together")
            sizes = (tower.layers, manifest.members, tower.mlp_width)
            _check_kept(origin, f"units.{tower.name}", manifest.units[tower.name], sizes)
    return tidy(dict(manifest.units.items()), spec)


def _check_kept(origin: Origin, place: str, layers: Sequence[Kept | None], sizes: tuple[int, int, int]) -> None:
    """Raises CheckpointError unless every layer has the sizes: layers, members, and heads or units that there are."""
    depth, count, most = sizes
    if len(layers) != depth:
        raise origin.refusal(f"{place} has {len(layers)} layers, the network has {depth}")
    for layer, members in enumerate(layers):
        if members is not None and len(members) != count:
            raise origin.refusal(f"{place}.{layer} has {len(members)} members, the file has {count}")
        for kept in members or ():
            if list(kept) != sorted(set(kept)) or any(not 0 <= piece < most for piece in kept):
                listed = shortened(str(list(kept)), 80)
                raise origin.refusal(f"{place}.{layer} keeps {listed}, expected ascending numbers from 0 to {most - 1}")


def read(path: str | Path) -> Checkpoint:
    """Reads the checkpoint in a file of ours; its tensors stay on disk until somebody asks.

    Raises:
        CheckpointError: not a file of ours, damaged, or of a newer version.
    """
    if not Path(path).is_file():
        raise CheckpointError(f"{path}: no such file: check the name")
    tensors, metadata = open_weights(Path(path))
    if KEY not in metadata:
        raise CheckpointError(f"{path}: was not written by hydractl: open it with hydractl.load")
    return from_metadata(str(path), metadata, tensors)


def write(checkpoint: Checkpoint, path: str | Path, force: bool = False) -> None:
    """Writes a checkpoint as one self-contained file, atomically, one tensor in memory at a time.

    Raises:
        CheckpointError: its tensors do not fit its spec.
        OutputError: the file exists and `force` is not set, or the disk refuses it.
    """
    metadata = to_metadata(checkpoint)
    ood = checkpoint.calibration.ood
    statistics = {} if ood is None else ood.tensors
    tensors = {**checkpoint.tensors, **{f"{PREFIX}{key}": tensor for key, tensor in statistics.items()}}
    from_metadata(checkpoint.name, metadata, tensors)  # refuses what could not be read again
    write_safetensors(Path(path), tensors, metadata, force)
