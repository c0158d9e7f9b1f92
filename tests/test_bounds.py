"""Every number that a user can give has bounds, and beyond them it is refused before any work is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest

from hydractl.cli.commands import COMMANDS
from hydractl.errors import HydractlError, OptionError
from hydractl.options import Declared, declared, make
from tests.cli.conftest import Command, hydractl  # noqa: F401
from tests.hostile import within_limits

MANY = "9" * 5000  # digits, which Python refuses to read


def is_number(option: Declared) -> bool:
    return any(kind in (int, float) for kind in (option.type, *get_args(option.type)))


NUMBERS = [
    pytest.param(command, option, id=f"{command.name} {option.name}")
    for command in COMMANDS
    for option in declared(command.step)
    if is_number(option)
]


def beyond(option: Declared) -> Iterator[Any]:
    low, high = option.option.minimum, option.option.maximum
    assert low is not None and high is not None
    yield from (low - 1, high + 1, 10**30, -(10**30), 10**5000, float("nan"), float("inf"), -float("inf"))


def anything(option: Declared) -> Any:
    """A value that passes all checks of a declaration; what works on it would fail otherwise."""
    return option.choices[0] if option.choices else 1 if is_number(option) else object()


@pytest.mark.parametrize(("command", "option"), NUMBERS)
def test_each_number_has_bounds_and_is_held_to_them(command: Any, option: Declared) -> None:
    low, high = option.option.minimum, option.option.maximum
    assert low is not None and high is not None and low < high
    others = {other.name: anything(other) for other in declared(command.step) if other.required}
    for value in beyond(option):
        given = {**others, option.name: value} | ({option.choice: option.takers[0]} if option.choice else {})
        with within_limits(), pytest.raises(OptionError) as raised:
            make(command.step, given) if isinstance(command.step, type) else command.step(**given)
        assert f"`{option.name}`" in str(raised.value) and len(str(raised.value)) < 200


HOSTILE = ("1" + "0" * 12, MANY, "-1", "nan", "inf", "1e400", "0x10", "", " ")


def texts() -> Iterator[tuple[str, Any]]:
    """What reads a number out of a text, each with the text around it."""
    from hydractl.circuit.ranking import Restriction, heads_to_rank
    from hydractl.data.corruptions import parse_corruptions
    from hydractl.data.sources import parse_data_spec
    from hydractl.evaluation.checkpoints import parse_networks
    from hydractl.evaluation.settings import Settings
    from hydractl.selection.candidates import counts
    from hydractl.steps.benchmark import _size
    from hydractl.steps.limits import parse_ratio
    from hydractl.steps.select import parse_members

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
