"""A verdict says what a hand computation says, and calls what is chance by its name."""

from __future__ import annotations

from typing import Any

import pytest

from hydractl.report.verdict import JUDGED, outcome, verdicts


def entry(differences: dict[tuple[str, ...], tuple[float, float, float]], multiply_adds: int = 100) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, (value, low, high) in differences.items():
        place = tree
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = {"value": value, "interval": [low, high]}
    return {"difference": tree, "cost": {"multiply_adds": multiply_adds, "parameters": 2 * multiply_adds}}


ACCURACY, NLL, ECE, AUROC = (column.path for column, _ in JUDGED)


def test_better_worse_and_chance_by_the_direction_of_each_metric() -> None:
    models = {
        "single": {"cost": {"multiply_adds": 100, "parameters": 100}},
        "hydra": entry(
            {
                ACCURACY: (-0.01, -0.02, -0.002),
                NLL: (-0.1, -0.15, -0.05),
                ECE: (0.01, -0.001, 0.02),
                AUROC: (0.03, 0.01, 0.05),
            },
            multiply_adds=250,
        ),
    }
    verdict = verdicts(models)["hydra"]
    assert {one.metric: one.outcome for one in verdict.judgements} == {
        "accuracy": "worse",
        "NLL": "better",
        "ECE": "within chance",
        "mean AUROC": "better",
    }
    assert verdict.sentence() == (
        "hydra against single: better in NLL (-0.100, 95 % -0.150 to -0.050) and mean AUROC (+3.00 points, 95 % +1.00 "
        "to +5.00); worse in accuracy (-1.00 points, 95 % -2.00 to -0.20); ECE within chance; at 2.50 times the "
        "multiply-adds and 5.00 times the parameters."
    )


def test_where_nothing_is_gained_it_says_so() -> None:
    models = {"a": {}, "b": entry({ACCURACY: (0.0, -0.01, 0.01), NLL: (0.1, 0.05, 0.15)})}
    verdict = verdicts(models)["b"]
    assert not verdict.gains
    assert verdict.sentence().startswith("b against a: nothing is better beyond chance; worse in NLL")


def test_without_intervals_there_is_no_verdict() -> None:
    assert verdicts({"a": {}, "b": {"cost": {"multiply_adds": 1, "parameters": 1}}}) == {}


@pytest.mark.parametrize(("low", "high", "expected"), [(0.0, 0.1, "within chance"), (0.01, 0.1, "better")])
def test_an_interval_that_touches_zero_is_chance(low: float, high: float, expected: str) -> None:
    column, _ = JUDGED[0]
    assert outcome(column, entry({ACCURACY: (0.05, low, high)})) == expected


def test_the_table_says_it_below(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from hydractl.report.table import print_results
    from hydractl.report.texts import markdown

    plain = {"id": {"accuracy": 0.9}, "ood": {}, "cost": {"multiply_adds": 100, "parameters": 100}}
    models = {"a": plain, "b": {**plain, **entry({ACCURACY: (0.02, 0.01, 0.03)})}}
    report = {"models": models, "data": {"id": {"name": "x"}, "ood": {}}, "options": {}, "complete": True}
    sentence = verdicts(models)["b"].sentence()
    print_results(report, Console(width=200))
    assert sentence in capsys.readouterr().out
    assert sentence in markdown(report)
