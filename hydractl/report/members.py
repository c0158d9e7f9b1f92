"""How alike members are, as matrices in text and as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hydractl.style import draw_matrix, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hydractl.analysis.members import Similarity

#: The matrices of a `Similarity`, and what they are called.
TITLES = {
    "disagreement": "disagreement",
    "kl": "KL(row || column), nats",
    "logits_cosine": "cosine of logits",
    "weights_cosine": "cosine of weights' changes",
}


def similarity_lines(found: Similarity) -> Iterator[str]:
    """A row and a column for each member, for each measure."""
    for name, title in TITLES.items():
        matrix: NDArray[np.float64] = getattr(found, name)
        said = f"{title} (from the {found.origin})" if name == "weights_cosine" else title
        yield f"{said:44}" + "".join(f"{number:>9}" for number in range(len(matrix)))
        for number, row in enumerate(matrix.tolist()):
            yield f"{f'member {number}':44}" + "".join(f"{_cell(value):>9}" for value in row)


@styled
def similarity_figure(found: Similarity) -> Figure:
    """The matrices, their numbers in the cells; one without numbers is left out."""
    from matplotlib.figure import Figure

    matrices = {title: getattr(found, name) for name, title in TITLES.items()}
    matrices = {title: matrix for title, matrix in matrices.items() if not np.isnan(matrix).all()}
    members = len(found.disagreement)
    rows = columns = 2
    figure = Figure(figsize=(columns * (2.2 + 0.35 * members), rows * (1.2 + 0.35 * members)), layout="constrained")
    for place, (title, matrix) in enumerate(matrices.items()):
        axes = figure.add_subplot(rows, columns, place + 1)
        cosine = "cosine" in title
        image = draw_matrix(axes, matrix, said=True, cmap="RdBu_r" if cosine else "Blues", vmin=-1 if cosine else 0,
                            vmax=1 if "KL" not in title else None)  # fmt: skip
        figure.colorbar(image, ax=axes, label=title)
        axes.set(title=title, xlabel="member", ylabel="member")
    return figure


def mean_of_pairs(matrix: NDArray[np.float64]) -> float | None:
    """The mean over pairs of different members; None where no pair has a number."""
    others = matrix[~np.eye(len(matrix), dtype=bool)]
    known = others[~np.isnan(others)]
    return float(known.mean()) if len(known) else None


def _cell(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.4f}"
