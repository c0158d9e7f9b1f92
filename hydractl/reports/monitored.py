"""The findings of a monitor in a sentence, in tables and on a page with figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.checkpoint.folders import write_folder
from hydractl.checkpoint.output import write_bytes
from hydractl.data.files import read_bytes
from hydractl.errors import DataError
from hydractl.monitoring.accuracy import ASSUMPTIONS, ShareEstimate
from hydractl.monitoring.findings import ClassShare, Findings
from hydractl.monitoring.pick import Seen
from hydractl.reports.columns import Cell
from hydractl.reports.drawing import Key, explained, inline, panels
from hydractl.reports.page import KIND, PAGE, environment
from hydractl.reports.table import Table
from hydractl.style import COLORS, GREY, line, styled
from hydractl.text import printable_json, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES = 12  # in a table or figure
LONGEST = 300  # characters of a text on the page


def verdict(found: Findings) -> str:
    """Returns the one line that an owner reads."""
    if not found.inputs or found.flagged is None:
        return "no inputs yet"
    inputs = f"{found.inputs:,} input{'s' * (found.inputs != 1)}"
    odd = f"{100 * found.flagged.value:.1f} % look OOD, {100 * found.promised:g} % of ID data do"
    rest = "; ".join([odd, *_accuracy(found)])
    if found.since is None:
        return f"{inputs}: no evidence of change ({found.evidence:.2g}, an alarm takes {1 / found.alpha:g}); {rest}"
    stream = " of its stream" * (found.streams > 1)
    when = "" if found.alarm_at is None else f" at input {found.alarm_at:,}{stream}"
    return (
        f"{inputs}: ALARM{when}: inputs have changed since about input {found.since:,}{stream} "
        f"(evidence {found.highest:.3g}, {1 / found.alpha:g} suffice); {rest}"
    )


def _accuracy(found: Findings) -> Iterator[str]:
    """Yields the accuracy by the method that errs least, or why there is none."""
    if found.estimable:
        yield from (f"accuracy by {name} {one}" for name, one in list(found.accuracy.items())[-1:])
    elif found.classes:
        others = f", only that of the {_accepted(found):,} others"
        accepted = [f"{others}, by {name} {one}" for name, one in list(found.accepted_accuracy.items())[-1:]]
        yield f"accuracy cannot be estimated with so many odd inputs{''.join(accepted)}"


def _accepted(found: Findings) -> int:
    return found.inputs - (0 if found.flagged is None else round(found.flagged.value * found.inputs))


def tables(found: Findings) -> list[Table]:
    """Returns the tables: the numbers, layers after an alarm, and class shares."""
    return [*_numbers(found), *_layers(found), *_classes(found)]


def _numbers(found: Findings) -> Iterator[Table]:
    rows: list[tuple[str, ShareEstimate | None, float | None]] = [("look OOD", found.flagged, found.promised)]
    rows += [(f"accuracy by {name}", one, None) for name, one in found.accuracy.items()]
    rows += [(f"accepted: accuracy by {name}", one, None) for name, one in found.accepted_accuracy.items()]
    if found.right is not None:
        rows.append((f"accuracy of {found.labelled} labelled", found.right, None))
    notes = [f"Accuracy by {name}: right {ASSUMPTIONS[name]}." for name in found.accuracy or found.accepted_accuracy]
    if found.classes and not found.estimable:
        notes.append(
            "More inputs look OOD than chance explains. They may show no class, so accuracy is estimated for the "
            f"{_accepted(found):,} accepted inputs alone, and right if these show classes of the model."
        )
    if found.right is not None:
        notes.append("Accuracy of labelled inputs: that of all inputs if labels were drawn at random, not by `pick`.")
    columns = (
        ("now", [_percent(one) for _, one, _ in rows]),
        ("promised", [_percent(None if one is None else ShareEstimate(one, one, one), False) for *_, one in rows]),
    )
    yield Table(tuple(name for name, *_ in rows), (("%", columns),), (), tuple(notes), head="share")


def _layers(found: Findings) -> Iterator[Table]:
    if not found.layers:
        return
    odd = [_percent(one.odd) for one in found.layers]
    typical = [
        Cell(f"{(at := one.typicality).value:.2f} ({at.low:.2f} to {at.high:.2f})", at.value, False, None, None, None)
        for one in found.layers
    ]
    moved = [Cell("yes" if one.moved else "", None, False, None, None, None) for one in found.layers]
    names = tuple(f"layer {one.layer}" for one in found.layers)
    note = "Since the change. Odd, in %: inputs that a layer finds odder than 95 % of the calibration samples."
    columns = (("mean typicality", typical), ("odd", odd), ("beyond chance", moved))
    yield Table(names, (("typicality by one layer", columns),), (), (note,), head="layer")


def _classes(found: Findings) -> Iterator[Table]:
    shown = found.classes[:CLASSES]
    if not shown:
        return
    columns = [("predicted", [_percent(one.predicted) for one in shown])]
    notes = []
    if any(one.estimated for one in shown):
        columns += [("by EM, recent inputs", [_percent(one.estimated) for one in shown])]
        notes.append("By EM: right if only the shares of classes have changed, and confidence is calibrated.")
    if any(one.calibrated is not None for one in shown):
        before = (None if (at := one.calibrated) is None else ShareEstimate(at, at, at) for one in shown)
        columns += [("calibration", [_percent(one, False) for one in before])]
    if len(found.classes) > len(shown):
        notes.append(f"The {CLASSES} most frequent of {len(found.classes)} classes.")
    yield Table(tuple(one.name for one in shown), (("%", tuple(columns)),), (), tuple(notes), head="class")


def _percent(one: ShareEstimate | None, interval: bool = True) -> Cell:
    if one is None:
        return Cell("-", None, False, None, None, None)
    wide = f"{100 * one.low:.1f} to {100 * one.high:.1f}" if interval else None
    text = f"{100 * one.value:.1f}"
    return Cell(f"{text} ({wide})" if wide else text, one.value, False, None, None, None)


def write_monitored(folder: Path, found: Findings, picked: Sequence[Seen], force: bool) -> Path:
    """Writes index.html and monitor.json; returns the page.

    Raises:
        OutputError: the folder holds a report and `force` is not set, or anything else, or the disk refuses it.
    """
    from markupsafe import Markup

    drawn = {name: Markup(inline(figure, name)) for name, figure in figures(found).items()}
    text = (
        environment()
        .get_template("monitor.html")
        .render(
            verdict=verdict(found),
            tables=tables(found),
            pictures=drawn,
            picked=list(map(_shown, picked)),
            sure=found.confidence is not None,
        )
    )
    with write_folder(folder, KIND, force) as new:
        write_bytes(new / PAGE, text.encode())
        write_bytes(new / "monitor.json", f"{printable_json(found.to_json())}\n".encode())
    return folder / PAGE


def _shown(one: Seen) -> dict[str, Any]:
    """Returns an input as the page shows it: a small picture, or the text."""
    return {
        "name": shortened(one.name, LONGEST),
        "image": _picture(one.name),
        "said": ", ".join(one.answer.labels),
        "text": ", ".join(f"{name} {number:.4f}" for name, number in one.answer.shares.items()),
        "why": one.why,
        "profile": None if one.answer.profile is None else [float(share) for share in one.answer.profile],
    }


def _picture(name: str) -> str | None:
    """Returns the image that an input names, small; None for texts."""
    from hydractl.data.images import read_image
    from hydractl.evaluation.curves import data_uri

    try:
        return data_uri(read_image(read_bytes(Path(name), ""), name))
    except DataError:
        return None


@styled
def figures(found: Findings) -> dict[str, Figure]:
    """Returns the pictures by their titles."""
    drawn = {"Evidence": _evidence(found), "Typicality": _histogram(found)}
    if found.classes:
        drawn["Classes"] = _shares(found.classes[:CLASSES])
    return drawn


def _evidence(found: Findings) -> Figure:
    figure, (axes,) = panels([""])
    for place, history in enumerate(found.history):
        ends = [0, *accumulate(span.inputs for span in history)]
        axes.plot(ends, [1.0, *(span.evidence for span in history)], **line(place))
    axes.axhline(found.streams / found.alpha, color=GREY, linestyle="--")
    axes.set(yscale="log", xlabel="inputs", ylabel="evidence")
    return explained(figure, [Key("evidence", COLORS[0]), Key("alarm", GREY, "--")])


def _histogram(found: Findings) -> Figure:
    figure, (axes,) = panels([""])
    width = 1 / len(found.histogram)
    shares = [100 * count / max(found.inputs, 1) for count in found.histogram]
    axes.bar([width * (at + 0.5) for at in range(len(shares))], shares, 0.9 * width, color=COLORS[0])
    axes.axhline(100 * width, color=GREY, linestyle="--")
    axes.set(xlabel="typicality", ylabel="inputs (%)")
    return explained(figure, [Key("inputs", COLORS[0]), Key("ID data", GREY, "--")])


def _shares(classes: Sequence[ClassShare]) -> Figure:
    figure, (axes,) = panels([""])
    kinds = [("predicted", COLORS[0], -0.15), ("estimated", COLORS[1], 0.15)]
    known = [kind for kind in kinds if any(getattr(one, kind[0]) for one in classes)]
    for name, color, aside in known:
        _marks(axes, [getattr(one, name) for one in classes], color, aside)
    calibrated = [(at, 100 * one.calibrated) for at, one in enumerate(classes) if one.calibrated is not None]
    axes.plot([share for _, share in calibrated], [at for at, _ in calibrated], "|", color=GREY, markersize=14)
    axes.set_yticks(range(len(classes)), [shortened(one.name, 20).replace("$", r"\$") for one in classes])
    axes.set(xlabel="share (%)")
    axes.invert_yaxis()
    keys = [Key(name, color) for name, color, _ in known]
    return explained(figure, [*keys, *([Key("calibration", GREY)] if calibrated else [])])


def _marks(axes: Axes, shares: Sequence[ShareEstimate | None], color: str, aside: float) -> None:
    for at, one in enumerate(shares):
        if one is not None:
            axes.plot([100 * one.low, 100 * one.high], [at + aside] * 2, color=color, linewidth=2)
            axes.plot(100 * one.value, at + aside, "o", color=color, markersize=4)
