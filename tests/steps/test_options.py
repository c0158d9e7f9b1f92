"""A declared option is checked in Python as it is on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pytest

from hydractl.errors import OptionError
from hydractl.steps.options import Option, declared, step


@step
def cook(
    eggs: Annotated[int, Option("How many.", minimum=1, maximum=12)],
    *,
    way: Annotated[Literal["boiled", "fried"], Option("How.")] = "boiled",
    oil: Annotated[float | None, Option("Spoons of oil.", minimum=0, goes_with={"way": ("fried",)})] = None,
    guests: Annotated[Sequence[Any], Option("Who eats.")] = (),
) -> str:
    """Cook."""
    return f"{eggs} {way} {oil}"


def test_what_a_signature_declares() -> None:
    found = {option.name: option for option in declared(cook)}
    assert list(found) == ["eggs", "way", "oil", "guests"]
    assert (found["eggs"].type, found["eggs"].required) == (int, True)
    assert (found["oil"].type, found["oil"].default) == (float, None)
    assert found["way"].choices == ("boiled", "fried")


def test_its_docstring_says_what_the_options_are() -> None:
    assert cook.__doc__ is not None
    assert "  oil: Spoons of oil." in cook.__doc__


def test_good_values_pass() -> None:
    assert cook(12, way="fried", oil=0.5) == "12 fried 0.5"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eggs": 0}, "`eggs` 0: expected 1 to 12"),
        ({"eggs": True}, "`eggs` True: expected a whole number"),
        ({"eggs": 2.5}, "`eggs` 2.5: expected a whole number"),
        ({"eggs": 2, "way": "raw"}, "`way` raw: expected boiled or fried"),
        ({"eggs": 2, "way": "fried", "oil": float("nan")}, "`oil` nan: expected a number"),
        ({"eggs": 2, "way": "fried", "oil": -1}, "`oil` -1: expected at least 0"),
        ({"eggs": 2, "oil": 1.0}, "`oil` has no effect with `way` boiled: leave it out, or choose fried"),
    ],
)
def test_bad_values_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        cook(**options)
    assert str(raised.value) == message
