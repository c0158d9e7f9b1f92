"""The guide's table of families says what the tests run, no more."""

from __future__ import annotations

import pytest

from hydractl.steps.guide import page
from tests.families.table import table


@pytest.mark.slow
def test_the_guide_counts_what_the_tests_collect() -> None:
    assert table() in page("models")
