"""The likeness of the answers of an ensemble's members, and of the changes that they made to their network's weights.

    python analyses/members.py MODEL --data digits:test [--limit N]

For each pair of members: the share of samples with different labels, the mean divergence KL(row || column) of their
probabilities, the mean cosine of their logits, and the cosine of what both changed in the weights of the first member.

Source: Muehlematter et al. 2024, arXiv 2405.14438; KL as in Fort et al. 2019, arXiv 1912.02757.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray
from shared import Analysis, arguments, show
from torch import Tensor

import hydractl
from hydractl.checkpoint.contents import Checkpoint
from hydractl.data.open import open_samples
from hydractl.data.reading import Reading
from hydractl.drawing import INK, draw_matrix, styled
from hydractl.families.load import read_checkpoint
from hydractl.surgery.slicing import dense, split_members
from hydractl.text import aligned

SIMILARITIES = {
    "disagreement": "disagreement",
    "kl": "KL(row || column), nats",
    "logits_cosine": "cosine of logits",
    "weights_cosine": "cosine of weights' changes",
}
Matrix = NDArray[np.float64]  # [M,M]


@dataclass(frozen=True, eq=False)
class Similarity:
    """Matrices `[M,M]` over pairs of members."""

    disagreement: Matrix  # share of samples with another most probable class, 0 to 1
    kl: Matrix  # nats, the mean over samples of KL(row || column) of their probabilities
    logits_cosine: Matrix  # mean over samples of the cosine of their logits, each sample's mean over classes subtracted
    weights_cosine: Matrix  # cosine of their changes to the weights of member 0; NaN if one changed nothing


def similarity(checkpoint: Checkpoint, member_logits: Tensor, temperature: float = 1.0) -> Similarity:
    """Measures how similar the members are.

    Args:
        checkpoint: of several members.
        member_logits: `[M,N,C]`, their logits.
        temperature: divides the logits before the softmax.
    """
    logits = member_logits.double()
    answers = logits.argmax(-1)
    logs = (logits / temperature).log_softmax(-1)
    p = logs.exp()
    # The mean over samples of sum p_i log p_i - sum p_i log p_j.
    alone, cross = torch.einsum("inc,inc->i", p, logs), torch.einsum("inc,jnc->ij", p, logs)
    centred = torch.nn.functional.normalize(logits - logits.mean(-1, keepdim=True), dim=-1)
    samples = logits.shape[1]
    return Similarity(
        (answers[:, None] != answers).double().mean(-1).numpy(),
        ((alone[:, None] - cross) / samples).clamp(min=0).numpy(),
        (torch.einsum("inc,jnc->ij", centred, centred) / samples).numpy(),
        weights_cosine=weights_cosine(checkpoint),
    )


def weights_cosine(checkpoint: Checkpoint) -> Matrix:
    """Returns the cosines of the members' changes to member 0's weights, with one tensor in memory at a time."""
    total = torch.zeros(checkpoint.members, checkpoint.members, dtype=torch.float64)
    for changes in _changes(checkpoint):
        flat = changes.flatten(1)
        total += flat @ flat.T
    lengths = total.diagonal().sqrt()
    return (total / lengths / lengths[:, None]).numpy()  # NaN for members that changed nothing


def _changes(checkpoint: Checkpoint) -> Iterator[Tensor]:
    """Yields the members' changes `[M,...]` to each weight of member 0, with heads in their original places."""
    members = split_members(checkpoint)
    for name, slot in checkpoint.slots().items():
        if name in checkpoint.shared:
            continue
        weights = torch.stack([dense(member, slot, member.tensors[name]).load().double() for member in members])
        yield weights - weights[0]


def members(model: str, data: Any, limit: int | None = None) -> Analysis:
    """Measures how similar the members of a file are."""
    network = hydractl.load(model)
    if network.members < 2:
        raise SystemExit(f"{model}: has one member: name a model with several")
    samples = open_samples(data, network.spec.modality, Reading(limit=limit))
    logits = torch.from_numpy(network.predict(list(samples.inputs)).logits)
    measured = similarity(read_checkpoint(str(model)), logits, network.temperature)
    numbers = {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in asdict(measured).items()
    }
    numbers["weights_cosine"] = [
        [None if cosine != cosine else cosine for cosine in row] for row in numbers["weights_cosine"]
    ]
    return Analysis(list(lines(measured)), {"samples": len(samples), **numbers}, lambda: picture(measured))


def lines(measured: Similarity) -> Iterator[str]:
    """Yields a matrix for each measure, with a row and a column for each member."""
    rows = []
    for name, title in SIMILARITIES.items():
        matrix: Matrix = getattr(measured, name)
        heading = f"{title} (from member 0)" if name == "weights_cosine" else title
        rows.append([heading, *map(str, range(len(matrix)))])
        for number, row in enumerate(matrix.tolist()):
            rows.append([f"member {number}", *("-" if np.isnan(value) else f"{value:.4f}" for value in row)])
    return aligned(rows)


@styled
def picture(measured: Similarity) -> Figure:
    """Returns the matrices with their numbers in the cells; one without numbers is left out."""
    matrices: dict[str, Matrix] = {title: getattr(measured, name) for name, title in SIMILARITIES.items()}
    members = len(measured.disagreement)
    figure = Figure(figsize=(2 * (2.2 + 0.35 * members), 2 * (1.2 + 0.35 * members)), layout="constrained")
    drawn = ((title, matrix) for title, matrix in matrices.items() if not np.isnan(matrix).all())
    for place, (title, matrix) in enumerate(drawn):
        axes = figure.add_subplot(2, 2, place + 1)
        low, high = (-1, 1) if "cosine" in title else (0, None if "KL" in title else 1)
        colors = "RdBu_r" if "cosine" in title else "Blues"
        image = draw_matrix(axes, matrix, cmap=colors, vmin=low, vmax=high)
        for (row, column), number in np.ndenumerate(matrix):
            write_number(axes, image, (column, row), float(number))
        figure.colorbar(image, ax=axes, label=title)
        axes.set(title=title, xlabel="member", ylabel="member")
    return figure


def write_number(axes: Axes, image: AxesImage, place: tuple[int, int], number: float) -> None:
    """Writes a number into its cell, in black or white, whichever can be read; a dash for NaN."""
    red, green, blue = image.to_rgba(np.asarray(number))[:3]
    dark = 0.3 * red + 0.6 * green + 0.1 * blue < 0.5
    none = number != number
    text = "–" if none else f"{number:.2f}"
    axes.text(*place, text, ha="center", va="center", fontsize=8, color="white" if dark and not none else INK)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("model")
    parser.add_argument("--data", required=True, help="samples; labels are not read")
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    show(members(options.model, options.data, options.limit), options)


if __name__ == "__main__":
    main()
