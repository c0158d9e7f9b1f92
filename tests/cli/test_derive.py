"""Commands are their steps: flags, help and messages follow from one declaration, results are those of Python."""

import json
import re
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import hydractl as library
from hydractl.artifacts import json_text
from hydractl.cli import console
from hydractl.cli.app import COMMANDS
from hydractl.cli.derive import Command, options_of, takes_several
from hydractl.cli.help import option_spelling, respelled, with_bare_flags
from hydractl.options import HEADINGS, Declared, Option, flags_of
from tests.cli.conftest import Command as Run
from tests.cli.conftest import save_circuit


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_lists_every_option_under_its_heading(hydractl: Run, command: Command) -> None:
    said = hydractl(*command.name.split(), "--help-all").out
    sections = dict(re.findall(r"^([A-Z].*):\n((?:  .*\n|\n)+)", said, re.MULTILINE))
    for option in options_of(command):
        section = sections["Arguments" if option.option.positional else option.option.heading]
        assert option_spelling(option) in section
    assert [name for name in sections if name in HEADINGS] == [h for h in HEADINGS if h in sections]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_leaves_rare_options_and_notes_to_the_whole_help(hydractl: Run, command: Command) -> None:
    short, everything = (hydractl(*command.name.split(), flag).out for flag in ("--help", "--help-all"))
    spelled = {option_spelling(option): option.option.rare for option in options_of(command)}
    sections = re.split(r"^[A-Z][\w ]+:\n", short, maxsplit=1, flags=re.MULTILINE)[1]
    found = {name: re.search(rf"^  (?:-\w, )?{re.escape(name)}(?![\w-])", sections, re.MULTILINE) for name in spelled}
    shown = {name for name, place in found.items() if place}
    more = re.search(r"^(\d+) more options, and notes: hydractl .* --help-all$", short, re.MULTILINE)
    hidden = {name for name, rare in spelled.items() if rare} if more else set()
    assert shown == spelled.keys() - hidden and len(hidden) == int(more[1] if more else 0)
    assert bool(more) == (short != everything)
    assert len(shown) <= 24 and len(short.splitlines()) <= 84


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
def test_data_given_twice_is_taken_twice_or_refused(
    hydractl: Run, tmp_path: Path, command: Command, option: Declared
) -> None:
    flag = flags_of(option)[-1]
    done = hydractl(*command.name.split(), flag, tmp_path, flag, tmp_path)
    # A flag that may be repeated gets as far as what else is missing.
    assert done.code == 2
    assert ("is given 2 times: give it once" in done.err) != takes_several(option)


ID, OOD = {"id_data": "pets"}, {"ood_data": "noise"}
#: Each command: what stands beside its bar, its arguments, where a list is one of Python's, and its options.
BARS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "score-heads": ("score", ["vit"], {"method": "taylor", **ID, "output": "s.json"}),
    "extract-circuit": ("search", ["vit"], {**ID, **OOD, "budget": 1, "output": "c.json"}),
    "select": ("select", ["vit"], {"circuit": ["circuit.json"], "budgets": "1,2", "members": "2", **ID}),
    "evaluate": ("vit", [["vit"]], {**ID, **OOD, "calib_data": "pets", "temperature": "fit", "allow_leak": True}),
    "calibrate": ("calibrate", ["vit"], {**ID, "output": "calibrated"}),
    "predict": ("predict", ["vit", ["noise/0.png"]], {}),
    "monitor": ("predict", ["known", "pets"], {}),
    "analyse speed": ("time", [["vit"]], {"batch_sizes": "1", "seconds": 0.1}),
    "analyse heads": ("analyse", ["vit"], {"circuit": "circuit.json", "budget": 1, **ID, **OOD, "plot": "heads.svg"}),
    "check": ("probe", ["vit"], {**ID}),
    # How long these take is not known.
    "prune": ("prune", ["vit"], {"method": "random", "budget": 1, "output": "m1"}),
    "fuse": ("fuse", [["vit", "vit"]], {"separate": "classifier", "output": "fused"}),
    "inspect": ("inspect", ["vit"], {}),
    "export": ("export", ["vit"], {"output": "folder"}),
}
#: These are done at once, or run the others, each with its own bar.
NO_BAR: dict[str, list[Any]] = {"guide": ["speed"], "list families": [], "list recipes": ["sst2"], "list suites": []}


@pytest.fixture
def there(place: Path) -> None:
    library.prune("vit", method="random", budget=1, output="member")
    library.fuse(["vit", "member"], output="both")
    library.calibrate("vit", id_data="pets", output="known")
    save_circuit("circuit.json", (1, 0), (1, 1))


def line(command: str, arguments: list[Any], options: dict[str, Any]) -> list[str]:
    """The words of a command line for such a call."""
    words = chain.from_iterable(one if isinstance(one, list) else [one] for one in arguments)
    flags = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
        for name, values in options.items()
        for value in (values if isinstance(values, list) else [values])
    ]
    return [*command.split(), *words, *flags]


def call(command: str, arguments: list[Any], options: dict[str, Any]) -> Any:
    return getattr(library, command.replace(" ", "_").replace("-", "_"))(*arguments, **options)


@pytest.mark.parametrize("command", BARS)
def test_a_command_does_what_its_function_does(
    hydractl: Run, there: None, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    name, *how = BARS[command]
    piped = hydractl(*line(command, *how), "--json", code=0)
    assert "\x1b" not in piped.err
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    watched = hydractl(*line(command, *how), "--force", code=0)
    assert f"{name} " in watched.err.replace(":", " ")
    assert "\x1b[1A" in watched.err or "\x1b[2K" in watched.err  # it is erased in the end
    assert "\x1b" not in watched.out
    if command != "analyse speed":  # whose times differ
        found = call(command, how[0], {**how[1], "force": True} if {"output", "plot"} & how[1].keys() else how[1])
        said, expected = json.loads(piped.out), json.loads(json_text(found.to_json()))
        assert all(f"warning: {text}" in piped.err for text in said.pop("warnings", []))
        assert said == {name: value for name, value in expected.items() if name != "warnings"}
        assert watched.out.splitlines() == list(found.lines())
        assert found._repr_html_().startswith("<")


@pytest.mark.parametrize("command", NO_BAR)
def test_what_is_done_at_once_says_the_same_too(hydractl: Run, command: str) -> None:
    found = call(command, NO_BAR[command], {})
    said = hydractl(*command.split(), *NO_BAR[command], "--json").out
    assert json.loads(said) == json.loads(json_text(found.to_json()))


def test_every_command_is_named_here() -> None:
    elsewhere = {"finetune", "build", "report"}  # tests of their own compare these
    assert BARS.keys() | NO_BAR.keys() | elsewhere == {command.name for command in COMMANDS}


def test_a_quiet_command_shows_none(hydractl: Run, there: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert hydractl("inspect", "vit", "--quiet").err == ""


def test_the_bar_of_a_part_takes_the_place_of_the_whole_s(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    terminal = console.Terminal(quiet=False)
    with terminal.progress("command", None):
        with terminal.progress("work", 4) as advance:
            assert [task.description for task in terminal._bars.tasks if task.visible] == ["work"]
            advance(1)
            assert terminal._bars.tasks[-1].remaining == 3
        assert [task.description for task in terminal._bars.tasks if task.visible] == ["command"]
    assert terminal._bars is None
