"""How alike members are, as matrices in text and as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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


def similarity_figure(found: Similarity) -> Figure:
    """The matrices side by side."""
    from matplotlib.figure import Figure

    members = len(found.disagreement)
    side = 1.6 + 0.45 * members
    figure = Figure(figsize=(len(TITLES) * side, side), layout="constrained")
    for axes, (name, title) in zip(figure.subplots(1, len(TITLES)), TITLES.items(), strict=True):
        matrix: NDArray[np.float64] = getattr(found, name)
        cosine = name.endswith("cosine")
        image = axes.imshow(matrix, cmap="RdBu_r" if cosine else "Blues", vmin=-1 if cosine else 0,
                            vmax=1 if name != "kl" else None)  # fmt: skip
        figure.colorbar(image, ax=axes)
        axes.set_xticks(range(members))
        axes.set_yticks(range(members))
        axes.set_title(title, fontsize=9)
    return figure


def mean_of_pairs(matrix: NDArray[np.float64]) -> float | None:
    """The mean over pairs of different members; None where no pair has a number."""
    others = matrix[~np.eye(len(matrix), dtype=bool)]
    known = others[~np.isnan(others)]
    return float(known.mean()) if len(known) else None


def _cell(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.4f}"
