"""What a result depends on: a run goes on, and what it left is taken for done, under the same conditions alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeGuard

from hydractl.text import shortened


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """What differs first between two runs, as `another seed (0, now 1)`; None where nothing does.

    Args:
        found: the conditions of the earlier run as its file holds them, plain JSON from outside.
        wanted: those of this run; what either does not name is null there.
    """
    return _difference(found, json.loads(json.dumps(wanted)), "")


def _difference(found: Mapping[Any, Any], wanted: Mapping[Any, Any], within: str) -> str | None:
    for name in {**wanted, **found}:
        old, new = found.get(name), wanted.get(name)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            return _difference(old, new, f"{within}{name} ")
        if _are_objects(old) and _are_objects(new) and len(old) == len(new):
            return _difference(dict(enumerate(old)), dict(enumerate(new)), f"{within}{name} ")
        return f"another {within}{shortened(str(name), 40)} ({_short(old)}, now {_short(new)})"
    return None


def _are_objects(value: object) -> TypeGuard[list[Mapping[str, Any]]]:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)


def _short(value: object) -> str:
    return shortened(value if isinstance(value, str) else json.dumps(value), 24)
