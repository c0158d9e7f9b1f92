"""Every small damage to a JSON file, and what a reader owes its user for each."""

import copy
import json
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import islice
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

from hydractl.errors import HydractlError
from tests.hostile import within_limits

OTHERS: list[Any] = [
    None, True, 0, -1, 10**30, 0.5, 1e308, "", "\x1b[2J\n", "y" * 10_000, [], [[[]]], ["x", "x"], {}, {"\n\x1b": {}},
]  # fmt: skip
#: What JSON's grammar has no place for, or what is beyond reason.
RAW = [
    *("NaN", "-Infinity", "1e999", "9" * 5000, "\x00", '{"a": 1, "a": 2}'),
    *("[" * 100_000, '{"a":' * 300 + "1" + "}" * 300),
]
MARK = "@damage@"


def edit_json(path: Path, **changes: Any) -> None:
    """Writes an object in a file again with some of its entries changed."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def damages(content: dict[str, Any]) -> Iterator[str]:
    """The content with each of its entries in turn removed, of another type, out of every range, or no JSON at all."""
    for path in _paths(content):
        yield json.dumps(_changed(content, path, lambda holder, key: holder.__delitem__(key)))
        for value in OTHERS:
            yield json.dumps(_changed(content, path, lambda holder, key, v=value: holder.__setitem__(key, v)))
    text = json.dumps(content)
    deep = json.dumps(_changed(content, list(_paths(content))[-1], lambda holder, key: holder.__setitem__(key, MARK)))
    yield from (deep.replace(f'"{MARK}"', raw) for raw in RAW)
    for key, value in content.items():
        yield f"{text[:-1]}, {json.dumps(key)}: {json.dumps(value)}}}"
    yield from (json.dumps(value) for value in OTHERS)
    yield from RAW
    yield text[:-1]
    yield text + "x"
    yield json.dumps({**content, "no such key": 1})


def _paths(value: Any, start: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    # The other items of a list are of the same kind.
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, inner in islice(items, 40):
        yield (*start, key)
        yield from _paths(inner, (*start, key))


def _changed(content: dict[str, Any], path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> dict[str, Any]:
    result = copy.deepcopy(content)
    change(reduce(getitem, path[:-1], result), path[-1])
    return result


def refused(read: Callable[[str], object], name: str, error: type[HydractlError], text: str) -> bool:
    """Whether `read` refuses a text, which it may only do by one line that names the file, and within the limits."""
    with within_limits():
        try:
            read(text)
        except error as problem:
            message = str(problem)
            assert name in message, message
            assert message.isprintable(), repr(message)
            assert len(message) <= 300 + len(name), message
            return True
        except Exception as problem:
            pytest.fail(f"{type(problem).__name__}: {str(problem)[:200]} on {text[:300]}", pytrace=False)
    return False


def refuse_all(
    read: Callable[[str], object], name: str, error: type[HydractlError], content: dict[str, Any], every: int = 1
) -> float:
    """The share of damages that are refused; those that are not leave the content valid.

    Args:
        every: tries one damage of so many.
    """
    read(json.dumps(content))
    outcomes = [refused(read, name, error, text) for text in islice(damages(content), 0, None, every)]
    return sum(outcomes) / len(outcomes)
