"""Parts of every analysis: its command line, and the printing, keeping and drawing of its numbers."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from hydractl.drawing import write_picture


class Analysis(NamedTuple):
    """Lines to read, plain JSON, and a picture, which is drawn when it is asked for."""

    text: Sequence[str]
    content: dict[str, Any]
    figure: Callable[[], Figure]

    def lines(self) -> Sequence[str]:
        return self.text

    def to_json(self) -> dict[str, Any]:
        return self.content

    def draw(self, path: str | Path) -> None:
        write_picture(self.figure(), Path(path), force=True)


def arguments(about: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the options of every analysis."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the numbers")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw them")
    return parser


def show(analysis: Analysis, options: argparse.Namespace) -> None:
    """Prints an analysis, and writes the files that are named."""
    print("\n".join(analysis.lines()))
    if options.json:
        options.json.write_text(json.dumps(analysis.to_json(), indent=1), encoding="utf-8")
    if options.plot:
        analysis.draw(options.plot)
