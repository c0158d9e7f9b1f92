"""The table of a benchmark in a pipe: whole numbers, however long the names."""

from hydractl.evaluation.timing import Row, Timing, Weight
from hydractl.report.analyses import timing_lines
from hydractl.steps.benchmark import PIPE_WIDTH


def test_no_number_is_cut_short() -> None:
    weight = Weight(parameters=231_360_000, size=462_720_000, multiply_adds=46_400_000_000, performed=42_590_000_000)
    timing = Timing(milliseconds=1147.25, fastest=1100.0, spread=124.75, rounds=3, peak_memory=466_000_000)
    row = Row("uneven-members of a long name", "bfloat16", 16, timing, weight, 2.515, 2.642)
    lines = list(timing_lines([row], PIPE_WIDTH))
    numbers = ("1147.25", "124.75", "466", "231.36", "46.40", "42.59", "2.515", "2.642", f"{2.515 / 2.642:.3f}")
    assert all(number in "\n".join(lines) for number in numbers)
    assert max(map(len, lines)) <= PIPE_WIDTH
