import re
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.console import Console

import hydractl as library
from hydractl.steps.guide import REFERENCE, TOPICS, Manual, filled, page, title
from tests.cli.conftest import Command

BLOCK = re.DOTALL | re.MULTILINE
ROOT = Path(__file__).parents[2]
PROGRAMS = [ROOT / "examples" / "service" / "service.py"]


class Row(NamedTuple):
    name: str
    help: str
    sizes: tuple[int, ...] = ()


ROWS = (Row("one", "first | only", (1, 2)), Row("two", "second"))


def test_without_a_topic_the_pages_are_listed() -> None:
    assert {f"{topic}.md" for topic in TOPICS} == {file.name for file in (files("hydractl") / "guide").iterdir()}
    listed = library.guide().markdown
    assert [f"- `hydractl guide {topic}`: {title(topic)}" for topic in TOPICS] == listed.splitlines()[2:]


WRITTEN = [topic for topic in TOPICS if topic != REFERENCE]
RECORD = sorted((ROOT / "examples" / "results").glob("*.md"))
PAGES = [*(page for folder in (".", ".github", "hydractl/guide") for page in (ROOT / folder).glob("*.md")), *RECORD]
DIALECT = r"\bof which\b|\b(?:is|are) none\b|\bNothing, if\b|^Of \w+,|\bas (?:they are|it is)\b|\b(?:told|said)\b"


def prose(markdown: str) -> str:
    """A page without its code and tables."""
    return re.sub(r"^```.*?^```$|^ *\|.*?$|^    .*?$", "", markdown, flags=BLOCK)


def anchors(markdown: str) -> set[str]:
    """What a link to a part of a page may name."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", markdown, flags=BLOCK), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("topic", WRITTEN)
def test_a_page_begins_with_what_its_reader_can_do_then_and_keeps_to_plain_english(topic: str) -> None:
    text = prose(page(topic))
    assert text.split("\n\n")[1].startswith(("After this page you can ", "After this page you know "))
    assert not re.findall(DIALECT, text, re.MULTILINE)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_links_lead_to_files_and_parts_of_pages(path: Path) -> None:
    for target, part in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", path.read_text(encoding="utf-8")):
        file = path.parent / target if target else path
        assert file.exists(), target
        assert not part or part in anchors(file.read_text(encoding="utf-8")), f"{target}#{part}"


@pytest.mark.parametrize("path", RECORD, ids=lambda path: path.stem)
def test_a_page_of_the_record_begins_with_its_conclusion(path: Path) -> None:
    first = path.read_text(encoding="utf-8").split("\n\n")[1]
    assert not first.startswith(("|", "    ", "#", "- "))
    assert len(re.findall(r"[.?!]\**(?:\s|$)", first)) <= 4


def test_words_are_searched_for_and_their_paragraphs_printed(hydractl: Command) -> None:
    found = hydractl("guide", "temperature", "CALIBRATE", code=0).out
    heads, paragraphs = re.findall("^# hydractl guide (.*)$", found, re.MULTILINE), found.rstrip().split("\n\n")
    assert "evaluation" in heads and set(heads) <= set(TOPICS)
    for paragraph in paragraphs:
        assert paragraph.startswith("# ") or all(word in paragraph.lower() for word in ("temperature", "calibrate"))
    assert found.rstrip() == library.guide("temperature CALIBRATE").markdown
    assert "did you mean results" in hydractl("guide", "resutls", code=2).err
    assert "nosuchword" in hydractl("guide", "nosuchword", "speed", code=2).err


def test_a_table_is_made_of_the_rows_it_names() -> None:
    line = "<!-- table: tests.steps.test_guide.ROWS: row = name, what = help, sizes = sizes -->"
    assert filled(f"before\n\n{line}\n\nafter").splitlines()[2:-2] == [
        "| row | what | sizes |",
        "| --- | --- | --- |",
        "| `one` | first \\| only | 1, 2 |",
        "| `two` | second |  |",
    ]


def test_a_pipe_gets_markdown_and_a_notebook_html(hydractl: Command) -> None:
    assert hydractl("guide", "results").out == f"{library.guide('results').markdown.rstrip()}\n"
    assert "<td><code>format_version</code></td>" in library.guide("file-format")._repr_html_()


def test_a_terminal_shows_links_as_commands() -> None:
    console = Console(force_terminal=True, color_system=None, width=60, file=StringIO())
    Manual(None, "# Title\n\nSee [speed](speed.md#a-trunk).\n\n- one\n").draw(console)
    lines = console.file.getvalue().splitlines()
    assert "Title" in "".join(lines[:3])  # some versions of rich draw a box around it
    assert "See speed (hydractl guide speed)." in (line.rstrip() for line in lines)
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize("topic", TOPICS)
def test_a_narrow_terminal_cuts_no_word_of_a_table_and_commands_can_be_copied(topic: str) -> None:
    assert "<!--" not in page(topic)  # every table is made
    console = Console(force_terminal=True, color_system=None, width=80, file=StringIO())
    library.guide(topic).draw(console)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "…" in line]
    shown = " ".join(" ".join(lines).replace(" \\ ", " ").split())
    for language, block in re.findall(r"^```(\w+).*?\n(.*?)^```$", library.guide(topic).markdown, BLOCK):
        for command in block.replace("\\\n", "").splitlines() if language == "bash" else ():
            assert " ".join(command.split()) in shown
        whole = any(block == path.read_text(encoding="utf-8") for path in PROGRAMS)  # a file to copy, not lines
        for line in block.splitlines() if language == "python" and not whole else ():
            assert f" {line}" in (each.rstrip() for each in lines) or not line
