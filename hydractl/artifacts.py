"""JSON artifacts: the fields that all of them have, references to models, and files of a search's state."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar

from hydractl.checkpoint.heads import Head
from hydractl.checkpoint.output import goes_on, refuse_other, write_bytes
from hydractl.errors import ArtifactError
from hydractl.schema import STDIN, Checked, Document, Origin, Schema, document, read_json, shown
from hydractl.text import printable_json

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

PREDICTIONS = "predictions:"  # before a folder of saved predictions that takes the place of a model
REMEDY = "correct it or write the file again"
RECIPE = ".toml"
#: The files that describe a folder of ours.
NAMES = ("work/build.json", "build.json", "report.json")

#: A number of a layer or a head, bounded as those of a spec are.
Index = Annotated[int, Checked(ge=0, lt=1000)]
TowerName = Annotated[str, Checked(pattern="^(vision|text)$")]
Size = Annotated[int, Checked(ge=1, le=1000)]


@dataclass(frozen=True)
class ModelReference:
    """The model of an artifact: where it lies, its identity, layers and heads of its towers."""

    reference: Annotated[str, Checked(min_length=1, max_length=4096)]
    sha256: Annotated[str, Checked(pattern="^[0-9a-f]{64}$")]
    towers: Mapping[TowerName, tuple[Size, Size]] = field(default_factory=dict)


class ArtifactFile(Schema, extra="ignore"):
    """The form of an artifact; one written by hand names no model. Unknown fields are ignored."""

    format: str
    version: int
    model: ModelReference | None = None


class Artifact(ArtifactFile):
    """An artifact that a command follows: a circuit, head scores or a selection.

    Attributes:
        model: the network it was made from; None for one written by hand.
        search_data: fingerprints of the samples it was made on, which an evaluation then refuses.
        name: for messages; not in the file.
    """

    search_data: dict[str, Any] | None = None
    name: str = ""


@dataclass(frozen=True)
class ReadAs:
    """A note on a field's type: it is read in another form, which is then changed to that type."""

    form: Any
    change: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, _type: Any, handler: GetCoreSchemaHandler) -> Any:
        from pydantic import AfterValidator

        return AfterValidator(self.change).__get_pydantic_core_schema__(self.form, handler)


class _NamedHead(Schema, extra="ignore"):
    tower: TowerName
    layer: Index
    head: Index


#: A head as an object with a field for each part of its address, which may have others, and as a list of the parts.
NamedHead = Annotated[Head, ReadAs(_NamedHead, lambda head: Head(head.tower, head.layer, head.head))]
ListedHead = Annotated[Head, ReadAs(tuple[TowerName, Index, Index], lambda parts: Head(*parts))]


class State(ArtifactFile):
    """The form of a state file; a subclass gives `findings` a type, and the key that they have in the file."""

    conditions: dict[str, Any]
    findings: Any


A = TypeVar("A", bound=ArtifactFile)
F = TypeVar("F", bound=Artifact)
T = TypeVar("T")


def read_artifact(source: str, kind: type[A], format_name: str, version: int) -> A:
    """Reads the artifact in the file `source`, or on standard input if that is `-`.

    The model's reference is returned as seen from the current folder.

    Raises:
        ArtifactError: see `open_artifact`, or a field is missing or of the wrong kind.
    """
    artifact = open_artifact(source, format_name, version).read(kind)
    if artifact.model is None:
        return artifact
    model = replace(artifact.model, reference=found_reference(artifact.model.reference, source))
    return replace(artifact, model=model)


def follow_artifact(source: str, kind: type[F], format_name: str, version: int) -> F:
    """Reads an artifact that a command follows; see `read_artifact`."""
    return replace(read_artifact(source, kind, format_name, version), name=artifact_name(source))


def artifact_in_memory(content: Mapping[str, Any], kind: type[F], name: str) -> F:
    """Returns the artifact whose plain JSON a command has just made, as `follow_artifact` reads it from a file."""
    return replace(document(dict(content), Origin(name, ArtifactError, REMEDY)).read(kind), name=name)


def open_artifact(source: str, format_name: str, version: int) -> Document:
    """Reads an artifact without checking its form.

    Raises:
        ArtifactError: it is missing, not JSON, or of another format or version.
    """
    origin = Origin(artifact_name(source), ArtifactError, REMEDY)
    document = read_json(source, origin)
    fields = document.fields
    if "format" not in fields:  # somebody wrote it by hand
        marks = f'"format": "{format_name}", "version": {version}'
        raise origin.refusal("format is missing", f"put {marks} in, or name another file")
    if fields["format"] != format_name:
        raise origin.refusal(f"format is {shown(fields['format'])}, should be {format_name!r}", "name another file")
    written = shown(fields["version"]) if "version" in fields else "missing"
    if written != str(version):  # as text: neither `true` nor 1.0 is version 1
        remedy = "write the file again, or update hydractl"
        raise origin.refusal(f"version is {written}, this hydractl reads {version}", remedy)
    return document


def file_of_ours(reference: str) -> Path | None:
    """Returns the artifact or recipe at a path, or the artifact in its folder; None if a model may lie there."""
    path = Path(reference)
    if path.is_dir():
        return next((path / name for name in NAMES if (path / name).is_file()), None)
    if not path.is_file():
        return None
    if path.name == "build.toml" and (made := path.parent / NAMES[0]).is_file():
        return made
    if path.suffix in (RECIPE, ".json"):
        return path
    with path.open("rb") as file:
        start = file.read(64)
    # Weights begin with their header's length in eight bytes, of which the last are zeros.
    return path if start.lstrip().startswith(b"{") and b"\0" not in start else None


def artifact_name(source: str) -> str:
    """Returns the name of an artifact in messages."""
    return "standard input" if source == STDIN else source


def write_json(path: Path, value: Mapping[str, Any], force: bool = False) -> None:
    """Writes one JSON object to a file.

    Raises:
        OutputError: the file exists and `force` is not set, or the disk refuses it.
    """
    write_bytes(path, f"{json_text(value, path.parent)}\n".encode(), force)


def json_text(value: Mapping[str, Any], folder: Path | None = None) -> str:
    """Returns a JSON object as people read it, with its models named as seen from its folder.

    Characters that control a terminal or turn the direction of writing are escaped as JSON escapes them.

    Args:
        folder: of the artifact; default: the current one.
    """
    return printable_json(seen_from(folder or Path(), value))


def seen_from(folder: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of an artifact with its models named as seen from a folder."""
    return with_references(content, partial(_seen_from, folder))


def found_references(content: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Returns the content of an artifact with its models named as seen from the current folder."""
    return with_references(content, partial(_found, source))


def found_reference(reference: str, source: str) -> str:
    """Returns a reference in an artifact as seen from the current folder.

    Args:
        reference: to one model, to several with `+` between, or to predictions in a folder.
        source: the artifact's file, or `-`.
    """
    return _each(reference, partial(_found, source))


def with_references(content: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Returns the content with each reference to a model changed: its own, and those of its systems and their networks.

    Args:
        content: with an object under `model`, a list of them under `networks` and `members`, and under `models` by
            name objects that hold these in turn, or lists of references; each may be missing.
    """
    result = dict(content)
    if isinstance(model := content.get("model"), Mapping):
        result["model"] = _of_model(model, change)
    for key in ("networks", "members"):
        if isinstance(listed := content.get(key), Sequence):
            result[key] = [_of_model(model, change) for model in listed]
    if isinstance(models := content.get("models"), Mapping):
        result["models"] = {
            name: with_references(entry, change)
            if isinstance(entry, Mapping)
            else [_each(each, change) for each in entry]
            for name, entry in models.items()
        }
    return result


def _of_model(model: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    # A model made in memory has no file.
    return {**model, "reference": _each(model["reference"], change)} if "reference" in model else dict(model)


def _each(reference: str, change: Callable[[str], str]) -> str:
    """Changes a reference: to one model, to several with `+` between, or to predictions in a folder."""
    if reference.startswith(PREDICTIONS):
        return PREDICTIONS + change(reference.removeprefix(PREDICTIONS))
    changed = change(reference)
    return changed if changed != reference else "+".join(map(change, reference.split("+")))


def _seen_from(folder: Path, reference: str) -> str:
    """Returns a path as seen from a folder, so that it holds on other machines too; a name of the hub stays."""
    path = Path(reference)
    if not os.path.exists(path):  # which also answers for names that no path can have
        return reference
    # The last part is not resolved: in the hub's cache it is a link to a name without meaning.
    place = path.parent.resolve() / path.name if path.name not in ("", "..") else path.resolve()
    return os.path.relpath(place, folder.resolve())


def _found(source: str, reference: str) -> str:
    """Returns a path as seen from the artifact's folder if something lies there, else the reference itself."""
    beside = Path(source).parent / reference
    if source == STDIN or not os.path.exists(beside):
        return reference
    plain = os.path.normpath(beside)  # leads elsewhere if a folder that `..` leaves is a link
    return plain if os.path.exists(plain) and os.path.samefile(plain, beside) else str(beside)


@dataclass(frozen=True)
class StateFile(Generic[T]):
    """A file with the findings of a search so far, written after every step, so that a killed search can go on."""

    path: Path
    conditions: Mapping[str, Any]  # all that determines the result, as plain JSON

    FORMAT: ClassVar[str]
    VERSION: ClassVar[int] = 1
    FILE: ClassVar[type[State]]

    def save(self, findings: T) -> None:
        """Writes the findings, atomically."""
        state = {"format": self.FORMAT, "version": self.VERSION, "conditions": self.conditions}
        state[self.FILE.keys["findings"]] = findings
        write_bytes(self.path, json.dumps(state, default=vars).encode(), force=True)

    def read(self) -> T:
        """Reads the findings.

        Raises:
            ArtifactError: the file is missing, damaged, or of a search under other conditions.
        """
        state = read_artifact(str(self.path), self.FILE, self.FORMAT, self.VERSION)
        origin = Origin(str(self.path), ArtifactError, "use the same options and data, or start over with `force`")
        refuse_other(origin, state.conditions, self.conditions)
        return state.findings

    def begin(self, nothing: T, resume: bool, force: bool) -> T:
        """Returns the findings of an interrupted search, or `nothing`.

        Raises:
            ArtifactError: see `read`.
            OutputError: see `goes_on`.
        """
        return self.read() if goes_on(self.path, resume, force) else nothing

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
