"""Embeddings of sentences: what a Hydra of a sentence encoder keeps of its neighbourhoods, and what it finds odd.

    python embeddings.py NETWORK FOLDER --texts TRAIN TEST [--ood NAME=SOURCE ...] [--budget N] [--steps N]

NETWORK is a folder of sentence-transformers, TRAIN and TEST are data sets of texts, whose labels are not read. Members
lose a third of the heads by default, and learn to embed as NETWORK does. Prints the table as Markdown.
"""

import argparse
from pathlib import Path

import hydractl
from hydractl.reports.table import markdown_table, result_table

CALIBRATION = 1000  # texts of TRAIN that are kept out of learning
LEARNT = 13_000  # the first text behind those that are learnt from


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", nargs=2, required=True, metavar=("TRAIN", "TEST"))
    parser.add_argument("--ood", nargs="*", default=[])
    parser.add_argument("--column", help="the column of the texts")
    parser.add_argument("--budget", type=int, help="heads that each member loses")
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    train, test = given.texts
    heads = sum(len(layer[0]) for kept in hydractl.load(given.network).heads.values() for layer in kept)
    budget, column = given.budget or heads // 3, {"text_column": given.column}
    split = train if ":" in train else f"{train}:"
    few, held, learnt = (f"{split}[{rows}]" for rows in (":256", f":{CALIBRATION}", f"{CALIBRATION}:{LEARNT}"))

    def pruned(method: str, seed: int) -> object:
        options = {"id_data": few, **column} if method == "taylor" else {"seed": seed}
        return hydractl.prune(given.network, method=method, budget=budget, **options)

    def taught(members: list[object]) -> list[object]:
        options = {"teacher": given.network, "train_data": learnt, "steps": given.steps, "batch_size": 32, **column}
        made = hydractl.finetune(members, settings={"lr": 1e-4, "batch": 32, "warmup": 0.1}, **options)
        return list(getattr(made, "networks", [made]))

    by_taylor = pruned("taylor", 0)
    at_random = [pruned("random", seed) for seed in range(3)]
    members = taught([by_taylor, *at_random])
    systems = {
        "network": given.network,
        "pruned by taylor": by_taylor,
        "pruned at random": at_random[0],
        "taylor, taught": members[0],
        "random, taught": members[1],
        "Hydra of three at random, untaught": hydractl.fuse(at_random),
        "Hydra of three at random, taught": hydractl.fuse(members[1:]),
        "the same, not merged": hydractl.fuse(members[1:], separate="all"),
    }
    files = {}
    for name, system in systems.items():
        files[name] = given.folder / f"{name.replace(' ', '-').replace(',', '')}.safetensors"
        hydractl.calibrate(system, id_data=held, output=files[name], force=True, **column)
    found = hydractl.evaluate(files, id_data=test, ood_data=given.ood, **column)
    print(markdown_table(result_table(found.report)))


if __name__ == "__main__":
    main()
