"""Commands are their steps: flags, help and messages follow from one declaration."""

from __future__ import annotations

import re

import pytest

from hydractl.cli.commands import COMMANDS
from hydractl.cli.derive import Command, options_of, takes_several
from hydractl.cli.help import help_text, respelled, spelling, with_bare_flags
from hydractl.options import HEADINGS, Declared, Option, flags_of
from tests.cli.conftest import Command as Run


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_lists_every_option_under_its_heading(hydractl: Run, command: Command) -> None:
    said = hydractl(*command.name.split(), "--help").out
    sections = dict(re.findall(r"^([A-Z].*):\n((?:  .*\n|\n)+)", said, re.MULTILINE))
    for option in options_of(command):
        section = sections["Arguments" if option.option.positional else option.option.heading]
        assert spelling(option) in section
    assert [name for name in sections if name in HEADINGS] == [h for h in HEADINGS if h in sections]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_list_of_commands_has_the_first_line_of_each_help(command: Command) -> None:
    assert command.first_line == help_text(command.step, options_of(command)).splitlines()[0] != ""


def test_messages_spell_options_as_the_command_line_does() -> None:
    options = (
        Declared("ood_data", str, None, Option("")),
        Declared("output", str, None, Option("", flags=("--output", "-o"))),
        Declared("models", str, None, Option("", metavar="MODEL...", positional=True)),
    )
    assert respelled("`ood_data` of `models` to `output`, `else`", options) == (
        "--ood-data of MODEL to --output, `else`"
    )


@pytest.mark.parametrize(
    ("given", "completed"),
    [
        (["m", "--json"], ["m", "--json", "-"]),
        (["--json", "--quiet", "m"], ["--json", "-", "--quiet", "m"]),
        (["--json", "file", "m"], ["--json", "file", "m"]),
        (["--json", "-", "m"], ["--json", "-", "m"]),
    ],
)
def test_a_flag_that_may_stand_alone(given: list[str], completed: list[str]) -> None:
    assert with_bare_flags(given, [Declared("json", str, None, Option("", bare="-"))]) == completed


DATA = [(c, o) for c in COMMANDS for o in options_of(c) if o.name.endswith("data") and not o.option.positional]


@pytest.mark.parametrize(("command", "option"), DATA, ids=lambda one: one.name)
def test_data_given_twice_is_taken_twice_or_refused(hydractl: Run, command: Command, option: Declared) -> None:
    flag = flags_of(option)[-1]
    done = hydractl(*command.name.split(), flag, "here", flag, "there")
    # A flag that may be repeated gets as far as what else is missing.
    assert done.code == 2
    assert ("is given 2 times: give it once" in done.err) != takes_several(option)
