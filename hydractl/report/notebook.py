"""The table of results as a piece of HTML, as notebooks show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hydractl.report.columns import ColumnGroup, Entry, column_groups
from hydractl.report.definitions import caption, marked
from hydractl.report.escape import html
from hydractl.report.verdict import legend, mark, verdicts


def html_table(report: Mapping[str, Any], full: bool = False) -> str:
    """The table, the best of each column in bold, the verdict and what it all means below.

    Args:
        full: every metric, rather than the few that most look for.
    """
    models: Mapping[str, Entry] = report["models"]
    if not models:
        return "<p>no systems</p>"
    groups = column_groups(list(models.values()), full)
    titles = "".join(f'<th colspan="{len(group.columns)}">{html(group.title)}</th>' for group in groups)
    names = "".join(f"<th>{html(column.name)}</th>" for group in groups for column in group.columns)
    body = "".join(f"<tr>{''.join(_row(name, models, groups))}</tr>" for name in models)
    said = [*(verdict.sentence() for verdict in verdicts(models).values()), legend(models), *caption(report, full)]
    lines = "<br>".join(html(line) for line in said if line)
    head = f"<tr><th></th>{titles}</tr><tr><th>system</th>{names}</tr>"
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table><p>{lines}</p>"


def _row(name: str, models: Mapping[str, Entry], groups: list[ColumnGroup]) -> Iterator[str]:
    rows, entry = list(models.values()), models[name]
    yield f"<th>{html(marked(name, entry))}</th>"
    for column in (column for group in groups for column in group.columns):
        text = html(column.text(entry))
        shown = f"<b>{text}</b>" if column.is_best(entry, column.best(rows)) else text
        yield f"<td>{shown}{mark(column, entry)}</td>"
