"""The options of a build, as a readable file, and as the record that a begun build is compared with."""

from __future__ import annotations

import json
from os.path import lexists
from pathlib import Path
from typing import Any, TypeVar

import tomli_w

from hydractl.data.sources import parse_data_spec, path_seen_from
from hydractl.errors import OptionError, OutputError
from hydractl.options import declared, flat, make, with_options
from hydractl.pipeline.build_options import BuildOptions
from hydractl.schema import Origin, parse_toml, read_json, read_text
from hydractl.text import printable, shortened

B = TypeVar("B", bound=BuildOptions)
BUILD_TOML = "build.toml"
BEGUN = "work/begun.json"
#: Options that do not change the result; a config has no use for them.
OWN = ("output", "dry_run")
#: Options that name a file, and those that name a source: their paths are seen from the file.
FILES = ("model", "teacher", "recipe", "classes")
PLACES = (*FILES, "id_data", "ood_data", "train_data", "eval_data", "eval_ood_data")
#: What the effort of a build decides where the user does not.
PLANNED = ("search", "search_samples", "draws", "random", "limit", "train_samples", "settings")
REMEDY = "correct it: its names are those of the options, with _ for -"


def is_build_file(model: object) -> bool:
    """Returns whether the model of a build is the file of another build's options."""
    return isinstance(model, str | Path) and str(model).endswith(".toml")


def _options_of(build: BuildOptions, folder: Path) -> dict[str, Any]:
    """Returns the options that are not the default, by name; paths are seen from a folder."""
    values = flat(build)
    changed = {}
    for option in declared(type(build)):
        value = values.get(option.name)
        if option.name in OWN or value is None or value == option.default or value == ():
            continue
        plain = option.option.plain(value) if option.option.plain else value
        several = [str(item) for item in plain] if isinstance(plain, list | tuple) else None
        plain = several if several is not None else str(plain) if isinstance(plain, Path) else plain
        if option.name in PLACES:
            plain = _placed(option.name, plain, "", str(folder))
        changed[option.name] = plain
    return changed


def _placed(name: str, value: Any, here: str, there: str) -> Any:
    """Returns the paths of an option as seen from another folder.

    Args:
        here: the folder that they are seen from.
        there: the folder that the result's are seen from.
    """
    if isinstance(value, list):
        return [_placed(name, place, here, there) for place in value]
    if name in FILES:
        return path_seen_from(str(value), there, here)
    return str(parse_data_spec(str(value), True, here).seen_from(there))


def written(build: BuildOptions, folder: Path) -> bytes:
    """Returns a readable file of the options of a build; `hydractl build` reads it."""
    head = "# Written by hydractl build. To repeat or change it: hydractl build build.toml -o FOLDER\n"
    lines = tomli_w.dumps(_options_of(build, folder)).splitlines()
    return (head + "".join(f"{printable(line)}\n" for line in lines)).encode()


def read_build_file(build: B) -> B:
    """Returns the build that a file describes, with what was given beside the file in place of its own.

    Raises:
        OptionError: not such a file, or an option that is unknown or out of range.
    """
    file = Path(str(build.model))
    origin = Origin(str(file), OptionError, REMEDY)
    if not lexists(file):
        raise origin.refusal("there is no such file", "name a build.toml, or the network to build from")
    values: dict[str, Any] = parse_toml(read_text(file, origin), origin).fields
    options = {option.name: option for option in declared(type(build))}
    if unknown := [name for name in values if name not in options or name in OWN]:
        raise origin.refusal(f"{shortened(unknown[0], 40)} is no option of a build", REMEDY)
    for name in PLACES:
        if name in values:
            values[name] = _placed(name, values[name], str(file.parent), ".")
    by_user = {name: value for name, value in flat(build).items() if name != "model" and value not in (None, [], ())}
    by_user = {name: value for name, value in by_user.items() if value != options[name].default}
    return make(type(build), {"output": str(file.parent), **values, **by_user})


def begun(build: B, folder: Path) -> B | None:
    """Returns the build that began in a folder, with the plan it began with; None if none did.

    Raises:
        OutputError: it began with other options, or its record is damaged.
    """
    record = folder / BEGUN
    if not lexists(record):
        return None
    origin = Origin(str(record), OutputError, "name another folder")
    fields = read_json(record, origin).fields
    old, planned = fields.get("options"), fields.get("plan")
    if not isinstance(old, dict) or not isinstance(planned, dict) or not planned.keys() <= set(PLANNED):
        raise origin.refusal("is no record of a build")
    new = _options_of(build, folder)
    for name in sorted(old.keys() | new.keys()):
        # The file in the folder holds what the effort decided as well.
        if new.get(name) not in (old.get(name), planned.get(name, old.get(name))):
            was, now = (shortened(str(one.get(name, "not given")), 60) for one in (old, new))
            raise OutputError(
                f"{folder}: began with `{name}` {was}, now it is {now}: name another folder as `output`, or give what "
                "it began with"
            )
    return with_options(build, planned)


def record(build: BuildOptions, planned: BuildOptions, folder: Path) -> bytes:
    """Returns the record of a build that begins."""
    values = flat(planned)
    content = {"options": _options_of(build, folder), "plan": {name: values[name] for name in PLANNED}}
    return f"{json.dumps(content, indent=2)}\n".encode()
