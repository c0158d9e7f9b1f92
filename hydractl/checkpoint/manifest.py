"""Our file, read and written without the table of any architecture: tensors, and a manifest in the header."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Annotated, Any, Literal

from hydractl.checkpoint.contents import Acceptance, Checkpoint, Intervals, PromisedSets, identity, tensors_identity
from hydractl.checkpoint.disk import JSON_FILES, TEXT_FILES, open_weights
from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.layout import Kept, KeptUnits, tidy
from hydractl.checkpoint.ood import PREFIX, FittedOod, OodFit
from hydractl.checkpoint.slots import slots
from hydractl.checkpoint.spec import NEWER, ModelSpec, spec_to_json
from hydractl.checkpoint.tensors import TensorMap, selected, write_safetensors
from hydractl.errors import CheckpointError
from hydractl.schema import Checked, Document, Items, Origin, Schema, parse_json, shown
from hydractl.text import shortened

KEY = "hydractl"
#: 7 without sets and confidences by class, 6 without models that embed, 5 without tasks of several labels and of
#: numbers, 4 without a baseline, 3 without a confidence of sure answers, 2 without units and an OOD score.
FORMAT_VERSION = 9

#: The fields that a manifest and a checkpoint have alike.
CARRIED = ("family", "config", "labels", "preprocessing", "temperature", "provenance")
#: The spec of a source's config.json by the table of its architecture, given what messages call it, family, config.
SpecOf = Callable[[str, str, Mapping[str, Any]], ModelSpec]


def _kinds_fit(files: dict[str, Any]) -> dict[str, Any]:
    for name, content in files.items():
        # They are written into a folder for transformers to read: no other names, no paths.
        if name not in (*JSON_FILES, *TEXT_FILES):
            raise ValueError("carries a file that no tokenizer or image processor has")
        kind: type = str if name in TEXT_FILES else dict
        if not isinstance(content, kind):
            raise ValueError(f"{name} should be {'text' if kind is str else 'an object'}")
    return files


Preprocessing = Annotated[dict[str, Any], Checked(_kinds_fit)]


class _Manifest(Schema):
    """The fields of every version."""

    family: Annotated[str, Checked(min_length=1, max_length=100)]
    config: dict[str, Any]
    members: Annotated[int, Checked(ge=1, le=1000)]
    heads: dict[Literal["vision", "text"], Items[Items[Items[int]]]]
    separate: Items[str]
    labels: Items[str] | None = None
    preprocessing: Preprocessing = field(default_factory=dict)
    temperature: Annotated[float, Checked(gt=0, le=1e6)] | None = None
    acceptance: Acceptance | None = None
    sparse: bool = False  # written beside pruned single weights once; a reader needs nothing of it
    provenance: dict[str, Any]


class _Version1(_Manifest):
    format_version: Literal[1]


class _Version2(_Manifest):
    format_version: Literal[2, 3, 4, 5, 6, 7, 8, 9]
    spec: ModelSpec
    ood: OodFit | None = None
    thresholds: Items[Annotated[float, Checked(ge=0, le=1)]] | None = None
    intervals: Intervals | None = None
    sets: PromisedSets | None = None
    units: dict[Literal["vision", "text"], Items[Items[Items[int]] | None]] = field(default_factory=dict)


def to_metadata(checkpoint: Checkpoint) -> dict[str, str]:
    """Returns the header metadata of a checkpoint: the format mark every reader knows, and the manifest."""
    manifest = {
        **{key: getattr(checkpoint, key) for key in CARRIED},
        "format_version": _version(checkpoint),
        "spec": spec_to_json(checkpoint.spec),
        "members": checkpoint.members,
        "heads": checkpoint.heads,
        # One member shares everything with itself: only what is stored per member needs saying.
        "separate": sorted(checkpoint.tensors.keys() - checkpoint.shared),
        **({} if checkpoint.acceptance is None else {"acceptance": asdict(checkpoint.acceptance)}),
        **({} if checkpoint.thresholds is None else {"thresholds": checkpoint.thresholds}),
        **({} if checkpoint.intervals is None else {"intervals": asdict(checkpoint.intervals)}),
        **({} if checkpoint.sets is None else {"sets": asdict(checkpoint.sets)}),
        **({} if checkpoint.ood is None else {"ood": checkpoint.ood.fit.to_json()}),
        **({"units": checkpoint.units} if checkpoint.units else {}),
    }
    return {"format": "pt", KEY: json.dumps(manifest, sort_keys=True, separators=(",", ":"))}


def _version(checkpoint: Checkpoint) -> int:
    if checkpoint.ood is not None and checkpoint.ood.fit.accuracy is not None and not checkpoint.ood.fit.least:
        return 9
    if checkpoint.sets is not None or (checkpoint.ood is not None and checkpoint.ood.fit.confidences is not None):
        return 8
    if (newer := NEWER.get(checkpoint.spec.task)) is not None:
        return newer
    if checkpoint.ood is not None and checkpoint.ood.fit.baseline is not None:
        return 5
    if checkpoint.ood is not None and checkpoint.ood.fit.accuracy is not None:
        return 4
    return 3 if checkpoint.units or checkpoint.ood is not None else 2


def fingerprint(checkpoint: Checkpoint) -> dict[str, str]:
    """Returns hashes of the weights and of all other content, which determine what is computed with a checkpoint."""
    settings = to_metadata(checkpoint)[KEY].encode()
    fitted = {} if checkpoint.ood is None else {"ood": tensors_identity(checkpoint.ood.tensors)}
    return {"weights": identity(checkpoint), "settings": hashlib.sha256(settings).hexdigest(), **fitted}


def from_metadata(
    name: str, metadata: Mapping[str, str], tensors: TensorMap, spec_of: SpecOf | None = None
) -> Checkpoint:
    """Returns the checkpoint that a file's header metadata describes.

    Args:
        name: what messages call the file.
        metadata: with a manifest in it.
        tensors: those of the file.
        spec_of: reads the spec of version 1, whose files name an architecture in its place.

    Raises:
        CheckpointError: not a manifest, of a newer version, a field missing or of the wrong kind, of version 1
            without `spec_of`, or not what the tensors are.
    """
    document, tensors = _without_kept_features(_manifest(name, metadata), tensors)
    checkpoint = _described(document, *_read(name, document, spec_of), name, tensors)
    checkpoint.verify()
    return checkpoint


def without_tensors(name: str, metadata: Mapping[str, str]) -> Checkpoint:
    """Returns the checkpoint that a graph's metadata describe; the graph holds its tensors in other forms.

    Raises:
        CheckpointError: see `from_metadata`.
    """
    document = _manifest(name, metadata)
    return _described(document, *_read(name, document, None), name, {})


def _manifest(name: str, metadata: Mapping[str, str]) -> Document:
    return parse_json(metadata[KEY], Origin(f"{name}: manifest", CheckpointError, "write the file again"))


def _described(document: Document, manifest: _Manifest, spec: ModelSpec, name: str, tensors: TensorMap) -> Checkpoint:
    table = slots(spec)
    if unknown := sorted(set(manifest.separate) - table.keys()):
        raise document.origin.refusal(f"separate: the network has no {unknown[0]}")
    if manifest.labels is not None and len(manifest.labels) != spec.classes:
        raise document.origin.refusal(f"labels are {len(manifest.labels)}, the network has {spec.classes or 0} classes")
    thresholds, intervals = (getattr(manifest, name, None) for name in ("thresholds", "intervals"))
    if thresholds is not None and len(thresholds) != spec.classes:
        raise document.origin.refusal(f"thresholds are {len(thresholds)}, the network has {spec.classes or 0} classes")
    sizes = set() if intervals is None else {len(getattr(intervals, name)) for name in ("scale", "floor", "width")}
    if sizes - {spec.classes}:
        raise document.origin.refusal(f"intervals are of {max(sizes)} numbers, the network has {spec.classes or 0}")
    sets = manifest.sets if isinstance(manifest, _Version2) else None
    if sets is not None and (spec.prompted or not spec.one_class):
        raise document.origin.refusal("sets are of a network that chooses one of fixed classes, this one does not")
    if sets is not None and len(sets.least) not in (1, spec.classes):
        raise document.origin.refusal(f"sets.least are {len(sets.least)}, the network has {spec.classes} classes")
    fit = manifest.ood if isinstance(manifest, _Version2) else None
    statistics: TensorMap = {}
    if fit is not None:
        statistics = {key.removeprefix(PREFIX): tensor for key, tensor in tensors.items() if key.startswith(PREFIX)}
        tensors = {key: tensor for key, tensor in tensors.items() if not key.startswith(PREFIX)}
    return Checkpoint(
        **{key: getattr(manifest, key) for key in CARRIED},
        name=name,
        spec=spec,
        heads=_kept_heads(document.origin, manifest, spec),
        shared=frozenset(table) - frozenset(manifest.separate),
        tensors=tensors,
        acceptance=manifest.acceptance,
        thresholds=thresholds,
        intervals=intervals,
        sets=sets,
        ood=None if fit is None else FittedOod(fit, statistics),
        units=_kept_units(document.origin, manifest, spec),
    )


def _read(name: str, document: Document, spec_of: SpecOf | None) -> tuple[_Manifest, ModelSpec]:
    version, origin = document.fields.get("format_version"), document.origin
    if type(version) is int and version > FORMAT_VERSION:
        raise origin.refusal(
            f"format_version is {shown(version)}, this hydractl reads up to {FORMAT_VERSION}", "update hydractl"
        )
    if type(version) is not int or version != 1:
        manifest = document.read(_Version2, extra="forbid")
        return manifest, manifest.spec
    old = document.read(_Version1)
    if spec_of is None:
        raise origin.refusal("format_version 1 needs the table of an architecture", "open it with hydractl.load")
    return old, spec_of(name, old.family, old.config)


def _without_kept_features(document: Document, tensors: TensorMap) -> tuple[Document, TensorMap]:
    """Returns a file whose members keep features of shared MLPs by early tensors `.kept`, with units in their place."""
    spec, heads, separate = (document.fields.get(key) for key in ("spec", "heads", "separate"))
    if not (isinstance(spec, dict) and isinstance(heads, dict) and isinstance(separate, list)):
        return document, tensors
    adapter = spec.get("adapter")
    if not isinstance(adapter, dict) or adapter.get("kind") != "kept-features":
        return document, tensors
    units: dict[str, list[object]] = {}
    left = {name: tensor for name, tensor in tensors.items() if not name.endswith(".mlp.fc2.kept")}
    for tower, layers in heads.items():
        units[tower] = [None] * len(layers)
        for layer in range(len(layers)):
            prefix = f"{tower}.layers.{layer}.mlp"
            if (tensor := tensors.get(f"{prefix}.fc2.kept")) is None:
                continue
            kept = tensor.load().long()
            units[tower][layer] = kept.tolist()
            for part in ("fc1.weight", "fc1.bias", "factor.weight", "factor.bias", "fc2.weight"):
                name, axis = f"{prefix}.{part}", int(part == "fc2.weight")
                if name in left and kept.numel() and int(kept.min()) >= 0 and int(kept.max()) < left[name].shape[axis]:
                    left[name] = selected(left[name], axis, kept.unique().tolist())
    fields = {**document.fields, "format_version": 3, "spec": {**spec, "adapter": None}, "units": units}
    fields["separate"] = [name for name in separate if not str(name).endswith(".kept")]
    return parse_json(json.dumps(fields), document.origin), left


def _kept_heads(origin: Origin, manifest: _Manifest, spec: ModelSpec) -> KeptHeads:
    """Returns the kept heads, checked against the network's sizes, with towers in the order of the spec."""
    if set(manifest.heads) != {tower.name for tower in spec.towers}:
        raise origin.refusal(f"heads are of {' and '.join(manifest.heads) or 'no tower'}, the network has others")
    for tower in spec.towers:
        _check_kept(
            origin, f"heads.{tower.name}", manifest.heads[tower.name], (tower.layers, manifest.members, tower.heads)
        )
    return {tower.name: manifest.heads[tower.name] for tower in spec.towers}


def _kept_units(origin: Origin, manifest: _Manifest, spec: ModelSpec) -> KeptUnits:
    """Returns the kept units, checked likewise."""
    if not isinstance(manifest, _Version2):
        return {}
    if unknown := sorted(manifest.units.keys() - {tower.name for tower in spec.towers}):
        raise origin.refusal(f"units are of a {unknown[0]} tower, the network has none")
    for tower in spec.towers:
        if tower.name in manifest.units:
            if tower.unit_norm:
                raise origin.refusal(f"units are of a {tower.name} tower that norms all of them together")
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
                found = shortened(str(list(kept)), 80)
                raise origin.refusal(f"{place}.{layer} keeps {found}, possible are 0 to {most - 1}, ascending")


def read(path: str | Path, spec_of: SpecOf | None = None) -> Checkpoint:
    """Reads the checkpoint in a file of ours; its tensors stay on disk until somebody asks.

    Args:
        spec_of: reads the spec of a file of version 1, which holds the source's config in its place.

    Raises:
        CheckpointError: not a file of ours, damaged, of a newer version, or of version 1 without `spec_of`.
    """
    if not Path(path).is_file():
        raise CheckpointError(f"{path}: no such file: check the name")
    tensors, metadata = open_weights(Path(path))
    if KEY not in metadata:
        raise CheckpointError(f"{path}: was not written by hydractl: open it with hydractl.load")
    return from_metadata(str(path), metadata, tensors, spec_of)


def write(checkpoint: Checkpoint, path: str | Path, force: bool = False) -> None:
    """Writes a checkpoint as one self-contained file, atomically, one tensor in memory at a time.

    Raises:
        CheckpointError: its tensors do not fit its spec.
        OutputError: the file exists and `force` is not set, or the disk refuses it.
    """
    metadata = to_metadata(checkpoint)
    statistics = {} if checkpoint.ood is None else checkpoint.ood.tensors
    tensors = {**checkpoint.tensors, **{f"{PREFIX}{key}": tensor for key, tensor in statistics.items()}}
    from_metadata(checkpoint.name, metadata, tensors)  # refuses what could not be read again
    write_safetensors(Path(path), tensors, metadata, force)
