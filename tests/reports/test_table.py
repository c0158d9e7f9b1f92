import io
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from hydractl.checkpoint.calibration import Calibration
from hydractl.evaluation.results import DataInfo, Difference, Resampled, SystemResult
from hydractl.evaluation.run import SystemPredictions
from hydractl.evaluation.system_numbers import numbers_of
from hydractl.metrics.classification import tabulate
from hydractl.reports.page import results
from hydractl.reports.table import draw, result_table, table_lines
from hydractl.systems.saved_file import SAVED
from hydractl.systems.system import Cost, SetKey


def result(accuracy: float, members: int = 1, parameters: int = 86_567_656) -> SystemResult:
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(members, 20, 3))
    tables = {SetKey("id", "pets"): tabulate(logits, generator.integers(0, 3, 20))}
    for name in ("dtd", "mnist"):
        tables[SetKey("ood", name, "far")] = tabulate(generator.normal(size=(members, 5, 3)))
    cost = Cost(members, parameters, 17_563_828_224, 16_300_000_000, tokens=197)
    scores = {key: -table.msp for key, table in tables.items()}
    found = numbers_of(SystemPredictions(SAVED, Calibration(), None, tables, scores), cost)
    return replace(found, id=replace(found.id, accuracy=accuracy))


def printed(models: dict[str, SystemResult], width: int, colour: bool = False, full: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colour, color_system="standard" if colour else None)
    draw(result_table(results(models, DataInfo(), {}), full), console)
    return out.getvalue().split("OOD is positive")[0].rstrip()


def test_its_lines_have_no_colours_in_a_notebook_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as kernels set it
    table = result_table(results({"a": result(0.5)}, DataInfo(), {}))
    assert "".join(table_lines(table, 120)).isprintable()


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("width", [60, 80, 120, 1000])
def test_no_width_loses_a_number(width: int, full: bool) -> None:
    rows = {"single": result(0.5), "hydra": result(0.75, members=3)}
    wide, text = (printed(rows, one, full=full) for one in (1000, width))
    assert set(re.findall(r"\d[\d.]*", text)) == set(re.findall(r"\d[\d.]*", wide))
    assert "…" not in text
    assert width == 60 or all(len(line) <= width for line in text.splitlines())


def test_diversity_is_shown_where_there_are_members_to_differ() -> None:
    assert "disagr." not in printed({"a": result(0.5)}, 1000)
    assert printed({"a": result(0.5), "b": result(0.5, members=2)}, 1000).count("disagr.") == 1


def compared(accuracy: float, low: float, high: float) -> SystemResult:
    value = Difference((low + high) / 2, (low, high))
    return replace(result(accuracy), difference=Resampled({"accuracy": value}))


@pytest.mark.parametrize(
    ("others", "best"),
    [
        ([result(0.75), result(0.75)], "bc"),  # without intervals, ties all are
        ([compared(0.75, 0.1, 0.4)], "b"),
        ([compared(0.75, -0.1, 0.6)], ""),  # within chance
        ([compared(0.25, -0.4, -0.1)], "a"),
        ([compared(0.25, -0.4, -0.1), compared(0.375, -0.3, 0.1)], ""),  # one of them may be as good
    ],
)
def test_the_best_is_bold_only_beyond_chance(others: list[SystemResult], best: str) -> None:
    text = printed(dict(zip("abc", [result(0.5), *others], strict=False)), 1000, colour=True)
    assert re.findall(r"(?m)^([abc]) +\x1b\[1m", text) == list(best)
