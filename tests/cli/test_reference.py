"""The guide's page of commands is what `--help` prints: `python -m tests.cli.test_reference` writes it again."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hydractl.cli.app import COMMANDS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "hydractl" / "guide" / "commands.md"
HEAD = """# Commands

The help of every command, as `hydractl COMMAND --help-all` prints it; `--help` leaves rare options and notes out.
`hydractl --help` lists them by purpose.
"""


def help_of(name: str) -> str:
    """The help of a command on a terminal of 80 columns."""
    command = [sys.executable, "-m", "hydractl", *name.split(), "--help-all"]
    environment = os.environ | {"COLUMNS": "80", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def page() -> str:
    """The whole page."""
    names = [command.name for command in COMMANDS]
    with ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(help_of, names))
    parts = (f"## {name}\n\n```text\n{text.rstrip()}\n```\n" for name, text in zip(names, texts, strict=True))
    return "\n".join([HEAD, *parts])


def test_the_page_of_commands_is_their_help() -> None:
    assert PAGE.read_text() == page(), "write it again: python -m tests.cli.test_reference"


def test_every_page_links_to_it() -> None:
    pages = [path for path in PAGE.parent.glob("*.md") if path != PAGE]
    assert pages
    assert [path.name for path in pages if "(commands.md)" not in path.read_text()] == []


if __name__ == "__main__":
    PAGE.write_text(page())
