"""JSON artifacts: what scores, circuits and reports have in common, and reading one with an error a user can act on."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydractl.checkpoint.atomic import write_bytes
from hydractl.errors import ArtifactError

STDIN = "-"


def json_text(value: Mapping[str, Any]) -> str:
    """A JSON object as people read it."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def write_json(path: Path, value: Mapping[str, Any], force: bool = False) -> None:
    """One JSON object in a file.

    Raises:
        OutputError: the file exists and `force` is not set, or the disk refuses it.
    """
    write_bytes(path, f"{json_text(value)}\n".encode(), force)


@dataclass(frozen=True)
class ModelReference:
    """Which model an artifact speaks of: where it was found, its identity, layers and heads of its towers."""

    reference: str
    sha256: str
    towers: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Artifact:
    """A JSON artifact that says what it is; `name` is what messages call it."""

    name: str
    content: Mapping[str, Any]
    model: ModelReference | None

    def get(self, key: str, kind: type, wanted: str) -> Any:
        """The entry under `key`.

        Raises:
            ArtifactError: it is missing or not of `kind`, which the message calls `wanted`.
        """
        value = self.content.get(key)
        if not isinstance(value, kind):
            raise ArtifactError(f"{self.name}: {key!r} is {_show(value)}, expected {wanted}: write the file again")
        return value

    def optional(self, key: str, kind: type, wanted: str) -> Any:
        """The entry under `key`, or None where the artifact, perhaps written by hand, has none."""
        return None if self.content.get(key) is None else self.get(key, kind, wanted)


def read_artifact(source: str, format_name: str, version: int) -> Artifact:
    """The artifact in the file `source`, or on standard input where that is `-`.

    Raises:
        ArtifactError: missing, not JSON, another format, a newer version, or half a model reference.
    """
    name = "standard input" if source == STDIN else source
    content = _parse(name, _read(source))
    if content.get("format") != format_name:
        raise ArtifactError(f"{name}: format is {_show(content.get('format'))}, expected {format_name!r}")
    if content.get("version") != version:
        raise ArtifactError(
            f"{name}: version is {_show(content.get('version'))}, this hydractl reads {version}: "
            "write the file again, or update hydractl"
        )
    return Artifact(name, content, _model_reference(name, content))


def _read(source: str) -> bytes:
    if source == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise ArtifactError(f"{source}: cannot read: {error.strerror}: name the artifact's file") from error


def _parse(name: str, data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{name}: is not JSON ({error}): write the file again") from error
    if not isinstance(content, dict):
        raise ArtifactError(f"{name}: is {_show(content)}, expected a JSON object: write the file again")
    return content


def _model_reference(name: str, content: Mapping[str, Any]) -> ModelReference | None:
    """The model that an artifact names, or None for one written by hand that names none."""
    model = content.get("model")
    if model is None:
        return None
    if not isinstance(model, dict) or not all(isinstance(model.get(key), str) for key in ("reference", "sha256")):
        raise ArtifactError(
            f"{name}: 'model' is {_show(model)}, expected an object with 'reference' and 'sha256': "
            "correct it, or leave 'model' out and name the model on the command line"
        )
    return ModelReference(model["reference"], model["sha256"], _towers(name, model.get("towers", {})))


def _towers(name: str, towers: object) -> dict[str, tuple[int, int]]:
    sizes = towers.values() if isinstance(towers, dict) else [None]
    if not all(isinstance(size, list) and len(size) == 2 and all(type(n) is int for n in size) for size in sizes):
        raise ArtifactError(f"{name}: the model's 'towers' is {_show(towers)}, expected layers and heads of each")
    assert isinstance(towers, dict)
    return {tower: (layers, heads) for tower, (layers, heads) in towers.items()}


def _show(value: object) -> str:
    text = json.dumps(value)
    return "missing" if value is None else text if len(text) <= 60 else text[:57] + "..."
