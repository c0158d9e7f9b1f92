"""A selection as text: the curve of the objective against the number of members and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def curve_lines(selection: Mapping[str, Any]) -> Iterator[str]:
    """A line for the network itself, and one for each member that joined, with all numbers from there on.

    Args:
        selection: a `hydractl-selection` artifact.
    """
    rows = [("network", selection["baseline"])]
    rows += [(step["candidate"], step) for step in selection["curve"]]
    width = max(len(name) for name, _ in rows)
    dense, chosen = selection["baseline"]["multiply_adds"], len(selection["members"])
    yield f"{'M':>3}    {'candidate':<{width}}  accuracy    AUROC      NLL  multiply-adds"
    for number, (name, row) in enumerate(rows):
        mark = "*" if number == chosen else " "
        auroc = "       -" if row["auroc"] is None else f"{100 * row['auroc']:6.2f} %"
        numbers = f"{100 * row['accuracy']:6.2f} %  {auroc}  {row['nll']:7.4f}"
        yield f"{number or '':>3} {mark}  {name:<{width}}  {numbers}  {row['multiply_adds'] / dense:12.2f}x"


def selection_facts(selection: Mapping[str, Any]) -> dict[str, object]:
    """What there is to know of a selection at a glance."""
    chosen = selection["curve"][len(selection["members"]) - 1]
    return {
        "objective": selection["objective"],
        "members": ", ".join(member["candidate"] for member in selection["members"]),
        "chosen from": f"{len(selection['candidates'])} candidates",
        "accuracy": f"{100 * chosen['accuracy']:.2f} % (network: {100 * selection['baseline']['accuracy']:.2f} %)",
        "NLL": f"{chosen['nll']:.4f} (network: {selection['baseline']['nll']:.4f})",
        **_auroc(chosen, selection["baseline"]),
        "mult-adds": f"{chosen['multiply_adds'] / selection['baseline']['multiply_adds']:.2f} x the network's",
    }


def _auroc(chosen: Mapping[str, Any], baseline: Mapping[str, Any]) -> dict[str, object]:
    if chosen["auroc"] is None:
        return {}
    return {"AUROC": f"{100 * chosen['auroc']:.2f} % (network: {100 * baseline['auroc']:.2f} %)"}
