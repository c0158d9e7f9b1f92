"""Multi-label classification of synthetic images: two handwritten digits pasted onto one, both of which are the answer.

    python multi_label.py FOLDER

Everything is made from scikit-learn's digits and photographs, and a small ViT is trained from nothing, so the numbers
say how the commands work together, not how good a Hydra is. Prints the table as Markdown.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import datasets
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from small_vits import SIDE, photographs, untrained

import hydractl
from hydractl.reports.table import markdown_table, result_table

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SIZES = {"train": 4000, "search": 500, "calibration": 1000, "test": 1000}
TRAINED = {"settings": {"lr": 1e-3, "batch": 64, "warmup": 0.1}, "batch_size": 64}
ANSWERS = {
    "problem_type": "multi_label_classification",
    "id2label": dict(enumerate(NAMES)),
    "label2id": {name: at for at, name in enumerate(NAMES)},
}
MEMBERS, EPOCHS, MORE, DROPPED = 3, 10, 3, 4
OBJECTIVES = ("acc", "ood", "avg")


def pasted(digits: np.ndarray, targets: np.ndarray, count: int, seed: int) -> datasets.Dataset:
    """Two digits at random heights, one left and one right, and the names of both."""
    draw = np.random.default_rng(seed)
    rows: dict[str, list[object]] = {"image": [], "labels": []}
    for pair in draw.integers(len(digits), size=(count, 2)):
        canvas = np.zeros((SIDE, SIDE), np.uint8)
        for place, one in enumerate(pair):
            top, left = draw.integers(SIDE // 2 + 1), place * SIDE // 2
            canvas[top : top + SIDE // 2, left : left + SIDE // 2] = digits[one]
        rows["image"].append(Image.fromarray(canvas))
        rows["labels"].append(sorted({NAMES[targets[one]] for one in pair}))
    return datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())


def trained(networks: Sequence[object], data: Path, epochs: int) -> list[object]:
    """The networks after some passes over the training data, each with a seed of its own."""
    found = hydractl.finetune(networks, train_data=f"{data}/train.parquet", epochs=epochs, **TRAINED)
    return [one.checkpoint for one in found.networks]


def pruned(network: object, train: str) -> list[object]:
    """Members of the network, each without 4 of its 16 heads: two at random, one by Taylor scores."""
    found = [hydractl.prune(network, method="random", budget=DROPPED, seed=seed) for seed in range(MEMBERS - 1)]
    found.append(hydractl.prune(network, method="taylor", budget=DROPPED, id_data=train, samples=500))
    return [one.checkpoint for one in found]


def by_circuits(network: object, folder: Path) -> list[object]:
    """Members of the network without the first 4 heads of its circuits, searched for by F1 and AUROC against noise."""
    sets = {"id_data": f"{folder}/search.parquet", "ood_data": f"{folder}/noise.parquet"}
    found = hydractl.extract_circuit(network, **sets, objective=",".join(OBJECTIVES), budget=DROPPED)
    for name, ranking in found.rankings.items():
        print(f"circuit {name}: {', '.join(map(str, (step.head for step in ranking.steps)))}\n")
    each = (found.circuits[name] for name in OBJECTIVES)
    return [hydractl.prune(network, method="circuit", circuit=one, budget=DROPPED).checkpoint for one in each]


def noise(count: int) -> datasets.Dataset:
    """Images of random pixels."""
    pixels = np.random.default_rng(8).integers(256, size=(count, SIDE, SIDE), dtype=np.uint8)
    return datasets.Dataset.from_dict({"image": [Image.fromarray(one) for one in pixels]}).cast_column(
        "image", datasets.Image()
    )


def main(folder: Path) -> None:
    digits = load_digits()
    pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    parts = np.array_split(np.random.default_rng(0).permutation(len(pixels)), len(SIZES))  # no digit is in two sets
    for seed, ((name, count), own) in enumerate(zip(SIZES.items(), parts, strict=True)):
        pasted(pixels[own], digits.target[own], count, seed).to_parquet(folder / f"{name}.parquet")
    photographs(1000).to_parquet(folder / "photographs.parquet")
    noise(500).to_parquet(folder / "noise.parquet")
    starts = trained(
        [untrained(folder / f"untrained{seed}", seed, **ANSWERS) for seed in range(MEMBERS)], folder, EPOCHS
    )
    members = trained(pruned(starts[0], f"{folder}/train.parquet"), folder, MORE)
    searched = trained(by_circuits(starts[0], folder), folder, MORE)
    ensemble = trained(starts, folder, MORE)  # as long as the members
    systems = {"network": ensemble[0], "Hydra": hydractl.fuse(members), "Hydra, circuits": hydractl.fuse(searched)}
    systems["Deep Ensemble"] = hydractl.fuse(ensemble, separate="all")
    calibration = f"{folder}/calibration.parquet"
    report = hydractl.evaluate(
        {name: hydractl.calibrate(one, id_data=calibration) for name, one in systems.items()},
        id_data=f"{folder}/test.parquet",
        ood_data={"photographs": f"{folder}/photographs.parquet"},
    )
    print(markdown_table(result_table(report.report, full=False)))


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    main(Path(sys.argv[1]))
