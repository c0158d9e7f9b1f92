"""The page in a real browser: it needs no network, and a click on a heading sorts."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hydractl.evaluation.results import DataInfo
from hydractl.report.artifact import results
from hydractl.report.page import html_page
from tests.report.test_table import result

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
HEADINGS = "document.querySelector('table').tHead.rows[1].cells"


def rendered(page: Path) -> str:
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]
    done = subprocess.run(
        [str(CHROMIUM), *options, page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def systems(dom: str) -> list[str]:
    """The names in the first table from top to bottom."""
    table = dom[dom.index("<table") : dom.index("</table>")]
    return re.findall(r'<td data-value="([^"]*)">\1</td>', table)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize(
    ("clicks", "order"),
    [
        ([], ["b", "c", "a"]),
        ([1], ["b", "a", "c"]),  # accuracy, the best on top
        ([1, 1], ["c", "a", "b"]),
        ([0, 0], ["a", "b", "c"]),
    ],
)
def test_a_click_on_a_heading_sorts(tmp_path: Path, clicks: list[int], order: list[str]) -> None:
    found = results({"b": result(0.9), "c": result(0.7), "a": result(0.8)}, DataInfo(), {})
    page = html_page(found, {})
    script = "".join(f"{HEADINGS}[{place}].click();" for place in clicks)
    (tmp_path / "page.html").write_text(page.replace("</body>", f"<script>{script}</script></body>"))
    assert systems(rendered(tmp_path / "page.html")) == order
