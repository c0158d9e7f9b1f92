"""Options as values: a command is a frozen dataclass, and its fields are what a shell and Python may set.

A field is one option by `option(default, help)`, by `field(metadata=required(help))` where it must be given, or by an
`Option` in its type where the type is shared or has rows. A field whose type is a dataclass is a group: its options
stand among the command's own. A field with `Rows` chooses one of several dataclasses by name; the chosen one's fields
are options too.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from math import inf
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from hydractl.errors import OptionError, OutputError, UnreadableError, naming_extras
from hydractl.text import shortened
from hydractl.watch import LOG, Watcher

Heading = Literal["Model", "What to do", "Data", "Compute", "Output"]
HEADINGS: tuple[Heading, ...] = get_args(Heading)

OPTION = "option"  # the key in a field's metadata
READ = re.compile("MODEL|SYSTEM|SOURCE|FILE|REPORT|JSON|NAME=ID")  # what a placeholder of files to read says

T = TypeVar("T")
P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Option:
    """Describes an option; its name, type and default are the field's."""

    help: str  # one sentence or two, for `--help` and for the docstring
    heading: Heading = "What to do"  # its section in `--help`
    metavar: str | None = None  # the placeholder of its value there
    within: tuple[float, float] | None = None  # the range of a number, both ends included
    flags: tuple[str, ...] = ()  # its spellings on the command line; default `--name`
    positional: bool = False  # whether the command line takes it without a flag
    repeated: bool = False  # whether its flag may be given several times, if the annotation does not say so
    choices: tuple[str, ...] = ()  # the values to choose from, if the annotation does not say so
    rare: bool = False  # whether only `--help-all` shows it
    bare: str | None = None  # the value of a flag that is given without one; None if a value must follow
    remembered: bool = True  # whether results depend on it, so that provenance and `--resume` compare it
    parse: Callable[[str, Any], Any] | None = None  # makes its value of its name and what a user gives
    plain: Callable[[Any], Any] | None = None  # turns its value into plain JSON for provenance


def _with_default(describe: Callable[P, Option]) -> Callable[Concatenate[T, P], T]:
    def option(default: T, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return field(default=default, metadata={OPTION: describe(*args, **kwargs)})

    return option


def _as_metadata(describe: Callable[P, Option]) -> Callable[P, dict[str, Option]]:
    return lambda *args, **kwargs: {OPTION: describe(*args, **kwargs)}


#: Declares a field as an option: its default, then what `Option` takes.
option = _with_default(Option)
#: The metadata of a field without a default, an option that must be given: what `Option` takes.
required = _as_metadata(Option)


@dataclass(frozen=True)
class Rows:
    """The dataclasses that a field chooses among, each with the class attributes `name` and `help`."""

    rows: tuple[type, ...]
    # From the options to the name of the row to take if none is given.
    guess: Callable[[Mapping[str, Any]], str] | None = None

    def named(self, name: str) -> Any:
        """Returns the row of a name.

        Raises:
            OptionError: none has it.
        """
        for row in self.rows:
            if name_of(row) == name:
                return row
        raise OptionError(f"{brief(name)}: expected {' or '.join(map(name_of, self.rows))}")


class Without:
    """Marks a group field some of whose options this command does not take."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)


class Step(Protocol[R_co]):
    """A command's options, ready to run."""

    def run(self, watch: Watcher) -> R_co:
        """Does the work and returns its result."""


@dataclass(frozen=True)
class Declared:
    """One option of a command."""

    name: str
    type: Any  # its annotation without `None`; `Any` if values of many types will do
    default: Any  # `inspect.Parameter.empty` if it must be given
    option: Option
    choice: str | None = None  # the option whose chosen row it belongs to; None if it always counts
    takers: tuple[str, ...] = ()  # the names of the rows that take it
    row_default: Any = None  # what a row takes if it is not given
    chooses: bool = False  # whether it chooses a row

    @property
    def required(self) -> bool:
        """True if it has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values to choose from; empty if any will do."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    def parsed(self, value: Any) -> Any:
        """Returns what a user gives as the option's value: numbers, a path or a list of them as a text where it is one.

        Raises:
            OptionError: any other value for a text, or one that cannot be parsed.
        """
        if self.option.parse is not None:
            return None if value is None else self.option.parse(self.name, value)
        if self.type is not str or value is None or isinstance(value, str):
            return value
        parts = value if isinstance(value, list | tuple) else [value]
        if not all(isinstance(part, str | Path | int | float) and not isinstance(part, bool) for part in parts):
            raise OptionError(f"`{self.name}` {brief(value)}: expected a text")
        return ",".join(map(str, parts))

    def check(self, value: Any) -> None:
        """Raises OptionError for a value that is not one of the choices, not a number, or out of range."""
        if value is None:
            return
        if self.choices and not is_dataclass(value) and value not in self.choices:
            raise OptionError(f"`{self.name}` {brief(value)}: expected {' or '.join(map(str, self.choices))}")
        if self.type in (int, float) or (isinstance(value, int | float) and float in get_args(self.type)):
            self._check_number(value)

    def _check_number(self, value: Any) -> None:
        kind, expected = (int, "a whole number") if self.type is int else (int | float, "a number")
        if not isinstance(value, kind) or isinstance(value, bool) or not -inf < value < inf:
            raise OptionError(f"`{self.name}` {brief(value)}: expected {expected}")
        low, high = self.option.within or (-inf, inf)
        if not low <= value <= high:
            expected = " to ".join(f"{end}" if isinstance(end, int) else f"{end:g}" for end in (low, high))
            raise OptionError(f"`{self.name}` {brief(value)}: expected {expected}")


def name_of(row: Any) -> str:
    """Returns the name that chooses a row."""
    return row.name


def flags_of(option: Declared) -> tuple[str, ...]:
    """Returns the spellings of an option on the command line."""
    return option.option.flags or (f"--{option.name.replace('_', '-')}",)


@dataclass(frozen=True)
class _Entry:
    """A field that is an option, a choice of rows or a group of options."""

    name: str
    type: Any  # the annotation without None and notes
    default: Any  # MISSING if there is none
    option: Option | None  # None for a group
    rows: Rows | None  # the dataclasses to choose among; None for other fields
    without: frozenset[str]  # the options of a group that the command does not take


@cache
def _entries_of(kind: Any) -> tuple[_Entry, ...]:
    hints = get_type_hints(kind, include_extras=True)
    entries = (_entry(field, hints[field.name]) for field in fields(kind) if field.init)
    return tuple(entry for entry in entries if entry.option is not None or is_dataclass(entry.type))


def _entry(field: Field[Any], hint: Any) -> _Entry:
    kind, notes = _without_none(hint)
    option = next((note for note in reversed(notes) if isinstance(note, Option)), field.metadata.get(OPTION))
    rows = next((note for note in notes if isinstance(note, Rows)), None)
    without = next((note.names for note in notes if isinstance(note, Without)), frozenset())
    default = field.default if field.default_factory is MISSING else field.default_factory()
    if option is None and default is MISSING and isinstance(kind, type) and is_dataclass(kind):
        default = kind()
    return _Entry(field.name, kind, default, option=option, rows=rows, without=without)


def _without_none(hint: Any) -> tuple[Any, list[Any]]:
    if get_origin(hint) is Annotated:
        kind, *notes = get_args(hint)
        inner, metadata = _without_none(kind)
        return inner, metadata + notes
    if get_origin(hint) in (Union, UnionType):
        parts = [_without_none(part) for part in get_args(hint) if part is not NoneType]
        notes = [note for _, metadata in parts for note in metadata]
        return (parts[0][0] if len(parts) == 1 else Union[tuple(kind for kind, _ in parts)]), notes  # noqa: UP007
    return hint, []


def _entries(kind: Any, start: Any) -> Iterator[_Entry]:
    """Yields the fields of a dataclass; a value of it gives their defaults."""
    for entry in _entries_of(kind):
        yield entry if start is None else replace(entry, default=getattr(start, entry.name))


def declared(step: Any) -> tuple[Declared, ...]:
    """Returns the options of a command or of its function, in the order of its fields."""
    return tuple(_declared(getattr(step, "step", step), None))


def _declared(kind: Any, start: Any) -> Iterator[Declared]:
    for entry in _entries(kind, start):
        if entry.option is None:
            yield from (option for option in _declared(entry.type, entry.default) if option.name not in entry.without)
        elif entry.rows is not None:
            chosen = entry.default if entry.default in (None, MISSING) else name_of(entry.default)
            names = tuple(map(name_of, entry.rows.rows))
            yield Declared(entry.name, Literal[names], _or_empty(chosen), entry.option, chooses=True)
            yield from _of_rows(entry.name, entry.rows)
        else:
            kind = Literal[entry.option.choices] if entry.option.choices else entry.type
            yield Declared(entry.name, kind, _or_empty(entry.default), entry.option)


def _of_rows(choice: str, rows: Rows) -> Iterator[Declared]:
    """Yields the options of the rows, each once."""
    options: dict[str, Declared] = {}
    takers: dict[str, list[str]] = {}
    for row in rows.rows:
        for option in _declared(row, None):
            options.setdefault(option.name, option)
            takers.setdefault(option.name, []).append(name_of(row))
    for name, option in options.items():
        shown = None if option.required else option.default
        yield replace(option, default=None, choice=choice, takers=tuple(takers[name]), row_default=shown)


def _or_empty(default: Any) -> Any:
    return inspect.Parameter.empty if default is MISSING else default


def make(step: type[T], values: Mapping[str, Any]) -> T:
    """Returns a command's options from flat names; a command may complete them, as `build` does from a file.

    Raises:
        OptionError: an option that must be given is missing, a value is out of range or not one of the choices, or
            an option has no effect with the chosen row.
    """
    values = getattr(step, "completed", dict)(values)
    for option in declared(step):
        if option.name in values:
            values[option.name] = option.parsed(values[option.name])
            option.check(values[option.name])
        elif option.required:
            raise OptionError(f"`{option.name}` is missing: give it")
    return _made(step, None, values)


def _made(kind: Any, start: Any, options: Mapping[str, Any]) -> Any:
    values = {}
    for entry in _entries(kind, start):
        if entry.option is None:
            options_of_group = {name: value for name, value in options.items() if name not in entry.without}
            values[entry.name] = _made(entry.type, entry.default, options_of_group)
        elif entry.rows is not None:
            values[entry.name] = _chosen(entry, entry.rows, options)
        elif entry.name in options:
            values[entry.name] = options[entry.name]
    return kind(**values) if start is None else replace(start, **values)


def _chosen(entry: _Entry, rows: Rows, options: Mapping[str, Any]) -> Any:
    """Returns the chosen row with its options."""
    default = None if entry.default is MISSING else entry.default
    chosen = options.get(entry.name)
    if chosen is None and rows.guess is not None:
        chosen = rows.guess(options)
    if chosen is None or (isinstance(chosen, str) and default is not None and chosen == name_of(default)):
        start = default
    else:
        start = chosen if is_dataclass(chosen) and not isinstance(chosen, type) else None
    row: Any = type(start) if start is not None else None if chosen is None else rows.named(chosen)
    taken = {option.name for option in _declared(row, None)} if row is not None else set()
    for option in _of_rows(entry.name, rows):
        if options.get(option.name) is not None and option.name not in taken:
            now = f"without `{entry.name}`" if row is None else f"with `{entry.name}` {name_of(row)}"
            advice = f"leave it out, or choose {' or '.join(option.takers)}"
            raise OptionError(f"`{option.name}` has no effect {now}: {advice}")
    if row is None:
        return None
    values = {name: options[name] for name in taken if options.get(name) is not None}
    for inner in _entries(row, start):
        if inner.default is MISSING and inner.name not in values:
            raise OptionError(f"`{entry.name}` {name_of(row)} needs `{inner.name}`: give it")
    return _made(row, start, values)


def flat(value: Any) -> dict[str, Any]:
    """Returns a command's options by flat name; `make` turns them back into the same value."""
    options: dict[str, Any] = {}
    for entry in _entries(type(value), value):
        inner = entry.default
        if entry.option is None:
            options |= {name: option for name, option in flat(inner).items() if name not in entry.without}
        elif entry.rows is not None:
            options |= {entry.name: None} if inner is None else {entry.name: name_of(inner), **flat(inner)}
        else:
            options[entry.name] = inner
    return options


def with_options(value: T, changes: Mapping[str, Any]) -> T:
    """Returns a command's options with others by flat name."""
    return make(type(value), {**flat(value), **changes})


def remembered(value: Any, **changes: Any) -> dict[str, Any]:
    """Returns, as plain JSON, the options that a result depends on: for provenance and to compare on `--resume`.

    Options that are None are left out, and so is a row that is the default.

    Args:
        changes: values that replace an option's own, such as a budget in heads for one in percent.
    """
    values, kept = flat(value) | changes, {}
    for option in declared(type(value)):
        inner = values.get(option.name)
        if not option.option.remembered or inner is None or (option.chooses and inner == option.default):
            continue
        kept[option.name] = option.option.plain(inner) if option.option.plain else _plain_json(inner)
    return kept


def _plain_json(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain_json(inner) for name, inner in value.items()}
    return [_plain_json(inner) for inner in value] if isinstance(value, list | tuple) else value


def run_step(step: Step[R_co], watch: Watcher = LOG) -> R_co:
    """Runs a command; a missing package of an extra is named with its extra, a bad sample with the option for it.

    Raises:
        OutputError: see `refuse_read`, and whatever the command raises.
    """
    refuse_read(declared(type(step)), flat(step))
    try:
        with naming_extras():
            return step.run(watch)
    except UnreadableError as error:
        if any(option.name == "skip_bad" for option in declared(type(step))):
            error.args = (f"{error}, or pass `skip_bad`, which leaves such samples out",)
        raise


def refuse_read(options: Sequence[Declared], values: Mapping[str, Any]) -> None:
    """Raises OutputError if a file to write is one that the command reads, whether it may be replaced or not."""
    places = [values.get(option.name) for option in options if option.option.heading == "Output"]
    named = [
        option for option in options if option.option.heading != "Output" and READ.search(option.option.metavar or "")
    ]
    for path in (Path(place) for place in places if isinstance(place, str | Path) and Path(place).is_file()):
        for value in (values.get(option.name) for option in named):
            if any(is_read(path, source) for source in (value if isinstance(value, list | tuple) else [value])):
                raise OutputError(f"{path}: is an input of this command: name another output")


def is_read(path: Path, source: object) -> bool:
    """Returns whether an existing file is an input, a part of its spelling, or the weights in a folder that is one."""
    if not isinstance(source, str | Path):
        return False
    places = [place for place in {str(source), *re.split("[=+%?:,]", str(source))} if os.path.exists(place)]
    weights = path.match("*model*.safetensors")
    return any(os.path.samefile(place, path.parent if weights and os.path.isdir(place) else path) for place in places)


def function(step: type[Step[R_co]]) -> Callable[..., R_co]:
    """Returns a command as a function that takes its options flat, with its docstring and signature."""
    options = declared(step)
    signature = inspect.Signature([*sorted(map(_parameter, options), key=_position), WATCH])

    def call(*args: Any, **kwargs: Any) -> R_co:
        values = dict(signature.bind(*args, **kwargs).arguments)
        watch = values.pop("watch", LOG)
        return run_step(make(step, values), watch)

    call.__name__ = call.__qualname__ = re.sub(r"(?<!^)(?=[A-Z])", "_", step.__name__).lower()
    call.__module__ = step.__module__
    call.__doc__ = _documented(step.__doc__ or "", options)
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.step = step  # type: ignore[attr-defined]
    return call


WATCH = inspect.Parameter("watch", inspect.Parameter.KEYWORD_ONLY, default=LOG)


def _parameter(option: Declared) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if option.option.positional else inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(option.name, kind, default=option.default, annotation=option.type)


def _position(parameter: inspect.Parameter) -> tuple[int, bool]:
    return int(parameter.kind), parameter.kind is not inspect.Parameter.KEYWORD_ONLY and (
        parameter.default is not inspect.Parameter.empty
    )


def _documented(text: str, options: tuple[Declared, ...]) -> str:
    lines = [f"    {option.name}: {option.option.help}" for option in options]
    return "\n".join([inspect.cleandoc(text), "", "Options:", *lines])


def brief(value: Any) -> str:
    """Returns a value for one line of a message, shortened."""
    if isinstance(value, int) and value.bit_length() > 256:
        return "(beyond reason)"
    return shortened(str(value), 40)
