"""Trains members from plain and from refitted starts, alike; results/refit.md.

    python tables/refit_training.py NETWORK --fit SOURCE --test SOURCE --train SOURCE --output FOLDER

Each of three members loses heads at random, or those of a `--circuit`, is refitted or not, and trains with the same
seed. With `--units` members lose MLP units too, above a trunk, and train together as one Hydra. Each length is a
training of its own, as the rate falls to 0 over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from refit_study import Measured, Study, options

import hydractl
from hydractl.checkpoint.contents import Checkpoint
from hydractl.surgery.slicing import split_members

HERE = Path(__file__).parent


def trained(study: Study, starts: Sequence[Checkpoint], form: str, steps: int) -> Sequence[Checkpoint]:
    """Returns networks that trained with the seeds 0, 1 and so on."""
    if not steps:
        return starts
    settings = [*study.given.set, f"steps={steps}"]
    how: dict[str, Any] = {"train_data": study.given.train, "recipe": study.given.recipe, "settings": settings}
    how["joint"] = study.given.units > 0
    how["limit"] = study.given.train_samples
    output = study.folder / f"{form}{{member}}-{study.given.heads[0]}-{steps}.safetensors"
    return hydractl.finetune(starts, **how, output=output, resume=True).checkpoints


def pruned_members(study: Study) -> list[Checkpoint]:
    """Returns members without random heads or those of circuits, and without MLP units above a trunk."""
    given = study.given
    networks = [study.network] * given.members
    if given.units:
        how = {"id_data": given.fit, "limit": given.inputs, "units": given.units, "members": given.members}
        how |= {"budget": 0, "trunk": given.trunk, "scope": "layer"}
        networks = hydractl.prune(study.network, method="deviation", **how).checkpoints
    if given.circuit:
        return [
            hydractl.prune(each, method="circuit", circuit=circuit, budget=given.heads[0]).checkpoint
            for each, circuit in zip(networks, given.circuit, strict=True)
        ]
    how = {"budget": given.heads[0], "trunk": given.trunk, "scope": "layer" if given.units else None}
    return [hydractl.prune(each, method="random", seed=seed, **how).checkpoint for seed, each in enumerate(networks)]


def started(study: Study, pruned: Sequence[Checkpoint], form: str) -> Sequence[Checkpoint]:
    """Returns what trains: members that are refitted or not, fused if they train together."""
    members = [study.formed(each, form) for each in pruned]
    return [hydractl.fuse(members).checkpoint] if study.given.units else members


def merged(study: Study, members: Sequence[Checkpoint], refits: bool) -> Checkpoint:
    """Returns members fused, their MLPs averaged, and the output maps then refitted to each member as it was."""
    fused = hydractl.fuse(members).checkpoint
    if not refits:
        return fused
    parts = zip(members, split_members(fused), strict=True)
    return hydractl.fuse([study.refitted(part, member) for member, part in parts], separate="all").checkpoint


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--train", required=True, help="labelled samples to train on")
    parser.add_argument("--train-samples", type=int, default=16000)
    parser.add_argument("--recipe", default=str(HERE / "cifar10.toml"))
    parser.add_argument("--set", nargs="*", default=["lr=3e-4", "batch=64", "label_smoothing=0"])
    parser.add_argument("--steps", nargs="*", type=int, default=[0, 50, 100, 200])
    parser.add_argument("--merge", type=int, default=100, help="steps after which MLPs of members are averaged")
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--units", type=int, default=0, help="MLP units that a member loses")
    parser.add_argument("--trunk", type=int, help="layers that members share and that lose nothing")
    study = Study(parser.parse_args())
    [heads, *_] = study.given.heads
    pruned = pruned_members(study)
    print(f"multiply-adds of the members fused, the network's = 1: {study.cost(pruned):.2f}", flush=True)
    dense = study.measured([[study.answers_with_ood("network", lambda: study.network)]])
    print("| steps, start | systems | accuracy % | NLL | AUROC % |\n|---|---|---|---|---|")
    print(f"| network | | {dense.beside(dense)} |")
    starts: dict[str, Sequence[Checkpoint]] = {}
    earlier: dict[tuple[str, str], Measured] = {}
    for steps in study.given.steps:
        both: dict[tuple[str, str], Measured] = {}
        for form in ("plain", "refitted"):
            names = [f"random{number}-{heads}-{form}{f'-{steps}' if steps else ''}" for number in range(len(pruned))]
            names = [f"fused-{form}-{steps}"] if study.given.units else names
            starts[form] = starts.get(form) or started(study, pruned, form)
            made = trained(study, starts[form], form, steps)
            found = [
                study.answers_with_ood(name, lambda each=each: each) for name, each in zip(names, made, strict=True)
            ]
            merges = form == "refitted" and steps == study.given.merge and not study.given.units
            for refits in (False, True) if merges else ():
                name = f"merged-{heads}-{form}-{steps}{'-refitted' * refits}"
                answers = study.answers_with_ood(name, partial(merged, study, made, refits))
                cells = study.measured([[answers]]).beside(study.measured([found]))
                print(f"| {steps}, {form}, to members apart | merged{', refitted' * refits} | {cells} |", flush=True)
            ways = (([[each] for each in found], "members, mean"), ([found], "fused"))
            for systems, how in ways[study.given.units > 0 :]:
                measured = both[form, how] = study.measured(systems)
                print(f"| {steps}, {form} | {how} | {measured.beside(dense)} |", flush=True)
        for how in ("members, mean", "fused")[study.given.units > 0 :]:
            after = both["refitted", how]
            print(f"| {steps}, refitted to plain | {how} | {after.beside(both['plain', how])} |", flush=True)
            if earlier:
                again = earlier["refitted", how]
                print(f"| refitted before, to {steps} plain | {how} | {again.beside(both['plain', how])} |", flush=True)
        earlier = both


if __name__ == "__main__":
    main()
