"""Options are fields of a value: flat in Python and in a shell, checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

import pytest

from hydractl.cli.app import COMMANDS
from hydractl.errors import HydractlError, OptionError
from hydractl.options import Declared, Option, Rows, Without, declared, flat, function, make, remembered
from hydractl.watch import Watcher
from tests.cli.conftest import Command, hydractl  # noqa: F401
from tests.hostile import within_limits


@dataclass(frozen=True)
class Boil:
    name: ClassVar[str] = "boil"
    help: ClassVar[str] = "in water"

    salt: Annotated[float, Option("Spoons of salt.", within=(0, 99))] = 1.0


@dataclass(frozen=True)
class Fry:
    name: ClassVar[str] = "fry"
    help: ClassVar[str] = "in a pan"

    oil: Annotated[float, Option("Spoons of oil.", within=(0, 99))]


@dataclass(frozen=True)
class Table:
    seats: Annotated[int, Option("Chairs.", within=(1, 99))] = 4
    cloth: Annotated[bool, Option("A table cloth.", remembered=False)] = False
    candles: Annotated[int, Option("Candles.")] = 0


@dataclass(frozen=True)
class CookEggs:
    """Cook eggs."""

    eggs: Annotated[int, Option("How many.", within=(1, 12), positional=True)]
    way: Annotated[Boil | Fry, Option("How to cook."), Rows((Boil, Fry))] = Boil()
    size: Annotated[Literal["S", "L"], Option("Their size.")] = "L"
    guests: Annotated[Sequence[Any], Option("Who eats.", remembered=False)] = ()
    table: Annotated[Table, Without("candles")] = Table(seats=2)
    note: Annotated[str | None, Option("Wishes.", remembered=False)] = None
    output: Annotated[Path | None, Option("Plate.")] = field(default=None, kw_only=True)

    def run(self, watch: Watcher) -> CookEggs:
        return self


cook_eggs = function(CookEggs)


def test_declares_its_fields_those_of_groups_and_those_of_rows() -> None:
    found = {option.name: option for option in declared(CookEggs)}
    assert list(found) == ["eggs", "way", "salt", "oil", "size", "guests", "seats", "cloth", "note", "output"]
    assert (found["eggs"].required, found["way"].choices, found["way"].default) == (True, ("boil", "fry"), "boil")
    assert (found["seats"].default, found["salt"].row_default, found["oil"].takers) == (2, 1.0, ("fry",))


def test_the_flat_function_makes_the_value() -> None:
    made = cook_eggs(3, way="fry", oil=0.5, seats=6)
    assert made == CookEggs(3, Fry(0.5), table=Table(6))
    assert cook_eggs(eggs=3, salt=2.0, note=[4, 0.5]) == CookEggs(3, Boil(2.0), note="4,0.5")
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
        ({"eggs": 2, "note": True}, "`note` True: expected a text"),
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


def is_number(option: Declared) -> bool:
    return any(kind in (int, float) for kind in (option.type, *get_args(option.type)))


NUMBERS = [
    pytest.param(command, option, id=f"{command.name} {option.name}")
    for command in COMMANDS
    for option in declared(command.step)
    if is_number(option)
]


def beyond(option: Declared) -> Iterator[Any]:
    assert option.option.within is not None
    low, high = option.option.within
    yield from (low - 1, high + 1, 10**30, -(10**30), 10**5000, float("nan"), float("inf"), -float("inf"))


def anything(option: Declared) -> Any:
    """A value that passes all checks of a declaration; what works on it would fail otherwise."""
    named = {"dtype": "float32", "device": "cpu"}.get(option.name)
    other = "a" if option.type is str else object()
    return named or (option.choices[0] if option.choices else 1 if is_number(option) else other)


@pytest.mark.parametrize(("command", "option"), NUMBERS)
def test_each_number_has_bounds_and_is_held_to_them(command: Any, option: Declared) -> None:
    assert option.option.within is not None and option.option.within[0] < option.option.within[1]
    others = {other.name: anything(other) for other in declared(command.step) if other.required}
    for value in beyond(option):
        given = {**others, option.name: value} | ({option.choice: option.takers[0]} if option.choice else {})
        with within_limits(), pytest.raises(OptionError) as raised:
            make(command.step, given) if isinstance(command.step, type) else command.step(**given)
        assert f"`{option.name}`" in str(raised.value) and len(str(raised.value)) < 200


HOSTILE = ("1" + "0" * 12, "9" * 5000, "-1", "nan", "inf", "1e400", "0x10", "", " ")


def texts() -> Iterator[tuple[str, Any]]:
    """What reads a number out of a text, each with the text around it."""
    from hydractl.bounds import parse_ratio
    from hydractl.circuit.ranking import Restriction, heads_to_rank
    from hydractl.data.corruptions import parse_corruptions
    from hydractl.data.reading import parse_data_spec
    from hydractl.evaluation.settings import Settings
    from hydractl.selection.candidates import counts
    from hydractl.steps.analyse import _size
    from hydractl.steps.select import parse_members
    from hydractl.systems.spelling import parse_networks

    yield "vit,mc-dropout={}", parse_networks
    yield "vit,mc-dropout=2,p={}", parse_networks
    yield "contrast:1-{}", parse_corruptions
    yield "{}", lambda text: heads_to_rank(text, 48)
    yield "6,{}%", lambda text: counts("budgets", text, 48)
    yield "0-{}", lambda text: Restriction(None, text).among(())
    yield "{}", _size
    yield "{}x", lambda text: parse_ratio("budget_macs", text)
    yield "{}", lambda text: Settings(temperature=text)
    yield "2-{}", parse_members
    yield "x%1/{}@1", parse_data_spec


@pytest.mark.parametrize("number", HOSTILE)
def test_numbers_inside_texts_are_held_to_theirs(number: str) -> None:
    for form, read in texts():
        with within_limits(), pytest.raises(HydractlError):
            read(form.format(number))
