"""Strict reading of files from outside, and the one place that turns pydantic's errors into ours.

A file has to be a regular one of a sensible size, and its JSON unambiguous: no key twice, no NaN.
Its content becomes a pydantic model or a dataclass in strict mode, and the first problem becomes one line: the file,
the key, what was found there, what to do.
"""

from __future__ import annotations

import json
import math
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, dataclass_transform

from hydractl.errors import HydractlError
from hydractl.text import printable, shortened

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

STDIN = "-"
LARGEST = 2**26  # bytes; the largest tokenizers take half of that
LONGEST = 200  # characters of what was found, so that an error of any damage stays one line

T = TypeVar("T")


class Checked:
    """Constraints on an annotated value from outside: those of pydantic's `Field`, which is imported on first use.

    Args:
        by: returns the value, or raises ValueError.
    """

    __is_annotated_types_grouped_metadata__ = True  # pydantic takes the annotations that it yields in its place

    def __init__(self, by: Callable[[Any], Any] | None = None, **constraints: Any) -> None:
        self.by, self.constraints = by, constraints

    def __iter__(self) -> Iterator[Any]:
        from pydantic import AfterValidator, Field

        yield from Field(**self.constraints).metadata
        if self.by is not None:
            yield AfterValidator(self.by)


#: A list from a file. The first wrong item is error enough: there may be millions.
Items = Annotated[tuple[T, ...], Checked(fail_fast=True)]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Schema:
    """A form that a file from outside must have: no conversions, nothing it does not name, only finite numbers.

    Subclasses are frozen dataclasses; `extra="ignore"` behind the base class ignores what they do not name, and `keys`
    has the keys in the file of fields that are called otherwise.
    """

    __pydantic_config__: dict[str, Any] = {"strict": True, "extra": "forbid", "allow_inf_nan": False}  # noqa: RUF012
    keys: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, extra: Literal["ignore"] | None = None, keys: Mapping[str, str] | None = None) -> None:
        cls.keys = keys or cls.keys
        changes = {"alias_generator": lambda name: cls.keys.get(name, name), **({"extra": extra} if extra else {})}
        cls.__pydantic_config__ = {**cls.__pydantic_config__, **changes}
        dataclass(frozen=True, kw_only=True)(cls)


@dataclass(frozen=True)
class Origin:
    """The source of a value: its name in messages, the class of its errors, and the remedy they end with."""

    name: str
    error: type[HydractlError]
    remedy: str

    def refusal(self, finding: str, remedy: str | None = None) -> HydractlError:
        """Returns the error to raise: one line, whatever the file's name and its content hold."""
        return self.error(f"{printable(self.name)}: {shortened(finding, LONGEST)}: {remedy or self.remedy}")


@dataclass(frozen=True)
class Document:
    """Well-formed JSON from outside, as text and as Python's own reader returns it."""

    origin: Origin
    text: str
    value: Any

    @property
    def fields(self) -> dict[str, Any]:
        """The object it holds.

        Raises:
            HydractlError: of the origin's kind: it holds something else.
        """
        if not isinstance(self.value, dict):
            raise self.origin.refusal(f"is {shown(self.value)}, should be an object")
        return self.value

    def read(self, kind: type[T], extra: Literal["forbid", "ignore"] | None = None) -> T:
        """Returns the document as a `Schema` or a dataclass, strict about the types of its fields.

        Args:
            extra: whether keys that the kind does not name are forbidden or ignored; default: as the kind says.

        Raises:
            HydractlError: of the origin's kind: it has another form.
        """
        from pydantic import ValidationError

        form: Any = kind
        try:
            return _adapter(form).validate_json(self.text, strict=True, extra=extra)
        except ValidationError as error:
            raise self.origin.refusal(_problem(error)) from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:  # made once: that takes longer than to read most files
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def read_json(path: Path | str, origin: Origin) -> Document:
    """Reads the JSON in a file, or on standard input if the path is `-`.

    Raises:
        HydractlError: of the origin's kind: see `read_text` and `parse_json`.
    """
    return parse_json(read_text(path, origin), origin)


def read_text(path: Path | str, origin: Origin, most: int | None = None) -> str:
    """Reads the text of a regular file, or of standard input if the path is `-`.

    Args:
        most: the largest number of bytes; default: LARGEST.

    Raises:
        HydractlError: of the origin's kind: it is missing, a folder, a pipe or a device, too large, or no UTF-8.
    """
    try:
        return read_limited(path, origin, most or LARGEST).decode("utf-8-sig")
    except ValueError as error:
        raise origin.refusal(f"cannot be read ({error})") from error


def read_limited(path: Path | str, origin: Origin, most: int) -> bytes:
    """Reads the bytes of a regular file, or of standard input if the path is `-`; see `read_text`."""
    try:
        data = sys.stdin.buffer.read(most + 1) if str(path) == STDIN else _regular_bytes(Path(path), origin, most)
    except FileNotFoundError as error:
        raise origin.refusal("is missing", "check the path") from error
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError too
        raise origin.refusal(f"cannot be read ({error})") from error
    if len(data) > most:
        raise origin.refusal(f"is larger than the {most} bytes that are read")
    return data


def _regular_bytes(path: Path, origin: Origin, most: int) -> bytes:
    # Looked at before it is opened: to open a pipe waits for its writer, and a device may do anything.
    if not stat.S_ISREG(mode := path.stat().st_mode):
        raise origin.refusal("is not a regular file", "name a file" if stat.S_ISDIR(mode) else None)
    with path.open("rb") as file:
        return file.read(most + 1)


def parse_json(text: str, origin: Origin) -> Document:
    """Parses JSON that means one thing to every reader.

    Raises:
        HydractlError: of the origin's kind: not JSON, a key given twice, or a number that is not finite.
    """
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_float=_finite, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise origin.refusal("is nested too deeply") from error
    except ValueError as error:
        raise origin.refusal(f"is not readable JSON ({error})") from error
    return Document(origin, text, value)


def parse_toml(text: str, origin: Origin) -> Document:
    """Parses TOML.

    Raises:
        HydractlError: of the origin's kind: not TOML.
    """
    try:
        return document(tomllib.loads(text), origin)
    except RecursionError as error:
        raise origin.refusal("is nested too deeply") from error
    except ValueError as error:
        raise origin.refusal(f"is not readable TOML ({error})") from error


def document(value: Any, origin: Origin) -> Document:
    """Returns plain values that have been read already as a document.

    Raises:
        HydractlError: of the origin's kind: no plain values, or a number of thousands of digits.
    """
    try:
        # Dates, which TOML has, stand as text; no field takes them for anything else.
        return Document(origin, json.dumps(value, default=str), value)
    except (TypeError, ValueError, RecursionError) as error:
        raise origin.refusal(f"cannot be read ({error})") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in result if names.count(name) > 1)
        raise ValueError(f"key {shown(twice)} is given twice")
    return result


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{shortened(text, 20)} is beyond what a number can be")
    return number


def _problem(error: ValidationError) -> str:
    """Returns the first problem, with the dotted path of its key."""
    problems = error.errors(include_url=False)
    # If several forms are allowed, pydantic lists the problems of each; a wrong value says more than a key that only
    # another form has.
    absent = ("missing", "missing_argument", "extra_forbidden", "unexpected_keyword_argument")
    first = next((problem for problem in problems if problem["type"] not in absent), problems[0])
    key = shortened(".".join(str(part) for part in first["loc"] if part != "[key]"), 80)
    place = f"{key} is" if key else "is"
    if first["type"].startswith("missing"):
        return f"{key} is missing"
    if first["type"] in absent:
        return f"{place} unknown"
    if first["type"] == "json_invalid":
        return f"is not readable JSON ({first['msg']})"
    if first["type"] == "value_error":
        return f"{key}: {first['ctx']['error']}" if key else str(first["ctx"]["error"])
    _, should, expected = first["msg"].partition("should")
    expected = expected.replace("a valid dictionary", "an object").replace(" after validation", "")
    return f"{place} {shown(first['input'])}, {should}{expected}" if should else f"{key}: {first['msg']}"


def shown(value: Any) -> str:
    """Returns a value from outside for a message: short and on one line."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return shortened(json.dumps(value, ensure_ascii=False, default=str), 60)
