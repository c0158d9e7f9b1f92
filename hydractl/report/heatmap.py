"""A picture of a number per head, layers by heads, in a terminal or a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydractl.errors import OptionError

SHADES = " ░▒▓█"

Rows = Sequence[Sequence[float]]


def heat_map(name: str, rows: Rows) -> list[str]:
    """Lines with a row per layer and a cell per head, the darker the higher; the last line says what shades mean."""
    values = [value for row in rows for value in row]
    low, high = min(values), max(values)
    step = (high - low) / len(SHADES) or 1.0
    lines = [f"{name}   head" + "".join(f"{head:4}" for head in range(len(rows[0])))]
    for layer, row in enumerate(rows):
        cells = (SHADES[min(int((value - low) / step), len(SHADES) - 1)] * 3 for value in row)
        lines.append(f"{'layer ' if layer == 0 else '':>{len(name) + 3}}{layer:4} " + " ".join(cells))
    lines.append(f"{'':>{len(name) + 3}}     from {low:.4g} (light) to {high:.4g} (dark); higher = keep")
    return lines


def import_pyplot() -> Any:
    """matplotlib, drawing into files only.

    Raises:
        OptionError: it is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise OptionError("--plot needs matplotlib: pip install 'hydractl[plots]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def plot_heat_maps(maps: dict[str, Rows], path: Path) -> None:
    """Writes one panel per name with a row per layer and a column per head.

    Raises:
        OptionError: matplotlib is not installed.
    """
    pyplot = import_pyplot()
    figure, axes = pyplot.subplots(1, len(maps), squeeze=False, figsize=(1 + 4 * len(maps), 4), layout="constrained")
    for axis, (name, rows) in zip(axes[0], maps.items(), strict=True):
        image = axis.imshow(rows, cmap="viridis", origin="lower", aspect="auto")
        axis.set(title=name, xlabel="head", ylabel="layer")
        figure.colorbar(image, ax=axis)
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)
