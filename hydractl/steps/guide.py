"""Reading the manual."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from hydractl.errors import OptionError
from hydractl.steps.inputs import Force
from hydractl.steps.options import Option, step
from hydractl.steps.result import Result

if TYPE_CHECKING:
    from rich.console import Console

#: The pages, in the order in which they are best read.
Topic = Literal[
    "start",
    "python",
    "data",
    "models",
    "search",
    "select-and-build",
    "fine-tuning",
    "evaluation",
    "systems",
    "analyses",
    "speed",
    "results",
    "file-format",
    "extending",
]
TOPICS: tuple[Topic, ...] = get_args(Topic)


@dataclass(frozen=True, eq=False, repr=False)
class Manual(Result):
    """A page of the manual as Markdown, or the list of pages where `topic` is None; `site` is what was written."""

    topic: Topic | None
    markdown: str
    site: Path | None = None

    def to_json(self) -> dict[str, Any]:
        site = None if self.site is None else str(self.site)
        return {"topic": self.topic, "markdown": self.markdown, "site": site}

    def lines(self) -> Iterator[str]:
        yield from self.markdown.splitlines() if self.site is None else [str(self.site)]

    def draw(self, console: Console) -> None:
        """A page set out for reading on a terminal, and as it was written in a pipe."""
        from hydractl.steps.manual import WIDEST, set_out

        if console.is_terminal and self.site is None:
            width = min(console.width, WIDEST)
            console.print(set_out(self.markdown, width), width=width)
        else:
            for line in self.lines():
                console.out(line, highlight=False)

    def facts(self) -> Mapping[str, object]:
        return {"topic": self.topic} | ({"site": self.site} if self.site else {})

    def __repr__(self) -> str:
        return self.markdown

    def _repr_html_(self) -> str:
        from markdown_it import MarkdownIt

        return MarkdownIt().enable("table").render(self.markdown)


@step
def guide(
    topic: Annotated[
        Topic | None,
        Option(
            "The page to show; without it, what pages there are.", heading="Model", metavar="TOPIC", positional=True
        ),
    ] = None,
    *,
    html: Annotated[
        str | Path | None,
        Option("Write all pages as a small site with search that works offline.", heading="Output", metavar="FOLDER"),
    ] = None,
    force: Force = False,
) -> Manual:
    """Read the manual.

    Example: hydractl guide file-format

    On a terminal a page is set out for reading; in a pipe it is the Markdown it was written in. The site of `html` is
    a folder of plain files: open its index.html. It takes hydractl[docs].

    >>> hydractl.guide("file-format").markdown.splitlines()[0]
    '# The file format'

    Raises:
        OptionError: no such page, or a page and `html`.
        OutputError: the folder exists and `force` is not set, or holds what hydractl did not write.
    """
    from hydractl.steps.manual import page, title

    if html is None:
        pages = "\n".join(f"- `hydractl guide {name}`: {title(name)}" for name in TOPICS)
        return Manual(topic, page(topic) if topic else f"# The manual of hydractl\n\n{pages}")
    if topic is not None:
        raise OptionError(f"`topic` {topic}: `html` writes all pages: leave one of the two out")
    folder = Path(html)
    _write_site(folder, force)
    return Manual(None, "", folder)


def _write_site(folder: Path, force: bool) -> None:
    from hydractl.checkpoint.folders import write_folder
    from hydractl.steps.manual import write_site

    with write_folder(folder, "guide", force) as temporary:
        write_site(TOPICS, temporary)
