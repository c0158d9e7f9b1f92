"""The pages of the manual: Markdown files beside the code, whose tables of choices are made from the choices."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from hydractl.optional import require
from hydractl.text import continued

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import Markdown

#: A line that becomes a table of rows; whoever reads the file itself does not see it.
#: `<!-- table: hydractl.metrics.ood_scores.OOD_SCORES: score = name, what it is = help -->`
TABLE = re.compile(r"^<!-- table: (?P<place>[\w.]+): (?P<columns>.+) -->$", re.MULTILINE)
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<topic>[a-z-]+)\.md(?:#[\w-]+)?\)")
COMMANDS = re.compile(r"^```bash\n.*?^```$", re.MULTILINE | re.DOTALL)
WIDEST = 100  # columns of a terminal; longer lines of prose are hard to read


def page(topic: str) -> str:
    """A page of the manual as Markdown."""
    return filled((files("hydractl") / "guide" / f"{topic}.md").read_text(encoding="utf-8"))


def title(topic: str) -> str:
    """What a page is about: its first heading."""
    return page(topic).partition("\n")[0].removeprefix("# ")


def filled(markdown: str) -> str:
    """A page whose tables of choices are made."""
    return TABLE.sub(lambda found: _table(found["place"], found["columns"]), markdown)


def _table(place: str, columns: str) -> str:
    """The rows of a tuple as a Markdown table.

    Args:
        place: module and name of the tuple.
        columns: `heading = attribute` of each column, with commas between.
    """
    module, _, name = place.rpartition(".")
    headings, attributes = zip(*(column.split(" = ") for column in columns.split(", ")), strict=True)
    rows = [[_cell(getattr(row, name), name) for name in attributes] for row in getattr(import_module(module), name)]
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object, attribute: str) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"`{text}`" if attribute == "name" else text.replace("|", "\\|")


def set_out(markdown: str, width: int = WIDEST) -> Markdown:
    """A page as a terminal shows it: headings, tables and code set out, links as the command that shows their page.

    Args:
        width: of the terminal; a command that is longer goes on after a backslash, so that it can be copied.
    """
    from rich.markdown import Markdown, TableElement
    from rich.table import Table

    class Whole(TableElement):
        """A table in which a word that is wider than its column goes on in the next line, and is not cut."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for part in super().__rich_console__(console, options):
                if isinstance(part, Table):
                    for column in part.columns:
                        column.overflow = "fold"
                yield part

    class Page(Markdown):
        elements: ClassVar = {**Markdown.elements, "table_open": Whole}

    named = LINK.sub(lambda found: f"{found['text']} (`hydractl guide {found['topic']}`)", markdown)
    copied = COMMANDS.sub(lambda found: _continued(found[0], width - 2), named)
    return Page(copied, hyperlinks=False)


def _continued(block: str, width: int) -> str:
    """A block of commands in which no line is wider than that."""
    lines = block.split("\n")
    return "\n".join(each for line in lines for each in (continued(line, width) if len(line) > width else [line]))


def write_site(topics: tuple[str, ...], folder: Path) -> None:
    """Writes all pages into a folder as HTML with search, which needs no network and no server.

    Raises:
        OptionError: Sphinx, MyST or Furo is not installed.
    """
    from tempfile import TemporaryDirectory

    require("furo", "myst_parser", "sphinx")
    from sphinx.application import Sphinx

    with TemporaryDirectory() as work:
        source = Path(work) / "source"
        source.mkdir()
        for topic in topics:
            (source / f"{_file(topic)}.md").write_text(TARGET.sub(_target, page(topic)), encoding="utf-8")
        (source / STYLE).write_text(RULES, encoding="utf-8")
        listed = "\n".join(map(_file, topics))
        (source / "index.md").write_text(f"# hydractl\n\n```{{toctree}}\n{listed}\n```\n", encoding="utf-8")
        site = Sphinx(source, None, folder, Path(work) / "doctrees", "html", SITE, status=None, warning=None)
        site.build()


def _file(topic: str) -> str:
    """What a page is called in the site: Sphinx keeps the name `search` for its own, and would write it over ours."""
    return "head-search" if topic == "search" else topic


def _target(found: re.Match[str]) -> str:
    return f"]({_file(found['topic'])}.md"


TARGET = re.compile(r"\]\((?P<topic>[a-z-]+)\.md")
STYLE = "hydractl.css"
#: Wide tables: flags stay whole, numbers are small, and a wide screen shows them without scrolling.
RULES = """\
td code { white-space: nowrap; }
table.docutils { font-size: 0.85em; }
@media (min-width: 100em) { .content { width: 64em; } }
"""
#: Sphinx's settings.
SITE = {
    "project": "hydractl",
    "html_title": "hydractl",
    "extensions": ["myst_parser"],
    "myst_heading_anchors": 3,
    "html_theme": "furo",
    "html_static_path": [STYLE],
    "html_css_files": [STYLE],
    "html_copy_source": False,
    "html_use_index": False,
    "html_show_sphinx": False,
    "html_show_copyright": False,
    # Pages opened from disk may not fetch each other, which summaries of what was found would have to.
    "html_show_search_summary": False,
}
