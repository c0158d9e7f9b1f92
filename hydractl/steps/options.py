"""Steps that are still functions: goes when the last of them is a value of `hydractl.options`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar, get_type_hints

from hydractl import options as values
from hydractl.errors import OptionError
from hydractl.optional import naming_extras
from hydractl.options import HEADINGS as HEADINGS
from hydractl.options import Declared as Declared
from hydractl.options import Heading as Heading
from hydractl.options import brief as brief
from hydractl.options import flags_of as flags_of

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Option(values.Option):
    """An option of a step that is a function."""

    goes_with: Mapping[str, tuple[object, ...]] = field(default_factory=dict)


def declared(step: Any) -> tuple[Declared, ...]:
    """Returns the options of a step, in the order of its signature."""
    step = getattr(step, "step", step)
    if isinstance(step, type):
        return values.declared(step)
    function = inspect.unwrap(step)
    hints = get_type_hints(function, include_extras=True)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind, notes = values._without_none(hints[name])
        if notes := [note for note in notes if isinstance(note, values.Option)]:
            found.append(Declared(name, kind, parameter.default, notes[-1]))
    return tuple(found)


def step(function: Callable[P, R]) -> Callable[P, R]:
    """Returns the function with its options checked before it runs."""
    known = declared(function)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        for option in known:
            option.check(given.arguments[option.name])
            _check_effect(option, given.arguments)
        with naming_extras():
            return function(*args, **kwargs)

    checked.__doc__ = values._documented(function.__doc__ or "", known)
    return checked


def _check_effect(option: Declared, given: Mapping[str, Any]) -> None:
    goes_with = getattr(option.option, "goes_with", {})
    if given[option.name] is None or given[option.name] == option.default:
        return
    for other, counts in goes_with.items():
        if given[other] not in counts:
            having = " or ".join(map(str, counts))
            raise OptionError(
                f"`{option.name}` has no effect with `{other}` {given[other]}: leave it out, or choose {having}"
            )
