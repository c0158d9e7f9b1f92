"""Whatever systems and sets are called, every format has its rows and cells, and shows the names as text."""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console

from hydractl.drawing import inline, png, svg
from hydractl.evaluation import results
from hydractl.reports.columns import column_groups
from hydractl.reports.figures import pictures
from hydractl.reports.page import html_page, report_json
from hydractl.reports.table import draw, markdown_table, result_table
from hydractl.text import markdown_code, printable, printable_json
from tests.hostile import FRAGMENTS, NAMES, controls, generated
from tests.reports.test_table import result

ENTRY = result(0.75)
SET = ENTRY.ood["dtd"]
SYSTEMS = st.lists(NAMES, min_size=2, max_size=4, unique_by=printable)
SETS = st.lists(NAMES, min_size=2, max_size=3, unique_by=printable)


def report_of(systems: list[str], sets: list[str]) -> results.Results:
    system = replace(
        ENTRY,
        ood=dict.fromkeys(sets, SET),
        leaks=(results.KnownLeak(systems[0], sets[0], 2, 1, used_as=(sets[-1],)),),
        temperature=results.SystemTemperature(1.0, 1.0, 0.5, argmax_changed=0.0),
        difference=results.Resampled({"accuracy": results.Difference(0.1, (0.05, 0.2))}),
        model=results.Model(systems[-1], "0"),
    )
    return results.Results(
        models=dict.fromkeys(systems, system),
        options={"ood_score": sets[0], systems[0]: sets[0]},
        data=results.DataInfo(id=results.SetInfo(sets[0], 4), ood={name: results.SetInfo(name) for name in sets}),
        complete=False,
        command=f"hydractl {systems[0]}",
    )


def changed(report: results.Results, **changes: Any) -> results.Results:
    """The report with the same changes to each system."""
    return replace(report, models={name: replace(one, **changes) for name, one in report.models.items()})


def markdown_rows(tokens: list[Token]) -> Iterator[list[Token]]:
    row: list[Token] = []
    for token, following in pairwise(tokens):
        if token.type == "tr_open":
            row = []
        elif token.type in ("th_open", "td_open"):
            row.append(following)
        elif token.type == "tr_close":
            yield row


def plain(inline: Token) -> str:
    """What a reader sees of a line; anything but text and bold numbers is a name that was taken for markup."""
    children = inline.children or []
    assert {child.type for child in children} <= {"text", "text_special", "strong_open", "strong_close", "softbreak"}
    return "".join(child.content for child in children)


@generated(SYSTEMS, SETS)
def test_markdown(systems: list[str], sets: list[str]) -> None:
    report = report_of(systems, sets)
    text = markdown_table(result_table(report, full=True))
    assert not controls(text)
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    head, *rows = markdown_rows(tokens)
    groups = column_groups(list(report.models.values()), full=True)
    assert {len(row) for row in (head, *rows)} == {1 + sum(len(group.columns) for group in groups)}
    assert [plain(row[0]) for row in rows] == [f"{printable(name)} †".strip() for name in systems]
    assert {token.type for token in tokens if token.level == 0} == {
        *("table_open", "table_close", "paragraph_open", "paragraph_close")
    }
    for token in tokens:
        if token.type == "inline":
            plain(token)


def test_code_in_markdown() -> None:
    for fragment in FRAGMENTS:
        for text in (f"{fragment}x{fragment}", f"x{fragment}"):
            tokens = MarkdownIt("commonmark").parse(f"- a: {markdown_code(text)}")
            (paragraph,) = (token for token in tokens if token.type == "inline")
            assert [child.content for child in paragraph.children or []] == ["a: ", printable(text)]


class Page(HTMLParser):
    """The tags of a page, and the texts of the first cells of its rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: list[str] = []
        self._first = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._first = tag in ("td", "th") and self.tags[-1:] == ["tr"]
        if self._first:
            self.names.append("")
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._first = False

    def handle_data(self, data: str) -> None:
        if self._first:
            self.names[-1] += data


def with_samples(report: results.Results, texts: list[str]) -> results.Results:
    """The report, its systems doubting these texts."""
    doubts = tuple(results.Sample(0.5, text, f"{text}!", text=text) for text in texts)
    return changed(report, curves=replace(curves([]), doubts=results.Doubts(doubts, doubts)))


@generated(SYSTEMS, SETS)
def test_html(systems: list[str], sets: list[str]) -> None:
    report = with_samples(report_of(systems, sets), systems)
    shown = [f"{printable(name)} †" for name in systems]
    plain = ["a", "b", "c", "d"][: len(systems)]
    harmless = Page(html_page(with_samples(report_of(plain, ["e", "f", "g"][: len(sets)]), plain), {}))
    page = Page(text := html_page(report, {}))
    assert not controls(text)
    assert page.tags == harmless.tags
    assert [name for name in page.names if name in shown] == 2 * shown  # the table, and the one with every metric


@generated(SYSTEMS, SETS)
def test_terminal(systems: list[str], sets: list[str]) -> None:
    report = report_of(systems, sets)
    for colour in (False, True):
        out = io.StringIO()
        draw(result_table(report), Console(file=out, width=300, force_terminal=colour, color_system="standard"))
        text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())  # rich's own colours
        assert not controls(text)
        for name in systems:
            assert len(name) > 99 or f"{printable(name)} †" in text


@generated(SYSTEMS, SETS)
def test_json(systems: list[str], sets: list[str]) -> None:
    report = report_of(systems, sets)
    content = report_json(report)
    text = printable_json(content)
    assert not controls(text)
    again = json.loads(text.encode())
    assert len(again["models"]) == len(systems)
    assert re.search("[\ud800-\udfff]", "".join(systems + sets)) or again == content


def curves(sets: list[str]) -> results.Curves:
    half = (0.0, 0.5, 1.0)
    return results.Curves(
        reliability=results.Reliability(half, (1, 3), (0.2, 0.8), (0.3, 0.9)),
        risk_coverage=results.RiskCurve(half, half),
        roc={name: results.Roc(half, half) for name in sets},
        scores=results.ScoreHistograms(half, (0.5, 0.5), dict.fromkeys(sets, (0.2, 0.8))),
    )


@pytest.mark.filterwarnings("ignore:Glyph")
def test_each_picture_with_the_worst_names() -> None:
    systems, sets = ["_$\\frac{$", "</svg>\x1b[31m" + "y" * 10_000], ["$$\n", "_<!--\udcff"]
    means = {"far": SET, "all": SET}
    shift = {systems[0]: {"1": ENTRY.id}}
    report = changed(report_of(systems, sets), ood_means=means, curves=curves(sets), shift=shift)
    drawn = pictures(report)
    assert len(drawn) == 6  # of one member each: nothing about their agreement
    for name, figure in drawn.items():
        text = svg(figure)
        assert not controls(text) and len(text) < 1_000_000
        shown = "".join(ElementTree.fromstring(text).itertext())  # blanks at line ends are joined in SVG
        assert "$\\frac{$" in shown
        assert name not in ("roc", "scores") or ("$$\\n" in shown and "_<!--\\udcff" in shown)
    assert png(drawn["risk-coverage"]).startswith(b"\x89PNG")
    page = html_page(report, {name: inline(figure, name) for name, figure in drawn.items()})
    assert not controls(page)
    for panel in re.findall("<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(panel.replace("xlink:href", "href"))
