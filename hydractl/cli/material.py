"""How `evaluate` and `calibrate` say what data to read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class DataOptions:
    """The options that say how data are read."""

    limit: int | None
    classes: Path | None
    template: str
    image_column: str | None
    text_column: str | None
    label_column: str | None
    match_labels: Literal["name", "index"]
