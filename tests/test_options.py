"""Options are fields of a value: flat in Python and in a shell, checked before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest

from hydractl.errors import OptionError
from hydractl.options import Option, Rows, Without, declared, flat, function, make, remembered
from hydractl.watch import Watcher


@dataclass(frozen=True)
class Boil:
    name: ClassVar[str] = "boil"
    help: ClassVar[str] = "in water"

    salt: Annotated[float, Option("Spoons of salt.", minimum=0)] = 1.0


@dataclass(frozen=True)
class Fry:
    name: ClassVar[str] = "fry"
    help: ClassVar[str] = "in a pan"

    oil: Annotated[float, Option("Spoons of oil.", minimum=0)]


@dataclass(frozen=True)
class Table:
    seats: Annotated[int, Option("Chairs.", minimum=1)] = 4
    cloth: Annotated[bool, Option("A table cloth.", remembered=False)] = False
    candles: Annotated[int, Option("Candles.")] = 0


@dataclass(frozen=True)
class CookEggs:
    """Cook eggs."""

    eggs: Annotated[int, Option("How many.", minimum=1, maximum=12, positional=True)]
    way: Annotated[Boil | Fry, Option("How to cook."), Rows((Boil, Fry))] = Boil()
    size: Annotated[Literal["S", "L"], Option("Their size.")] = "L"
    guests: Annotated[Sequence[Any], Option("Who eats.", remembered=False)] = ()
    table: Annotated[Table, Without("candles")] = Table(seats=2)
    output: Annotated[Path | None, Option("Plate.")] = field(default=None, kw_only=True)

    def run(self, watch: Watcher) -> CookEggs:
        return self


cook_eggs = function(CookEggs)


def test_declares_its_fields_those_of_groups_and_those_of_rows() -> None:
    found = {option.name: option for option in declared(CookEggs)}
    assert list(found) == ["eggs", "way", "salt", "oil", "size", "guests", "seats", "cloth", "output"]
    assert (found["eggs"].required, found["way"].choices, found["way"].default) == (True, ("boil", "fry"), "boil")
    assert (found["seats"].default, found["salt"].row_default, found["oil"].takers) == (2, 1.0, ("fry",))


def test_the_flat_function_makes_the_value() -> None:
    made = cook_eggs(3, way="fry", oil=0.5, seats=6)
    assert made == CookEggs(3, Fry(0.5), table=Table(6))
    assert cook_eggs(eggs=3, salt=2.0) == CookEggs(3, Boil(2.0))
    assert (cook_eggs.__name__, "  oil: Spoons of oil." in str(cook_eggs.__doc__)) == ("cook_eggs", True)


@pytest.mark.parametrize("value", [CookEggs(1), CookEggs(2, Fry(1.0), "S", ["me"], Table(3, True), output=Path("p"))])
def test_flat_options_make_the_same_value_again(value: CookEggs) -> None:
    assert make(CookEggs, flat(value)) == value


def test_remembers_what_determines_the_result() -> None:
    assert remembered(CookEggs(2)) == {"eggs": 2, "salt": 1.0, "size": "L", "seats": 2}
    assert remembered(CookEggs(2, Fry(1.0), output=Path("p")), size=None) == {
        "eggs": 2, "way": "fry", "oil": 1.0, "seats": 2, "output": "p",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "eggs"),
        ({"eggs": 0}, "`eggs` 0: expected 1 to 12"),
        ({"eggs": True}, "eggs"),
        ({"eggs": 2.5}, "eggs"),
        ({"eggs": 2, "size": "M"}, "size"),
        ({"eggs": 2, "way": "steam"}, "way"),
        ({"eggs": 2, "way": "fry"}, "needs `oil`"),
        ({"eggs": 2, "way": "fry", "oil": float("nan")}, "oil"),
        ({"eggs": 2, "oil": 1.0}, "`oil` has no effect with `way` boil"),
        ({"eggs": 2, "seats": 0}, "seats"),
    ],
)
def test_refuses_bad_values_by_name(given: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError) as raised:
        make(CookEggs, given)
    assert named in str(raised.value)
