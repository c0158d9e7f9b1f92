"""README's table of families says what the tests run, no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.families.table import table


@pytest.mark.slow
def test_readme_counts_what_the_tests_collect() -> None:
    assert table() in (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
