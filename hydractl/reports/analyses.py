"""The numbers of analyses as tables and pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hydractl.reports.drawing import Key, explained, line_keys, panels
from hydractl.style import INK, draw_matrix, line, styled, whole_numbers
from hydractl.text import aligned, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hydractl.analysis.noise import NoiseAnalysis, NoiseEffect
    from hydractl.analysis.similarity import Similarity
    from hydractl.evaluation.timing import Row

Point = Mapping[str, Any]
Matrix = NDArray[np.float64]

#: The columns of `analyse budgets`: key of a point, name, and whether it is a share.
BUDGET_COLUMNS = (
    ("accuracy", "accuracy", True),
    ("nll", "NLL", False),
    ("mean_auroc", "AUROC", True),
    ("mean_fpr95", "FPR95", True),
    ("mean_aupr_out", "AUPR out", True),
)
#: The matrices of a `Similarity`, with their titles.
SIMILARITIES = {
    "disagreement": "disagreement",
    "kl": "KL(row || column), nats",
    "logits_cosine": "cosine of logits",
    "weights_cosine": "cosine of weights' changes",
}
#: The columns of `analyse speed`: heading and text of a row.
TIMING_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("ms", lambda row: f"{row.timing.milliseconds:.2f}"),
    ("IQR", lambda row: f"{row.timing.spread:.2f}"),
    ("samples/s", lambda row: f"{row.throughput:.1f}"),
    ("peak MB", lambda row: f"{row.timing.peak_memory / 1e6:.0f}"),
    ("params M", lambda row: f"{row.weight.parameters / 1e6:.2f}"),
    ("mult-adds G", lambda row: f"{row.weight.multiply_adds / 1e9:.2f}"),
    ("performed G", lambda row: f"{row.weight.performed / 1e9:.2f}"),
    ("ratio", lambda row: f"{row.ratio:.3f}"),
    ("counted", lambda row: f"{row.counted_ratio:.3f}"),
    ("ratio / counted", lambda row: f"{row.over_counted:.3f}"),
)


def budget_lines(points: Sequence[Point]) -> Iterator[str]:
    """Yields a line for each method and budget; figures of OOD detection are means over the OOD sets."""
    columns = _budget_columns(points)
    rows = [["", "dropped", *(name for _, name, _ in columns)]]
    for point in points:
        numbers = (f"{100 * point[key]:.2f} %" if share else f"{point[key]:.4f}" for key, _, share in columns)
        rows.append([point["method"], str(point["dropped"]), *numbers])
    return aligned(rows)


@styled
def budget_picture(points: Sequence[Point]) -> Figure:
    """Returns a panel for each figure against the number of dropped heads, with a line for each method."""
    dense, methods = points[0], list(dict.fromkeys(point["method"] for point in points[1:]))
    columns = _budget_columns(points)
    figure, every = panels([f"{name} (%)" if share else f"{name} (nats)" for _, name, share in columns])
    for axes, (key, _, share) in zip(every, columns, strict=True):
        scale = 100 if share else 1
        axes.axhline(scale * dense[key], color=INK, linewidth=1, linestyle=":")
        for number, method in enumerate(methods):
            own = sorted((point["dropped"], scale * point[key]) for point in points[1:] if point["method"] == method)
            axes.plot(*zip(*own, strict=True), marker="o", markersize=4, **line(number))
        axes.set(xlabel="heads dropped")
        whole_numbers(axes.xaxis)
    return explained(figure, [Key(dense["method"], INK, ":"), *line_keys(methods)])


def _budget_columns(points: Sequence[Point]) -> list[tuple[str, str, bool]]:
    return [column for column in BUDGET_COLUMNS if column[0] in points[0]]


def noise_lines(analysis: NoiseAnalysis) -> Iterator[str]:
    """Yields a line for clean data, one for each kind and severity, and their mean."""
    clean = analysis.clean
    rows = [["", "loss", "gap", "slope", "curvature", "positive"]]
    rows.append(["clean", f"{clean.dense:.4f}", f"{clean.gap:+.4f}", f"{clean.slope:+.3g}", "", ""])
    for one in analysis.noisy:
        curvature, positive = one.curvature, one.positive
        rows.append(
            [
                f"{one.kind} {one.severity}",
                f"{one.dense:.4f}",
                f"{one.gap:+.4f}",
                f"{one.slope:+.3g}",
                f"{curvature.value:+.2g} ± {curvature.error:<6.1g}",
                f"{positive.value:.1%} ± {positive.error:.1%}",
            ]
        )
    means = [(one.gap, one.slope, one.curvature.value) for one in analysis.noisy]
    gap, slope, curve = np.mean(means, 0)
    rows.append(["mean", "", f"{gap:+.4f}", f"{slope:+.3g}", f"{curve:+.2g}   {'':6}", ""])
    yield from aligned(rows)
    yield "in nats; gap: pruned network's loss minus the model's; slope: <grad L, dtheta>;"
    yield "curvature: mean of diag(H_n - H_t); positive: share of weights above 0;"
    yield f"± one standard error of {analysis.draws} draws; {analysis.dropped} heads of {analysis.weights} weights"


@styled
def noise_picture(analysis: NoiseAnalysis) -> Figure:
    """Returns four panels over severity with a line for each kind: gap, inner product, curvature and its sign."""
    kinds = list(dict.fromkeys(one.kind for one in analysis.noisy))
    clean = analysis.clean
    # Title, unit, value on clean data, and the number of an effect with its standard error.
    measures: tuple[tuple[str, str, float, Callable[[NoiseEffect], tuple[float, float]]], ...] = (
        ("loss gap of pruning", "nats", clean.gap, lambda one: (one.gap, 0)),
        ("<grad L, dtheta>", "nats", clean.slope, lambda one: (one.slope, 0)),
        ("mean diag(H_n - H_t)", "curvature", 0, lambda one: astuple(one.curvature)),
        ("positive diag(H_n - H_t)", "share of weights", 0.5, lambda one: astuple(one.positive)),
    )
    figure, every = panels([title for title, *_ in measures])
    for axes, (_, unit, at_rest, of) in zip(every, measures, strict=True):
        axes.axhline(at_rest, color=INK, linewidth=1, linestyle=":")
        for number, kind in enumerate(kinds):
            own = [one for one in analysis.noisy if one.kind == kind]
            values, errors = zip(*map(of, own), strict=True)
            axes.errorbar([one.severity for one in own], values, errors, marker="o", markersize=4, **line(number))
        axes.set(xlabel="severity", ylabel=unit)
        whole_numbers(axes.xaxis)
    return explained(figure, [Key("clean, or no difference", INK, ":"), *line_keys(kinds)])


def similarity_lines(found: Similarity) -> Iterator[str]:
    """Yields a matrix for each measure, with a row and a column for each member."""
    rows = []
    for name, title in SIMILARITIES.items():
        matrix: Matrix = getattr(found, name)
        heading = f"{title} (from the {found.weights_from})" if name == "weights_cosine" else title
        rows.append([heading, *map(str, range(len(matrix)))])
        for number, row in enumerate(matrix.tolist()):
            rows.append([f"member {number}", *("-" if np.isnan(value) else f"{value:.4f}" for value in row)])
    return aligned(rows)


@styled
def similarity_figure(found: Similarity) -> Figure:
    """Returns the matrices with their numbers in the cells; one without numbers is left out."""
    from matplotlib.figure import Figure

    matrices: dict[str, Matrix] = {title: getattr(found, name) for name, title in SIMILARITIES.items()}
    members = len(found.disagreement)
    figure = Figure(figsize=(2 * (2.2 + 0.35 * members), 2 * (1.2 + 0.35 * members)), layout="constrained")
    known = ((title, matrix) for title, matrix in matrices.items() if not np.isnan(matrix).all())
    for place, (title, matrix) in enumerate(known):
        axes = figure.add_subplot(2, 2, place + 1)
        low, high = (-1, 1) if "cosine" in title else (0, None if "KL" in title else 1)
        colors = "RdBu_r" if "cosine" in title else "Blues"
        image = draw_matrix(axes, matrix, numbers=True, cmap=colors, vmin=low, vmax=high)
        figure.colorbar(image, ax=axes, label=title)
        axes.set(title=title, xlabel="member", ylabel="member")
    return figure


def timing_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yields the lines of a table for each batch size and precision.

    Multiply-adds are of one sample, as published and as performed; `counted` is the ratio of those performed.
    """
    for (dtype, batch_size), group in groupby(rows, lambda row: (row.dtype, row.batch_size)):
        yield f"{dtype}, batch {batch_size}"
        numbers = [[printable(row.name), *(text(row) for _, text in TIMING_COLUMNS)] for row in group]
        yield from aligned([["model", *(heading for heading, _ in TIMING_COLUMNS)], *numbers])
        yield ""
