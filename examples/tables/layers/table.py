"""Asks one layer or all of them: systems on one table, each by three OOD scores, with paired 95 % intervals.

    python table.py NAME=MODEL ... --calib-data SOURCE --id-data SOURCE --ood-data [NAME=]SOURCE ... -o FOLDER

Every system is calibrated on the same data for each score. Each file answers once; its predictions stay in FOLDER, and
a run that was interrupted goes on. Prints Markdown: first what all layers change, then what systems add to the first.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hydractl

SCORES = ("msp", "mahalanobis", "layers")
Entry = Mapping[str, Any]


def calibrated(systems: Mapping[str, str], given: argparse.Namespace) -> dict[str, Path]:
    """Returns a file of each system for each score, by the name of both."""
    found = {}
    for name, model in systems.items():
        for score in SCORES:
            path = found[f"{name}, {score}"] = given.output / f"{name}-{score}.safetensors"
            if not path.exists():
                hydractl.calibrate(
                    model, id_data=given.calib_data, ood_score=score, limit=given.fit, output=path, dtype=given.dtype
                )
    return found


def compared(first: str, second: str, folder: Path) -> Mapping[str, Entry]:
    """Returns the numbers of two of the files, the second one's with their difference to the first."""
    pair = {name: f"predictions:{folder / name}" for name in (first, second)}
    return hydractl.evaluate(pair).models


def cell(numbers: Entry) -> str:
    return f"{100 * numbers['auroc']:.1f} / {100 * numbers['fpr95']:.1f}"


def change(found: Entry, scale: float = 100) -> str:
    """Returns a difference with its interval."""
    low, high = found["interval"]
    digits = 1 if scale == 100 else 3
    return f"{scale * found['value']:+.{digits}f} ({scale * low:+.{digits}f} to {scale * high:+.{digits}f})"


def table(header: Sequence[str], rows: Iterator[Sequence[str]]) -> None:
    """Prints a Markdown table."""
    print(f"\n| {' | '.join(header)} |\n{'|---' * len(header)}|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def print_tables(systems: Sequence[str], models: Mapping[str, Entry], folder: Path) -> None:
    """Prints every number, what all layers change in each system, and what each system adds to the first one."""
    first = next(iter(models.values()))
    whole, sets = list(first["ood_means"])[-1], list(first["ood"])

    def numbers() -> Iterator[Sequence[str]]:
        for name, entry in models.items():
            flagged = f"{100 * (1 - entry['typicality']['coverage']):.1f}" if "typicality" in entry else "-"
            yield (name, f"{entry['cost']['multiply_adds'] / first['cost']['multiply_adds']:.2f}",
                   f"{100 * entry['id']['accuracy']:.1f}", f"{entry['id']['nll']:.3f}", flagged,
                   cell(entry["ood_means"][whole]), *(cell(entry["ood"][one]) for one in sets))  # fmt: skip

    def pairs() -> Iterator[Sequence[str]]:
        for name in systems:
            for score in SCORES[:-1]:
                yield row(f"{name}, {score}", f"{name}, {SCORES[-1]}")
        for name in systems[1:]:
            yield row(f"{systems[0]}, {SCORES[-1]}", f"{name}, {SCORES[-1]}")

    def row(one: str, other: str) -> Sequence[str]:
        found = compared(one, other, folder)[other]["difference"]
        mean = found["ood_means"][whole]
        return (f"{other} less {one}", change(mean["auroc"]), change(mean["fpr95"]), change(found["id"]["nll"], 1),
                *(change(found["ood"][one]["auroc"]) for one in sets))  # fmt: skip

    table(["system, score", "cost", "accuracy %", "NLL", "ID flagged %", "mean AUROC / FPR95 %", *sets], numbers())
    table(["difference", "mean AUROC", "mean FPR95", "NLL", *(f"AUROC {name}" for name in sets)], pairs())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="+", metavar="NAME=MODEL")
    parser.add_argument("--calib-data", required=True)
    parser.add_argument("--id-data", required=True)
    parser.add_argument("--ood-data", nargs="+", required=True)
    parser.add_argument("--fit", type=int, default=1000, help="samples to calibrate on")
    parser.add_argument("--limit", type=int, help="samples of each set to measure")
    parser.add_argument("--dtype")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    if unnamed := [system for system in given.systems if "=" not in system]:
        parser.error(f"{unnamed[0]}: expected NAME=MODEL")
    systems = dict(system.split("=", 1) for system in given.systems)
    given.output.mkdir(parents=True, exist_ok=True)
    predictions = given.output / "predictions"
    found = hydractl.evaluate(
        calibrated(systems, given),
        id_data=given.id_data,
        ood_data=given.ood_data,
        limit=given.limit,
        dtype=given.dtype,
        save_logits=predictions,
        resume=predictions.exists(),
        bootstrap=0,
    )
    print_tables(list(systems), found.models, predictions)


if __name__ == "__main__":
    main()
