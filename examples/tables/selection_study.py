"""What should members be chosen among? Selections on a few samples, measured on all others, again and again.

    python selection_study.py MODEL ID_DATA --circuit FILE ... --test-ood [NAME=]SOURCE ... \\
        --budgets 3,6,12 --pools 18 --draws 4 --random 12 --choose 500 --splits 6 --answers answers.npz

All candidates answer all samples once; ANSWERS keeps what they say, so that other sizes can be tried in seconds. Then
the ID samples are divided at random, SPLITS times: members are chosen on CHOOSE of them by `select`'s own code, get a
temperature there, and are measured on the others and on the OOD sets. Nothing is trained. Prints a Markdown table of
the mean difference to the network, with the standard deviation over the divisions, which overlap: it tells how much the
choice varies, and is no interval.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import numpy as np

from hydractl.checkpoint.heads import member_heads
from hydractl.checkpoint.output import write_bytes
from hydractl.circuit.objective import Material
from hydractl.data.ranks import Ranks
from hydractl.data.reading import Reading
from hydractl.data.samples import Samples
from hydractl.inputs.members import named_circuits
from hydractl.inputs.search_data import open_material
from hydractl.metrics.arrays import mean_probabilities
from hydractl.metrics.detection import ood_metrics
from hydractl.metrics.scaling import fit_temperature
from hydractl.run_options import DEFAULT_BATCH_SIZE, Compute
from hydractl.selection.candidates import Sources, candidate_set, counts
from hydractl.selection.greedy import CandidateLogits, quality
from hydractl.selection.pool import CandidatePool, Criteria, choose, gather
from hydractl.selection.selection_run import CandidateNetworks, SelectionRun, logits_of
from hydractl.watch import LOG

OOD = "ood "  # what names of OOD sets begin with in the file of answers
RULE = Criteria((3, 3))


@dataclass(frozen=True)
class Answers:
    """What all candidates say of the ID samples, and of each OOD set, `[K,N,C]`."""

    inside: CandidateLogits
    outside: list[np.ndarray]


#: Of the names of candidates: what their circuits say alone, with draws from their first heads, draws from all heads.
AMONG: Mapping[str, Callable[[str], bool]] = {
    "circuits": lambda name: "seed" not in name,
    "circuits and their draws": lambda name: not name.startswith("random"),
    "draws from all heads": lambda name: name.startswith(("random", "dense")),
    "all of these": lambda name: True,
}


def sources(asked: argparse.Namespace, material: Material) -> Sources:
    """Where candidates come from, as options say."""
    heads = member_heads(material.checkpoint.heads, 0)
    circuits = named_circuits(asked.circuit, material.checkpoint)
    budgets, pools = (counts(name, getattr(asked, name), len(heads)) for name in ("budgets", "pools"))
    rankings = {name: circuit.ranking for name, circuit in circuits.items()}
    return Sources(heads, rankings, budgets, pools, asked.draws, asked.random)


def logits_on(samples: Samples, material: Material, candidates: CandidatePool) -> np.ndarray:
    """Returns the logits `[K,N,C]` of all candidates on an OOD set."""
    batches = material.batches(replace(samples, labels=None), DEFAULT_BATCH_SIZE)
    networks = [CandidateNetworks(material.model, [candidate.dropped for candidate in candidates.dropped])]
    order = np.concatenate([batch.positions.numpy() for batch in batches])
    logits = np.concatenate([logits_of(networks, batch, material.device) for batch in batches], axis=1)
    return logits[:, np.argsort(order)]


def all_answers(path: Path, material: Material, candidates: CandidatePool) -> Answers:
    """What all candidates say of all samples, kept in a file."""
    if not path.exists():
        found = SelectionRun(material, DEFAULT_BATCH_SIZE, Ranks(), LOG).answers(candidates)
        outside = {f"{OOD}{name}": logits_on(samples, material, candidates) for name, samples in material.ood.items()}
        arrays = {"inside": found.logits, "labels": found.labels, "names": np.array(candidates.names), **outside}
        written = BytesIO()
        np.savez(written, allow_pickle=False, **arrays)
        write_bytes(path, written.getvalue())
    kept = np.load(path)
    if list(kept["names"]) != candidates.names:
        raise SystemExit(f"{path}: holds other candidates: name another file")
    outside = [kept[f"{OOD}{name}"] for name in material.ood]
    inside = CandidateLogits(material.model.task, kept["inside"], kept["labels"], material.model.temperature)
    return Answers(inside, outside)


def measured(answers: Answers, chosen: list[int], tuned: CandidateLogits) -> np.ndarray:
    """Accuracy in %, NLL, mean AUROC in % of some candidates together, with a temperature fitted on other samples."""
    temperature = fit_temperature(tuned.logits[chosen], tuned.labels).temperature
    found = quality(replace(answers.inside, temperature=temperature), chosen)
    inside, *outside = (
        1 - mean_probabilities(logits[chosen], temperature).max(-1)
        for logits in (answers.inside.logits, *answers.outside)
    )
    auroc = np.mean([ood_metrics(inside, scores).auroc for scores in outside])
    return np.array([100 * float(found.accuracy), found.nll, 100 * float(auroc)])


def divisions(samples: int, size: int, times: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The places of the ID samples to choose on, and of those to measure on."""
    generator = np.random.default_rng(0)
    for _ in range(times):
        order = generator.permutation(samples)
        yield order[:size], order[size:]


def divided(answers: Answers, for_choice: np.ndarray, for_test: np.ndarray) -> tuple[CandidateLogits, Answers]:
    """What is said of the samples to choose on, and of those to measure on."""
    inside = answers.inside
    chosen_on, measured_on = (
        replace(inside, logits=inside.logits[:, places], labels=inside.labels[places])
        for places in (for_choice, for_test)
    )
    return chosen_on, replace(answers, inside=measured_on)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("id_data")
    parser.add_argument("--circuit", nargs="+", required=True)
    parser.add_argument("--test-ood", nargs="+", required=True)
    parser.add_argument("--budgets", default="8%,17%,33%")
    parser.add_argument("--pools", default="50%")
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--random", type=int, default=12)
    parser.add_argument("--choose", type=int, default=500)
    parser.add_argument("--splits", type=int, default=6)
    parser.add_argument("--answers", type=Path, required=True)
    asked = parser.parse_args()
    reading = Reading()
    material = open_material(
        asked.model, asked.id_data, asked.test_ood, reading=reading, compute=Compute("cpu", "float32"), watch=LOG
    )
    whole = gather(material.checkpoint, [candidate_set(sources(asked, material))])
    answers = all_answers(asked.answers, material, whole)

    gains: dict[str, list[np.ndarray]] = {}
    for places in divisions(len(answers.inside.labels), asked.choose, asked.splits):
        chosen_on, measured_on = divided(answers, *places)
        network = measured(measured_on, [0], chosen_on)
        for among, belongs in AMONG.items():
            own = replace(whole, sets=(tuple(k for k, name in enumerate(whole.names) if belongs(name)),))
            members = list(choose(chosen_on, own, RULE).curve.chosen)
            gains.setdefault(among, []).append(measured(measured_on, members, chosen_on) - network)
    print("| among | accuracy, points | NLL | mean AUROC, points |\n|---|---|---|---|")
    for among, of_divisions in gains.items():
        means, deviations = np.mean(of_divisions, axis=0), np.std(of_divisions, axis=0)
        cells = (f"{m:+.{d}f} ± {s:.{d}f}" for m, s, d in zip(means, deviations, (2, 4, 2), strict=True))
        print(f"| {among} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
