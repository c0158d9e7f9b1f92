"""The command `guide`: the pages of the manual, for a terminal, a pipe and a notebook."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from hydractl.errors import OptionError
from hydractl.inputs.result import Result
from hydractl.options import function, option
from hydractl.text import continued
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import Markdown

#: The pages, in the order in which they are best read.
Topic = Literal[
    "which-command", "start", "commands", "python", "service", "check", "monitor", "data", "models", "search",
    "select-and-build", "fine-tuning", "evaluation", "systems", "speed", "results", "file-format", "extending",
]  # fmt: skip
TOPICS: tuple[Topic, ...] = get_args(Topic)
REFERENCE: Topic = "commands"  # whose parts are as long as a page: a search leaves it out

#: A line of a page that becomes a table of rows; Markdown readers do not show it.
#: `<!-- table: hydractl.ood.ood_scores.OOD_SCORES: score = name, what it is = help -->`
TABLE = re.compile(r"^<!-- table: (?P<place>[\w.]+): (?P<columns>.+) -->$", re.MULTILINE)
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<topic>[a-z-]+)\.md(?:#[\w-]+)?\)")
COMMANDS = re.compile(r"^```bash\n.*?^```$", re.MULTILINE | re.DOTALL)
#: A block of code, or lines up to a blank one.
PARAGRAPH = re.compile(r"^```(?s:.*?)^```$|(?:^(?!```).+\n?)+", re.MULTILINE)
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
            width = min(console.width, WIDEST)
            console.print(_formatted(self.markdown, width), width=width)
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

    Words that are no page are searched for: hydractl guide calibrate temperature prints the paragraphs that hold all
    of them. A terminal shows pages formatted, a pipe gets their Markdown.

    >>> hydractl.guide("file-format").markdown.splitlines()[0]
    '# The file format'

    Raises:
        OptionError: the page does not exist.
    """

    topic: str | Sequence[str] = option(
        (), "The page to show, or words to search for. Default: list the pages.", "Model", "TOPIC|WORDS",
        positional=True, repeated=True,
    )  # fmt: skip

    def run(self, watch: Watcher) -> Manual:
        words = self.topic.split() if isinstance(self.topic, str) else list(self.topic)
        topic = next((topic for topic in TOPICS if [topic] == words), None)
        return Manual(topic, page(topic) if topic else _found(words) if words else _contents())


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


def _found(words: Sequence[str]) -> str:
    """Returns the paragraphs that hold all words, below the headings of their pages.

    Raises:
        OptionError: there are none.
    """
    matches = []
    for topic in (topic for topic in TOPICS if topic != REFERENCE):
        paragraphs = map(str.strip, PARAGRAPH.findall(page(topic)))
        holding = [paragraph for paragraph in paragraphs if all(word.lower() in paragraph.lower() for word in words)]
        if holding:
            matches.append("\n\n".join([f"# hydractl guide {topic}", *holding]))
    if not matches:
        close = get_close_matches(words[0], TOPICS, 1) if len(words) == 1 else []
        remedy = f"did you mean {close[0]}?" if close else "give fewer words, or leave them out for a list of pages"
        raise OptionError(f"`topic` {' '.join(words)}: is not a page, and no paragraph contains it: {remedy}")
    return "\n\n".join(matches)


def filled(markdown: str) -> str:
    """Returns a page with a table in place of each line that names a tuple of rows."""
    return TABLE.sub(lambda match: _table(match["place"], match["columns"]), markdown)


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


def _formatted(markdown: str, width: int) -> Markdown:
    """Returns a page for a terminal of this width; a link becomes the command that shows its page."""
    from rich.markdown import Markdown, TableElement
    from rich.table import Table

    class Folded(TableElement):
        """Wraps a word that is wider than its column, where rich would cut it."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for part in super().__rich_console__(console, options):
                if isinstance(part, Table):
                    for column in part.columns:
                        column.overflow = "fold"
                yield part

    class Page(Markdown):
        elements: ClassVar = {**Markdown.elements, "table_open": Folded}

    def wrapped(block: re.Match[str]) -> str:
        # A long command goes on after a backslash, so that it can be copied.
        lines = block[0].split("\n")
        return "\n".join(
            each for line in lines for each in (continued(line, width - 2) if len(line) > width - 2 else [line])
        )

    linked = LINK.sub(lambda match: f"{match['text']} (`hydractl guide {match['topic']}`)", markdown)
    return Page(COMMANDS.sub(wrapped, linked), hyperlinks=False)
