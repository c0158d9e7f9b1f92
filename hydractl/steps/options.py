"""How a step declares its options: once, in its signature, for Python and for the command line."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from hydractl.errors import OptionError
from hydractl.optional import naming_extras

Heading = Literal["Model", "What to do", "Data", "Compute", "Output"]
HEADINGS: tuple[Heading, ...] = get_args(Heading)

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Option:
    """What is said of an option besides its name, type and default, which stand in the signature.

    Attributes:
        help: one sentence or two, for `--help` and for the docstring.
        heading: what it stands under in `--help`.
        metavar: what stands for its value there.
        minimum, maximum: the range of a number, both ends included.
        flags: its spellings on the command line; `--name` where left out.
        positional: whether the command line takes it without a flag.
        repeated: whether its flag may be given several times, where the annotation does not say so.
        bare: what the flag stands for where no value follows; None: a value must follow.
        goes_with: other options, and the values of theirs with which this one counts; elsewhere it is refused.
    """

    help: str
    heading: Heading = "What to do"
    metavar: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    flags: tuple[str, ...] = ()
    positional: bool = False
    repeated: bool = False
    bare: str | None = None
    goes_with: Mapping[str, tuple[object, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Declared:
    """One option of a step, as its signature has it.

    Attributes:
        type: what it is annotated with, `None` aside; `Any` where values of many types will do.
        default: `inspect.Parameter.empty` where it must be given.
    """

    name: str
    type: Any
    default: Any
    option: Option

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values there are to choose from; none where any will do."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()


def flags_of(option: Declared) -> tuple[str, ...]:
    """The spellings of an option on the command line."""
    return option.option.flags or (f"--{option.name.replace('_', '-')}",)


def declared(step: Callable[..., Any]) -> tuple[Declared, ...]:
    """The options of a step, in the order of its signature."""
    function = inspect.unwrap(step)
    hints = get_type_hints(function, include_extras=True)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind, options = _without_none(hints[name])
        if options:
            found.append(Declared(name, kind, parameter.default, options[-1]))
    return tuple(found)


def _without_none(hint: Any) -> tuple[Any, list[Option]]:
    """A type without `None` and without what it is annotated with, and the options among that."""
    if get_origin(hint) is Annotated:
        kind, *notes = get_args(hint)
        inner, options = _without_none(kind)
        return inner, options + [note for note in notes if isinstance(note, Option)]
    if get_origin(hint) in (Union, UnionType):
        parts = [_without_none(part) for part in get_args(hint) if part is not NoneType]
        options = [option for _, found in parts for option in found]
        return (parts[0][0] if len(parts) == 1 else Union[tuple(kind for kind, _ in parts)]), options  # noqa: UP007
    return hint, []


def step(function: Callable[P, R]) -> Callable[P, R]:
    """The function, refusing options that are out of range or without effect before any work is done.

    Its docstring gains what the options say of themselves. A package that is missing is named with its extra.

    Raises:
        OptionError: a value that is none of the choices, out of range, or of an option that does not count here; or
            a package of an extra is not installed.
    """
    options = declared(function)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        for option in options:
            _check(option, given.arguments)
        with naming_extras():
            return function(*args, **kwargs)

    checked.__doc__ = _documented(function.__doc__ or "", options)
    return checked


def _check(option: Declared, values: Mapping[str, Any]) -> None:
    value = values[option.name]
    if value is None:
        return
    if option.choices and value not in option.choices:
        raise OptionError(f"`{option.name}` {brief(value)}: expected {' or '.join(map(str, option.choices))}")
    if option.type in (int, float) or (isinstance(value, int | float) and float in get_args(option.type)):
        _check_number(option, value)
    if option.option.goes_with and value != option.default:
        for other, counts in option.option.goes_with.items():
            if values[other] not in counts:
                having = " or ".join(map(str, counts))
                raise OptionError(
                    f"`{option.name}` has no effect with `{other}` {values[other]}: leave it out, or choose {having}"
                )


def _check_number(option: Declared, value: Any) -> None:
    kind, low, high = option.type, option.option.minimum, option.option.maximum
    whole = kind is int
    number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not number or (isinstance(value, float) and not isfinite(value)):
        raise OptionError(f"`{option.name}` {brief(value)}: expected a {'whole ' if whole else ''}number")
    if (low is not None and value < low) or (high is not None and value > high):
        raise OptionError(f"`{option.name}` {brief(value)}: expected {_range(low, high)}")


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"at least {_plain(low)}" if high is None else f"at most {_plain(high)}"
    return f"{_plain(low)} to {_plain(high)}"


def brief(value: Any) -> str:
    """A value for one line of a message: short, also where it is a number that Python would not print."""
    if isinstance(value, int) and value.bit_length() > 256:
        return "(beyond reason)"
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _plain(bound: float | None) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def _documented(text: str, options: tuple[Declared, ...]) -> str:
    lines = [f"    {option.name}: {option.option.help}" for option in options]
    return "\n".join([inspect.cleandoc(text), "", "Options:", *lines])
