"""What a result depends on: a run goes on, and what it left is taken for done, under the same conditions alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hydractl.schema import shortened


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """What differs first between two runs, as `another seed (0, now 1)`; None where nothing does.

    Args:
        found: the conditions of the earlier run as its file holds them, plain JSON from outside.
        wanted: those of this run; what either does not name is null there.
    """
    return _difference(found, json.loads(json.dumps(wanted)), "")


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any], within: str) -> str | None:
    for name in {**wanted, **found}:
        old, new = found.get(name), wanted.get(name)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            return _difference(old, new, f"{within}{name} ")
        return f"another {within}{shortened(str(name), 40)} ({_short(old)}, now {_short(new)})"
    return None


def _short(value: object) -> str:
    return shortened(value if isinstance(value, str) else json.dumps(value), 24)
