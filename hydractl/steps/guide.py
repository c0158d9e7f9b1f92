"""The command `guide`: the pages of the manual, for a terminal, a pipe and a notebook."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from hydractl.options import Option, function
from hydractl.steps.result import Result
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import Markdown

#: The pages, in the order in which they are best read.
Topic = Literal[
    "start", "which-command", "python", "service", "data", "models", "search", "select-and-build", "fine-tuning",
    "evaluation", "systems", "analyses", "speed", "results", "file-format", "extending", "architecture",
]  # fmt: skip
TOPICS: tuple[Topic, ...] = get_args(Topic)

#: A line of a page that becomes a table of rows; Markdown readers do not show it.
#: `<!-- table: hydractl.metrics.ood_scores.OOD_SCORES: score = name, what it is = help -->`
TABLE = re.compile(r"^<!-- table: (?P<place>[\w.]+): (?P<columns>.+) -->$", re.MULTILINE)
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<topic>[a-z-]+)\.md(?:#[\w-]+)?\)")
WIDEST = 100  # columns of a terminal; longer lines of prose are hard to read


@dataclass(frozen=True, eq=False, repr=False)
class Manual(Result):
    """A page of the manual as Markdown, or the list of pages where `topic` is None."""

    topic: Topic | None
    markdown: str

    def to_json(self) -> dict[str, Any]:
        return {"topic": self.topic, "markdown": self.markdown}

    def lines(self) -> Iterator[str]:
        yield from self.markdown.splitlines()

    def draw(self, console: Console) -> None:
        """Prints a page: formatted on a terminal, as Markdown in a pipe."""
        if console.is_terminal:
            console.print(_formatted(self.markdown), width=min(console.width, WIDEST))
        else:
            for line in self.lines():
                console.out(line, highlight=False)

    def __repr__(self) -> str:
        return self.markdown

    def _repr_html_(self) -> str:
        from markdown_it import MarkdownIt

        return MarkdownIt().enable("table").render(self.markdown)


@dataclass(frozen=True)
class Guide:
    """Read the manual.

    Example: hydractl guide file-format

    A terminal shows the page formatted, a pipe gets its Markdown.

    >>> hydractl.guide("file-format").markdown.splitlines()[0]
    '# The file format'

    Raises:
        OptionError: the page does not exist.
    """

    topic: Annotated[
        Topic | None, Option("The page to show. Default: list the pages.", "Model", metavar="TOPIC", positional=True)
    ] = None

    def run(self, watch: Watcher) -> Manual:
        return Manual(self.topic, page(self.topic) if self.topic else _contents())


guide = function(Guide)


def page(topic: str) -> str:
    """Returns a page of the manual as Markdown."""
    return filled((files("hydractl") / "guide" / f"{topic}.md").read_text(encoding="utf-8"))


def title(topic: str) -> str:
    """Returns the first heading of a page."""
    return page(topic).partition("\n")[0].removeprefix("# ")


def _contents() -> str:
    pages = "\n".join(f"- `hydractl guide {topic}`: {title(topic)}" for topic in TOPICS)
    return f"# The manual of hydractl\n\n{pages}"


def filled(markdown: str) -> str:
    """Returns a page with a table in place of each line that names a tuple of rows."""
    return TABLE.sub(lambda found: _table(found["place"], found["columns"]), markdown)


def _table(place: str, columns: str) -> str:
    """Returns the rows of a tuple as a Markdown table.

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


def _formatted(markdown: str) -> Markdown:
    """Returns a page for a terminal; a link becomes the command that shows its page."""
    from rich.markdown import Markdown, TableElement
    from rich.table import Table

    class Folded(TableElement):
        """Wraps a word that is wider than its column, where rich would cut it."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for part in super().__rich_console__(console, options):
                for column in part.columns if isinstance(part, Table) else ():
                    column.overflow = "fold"
                yield part

    class Page(Markdown):
        elements: ClassVar = {**Markdown.elements, "table_open": Folded}

    named = LINK.sub(lambda found: f"{found['text']} (`hydractl guide {found['topic']}`)", markdown)
    return Page(named, hyperlinks=False)
