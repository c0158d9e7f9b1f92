"""Regression on images: by which angle a handwritten digit is turned.

    python regression.py FOLDER

The digits are scikit-learn's, turned by angles drawn evenly from -1 to 1 radian, and a small ViT is trained from
nothing. Some digits look alike when turned, so the error differs from image to image. Prints the table as Markdown.
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

SIZES = {"train": 1000, "calibration": 1000, "test": 2000}
TRAINED = {"settings": {"lr": 1e-3, "batch": 64, "warmup": 0.1}, "batch_size": 64}
ANSWERS = {"problem_type": "regression", "num_labels": 1}
MEMBERS, EPOCHS, MORE = 3, 40, 10


def turned(digits: np.ndarray, count: int, seed: int) -> datasets.Dataset:
    """Digits on black, each turned by an angle, which is their label in radians."""
    draw = np.random.default_rng(seed)
    rows: dict[str, list[object]] = {"image": [], "angle": []}
    for one, angle in zip(draw.integers(len(digits), size=count), draw.uniform(-1, 1, size=count), strict=True):
        large = Image.fromarray(digits[one]).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        rows["image"].append(large.rotate(np.rad2deg(angle), Image.Resampling.BICUBIC))
        rows["angle"].append(float(angle))
    return datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())


def trained(networks: Sequence[object], data: Path, epochs: int) -> list[object]:
    """The networks after some passes over the training data, each with a seed of its own."""
    given = {"train_data": f"{data}/train.parquet", "label_column": "angle"}
    found = hydractl.finetune(networks, epochs=epochs, **given, **TRAINED)
    return [one.checkpoint for one in found.networks]


def pruned(network: object, data: Path) -> list[object]:
    """Members of the network, each without 4 of its 16 heads: two at random, one by Taylor scores."""
    found = [hydractl.prune(network, method="random", budget=4, seed=seed) for seed in range(MEMBERS - 1)]
    given = {"id_data": f"{data}/train.parquet", "label_column": "angle", "samples": 500}
    found.append(hydractl.prune(network, method="taylor", budget=4, **given))
    return [one.checkpoint for one in found]


def main(folder: Path) -> None:
    pixels = np.rint(load_digits().images * (255 / 16)).astype(np.uint8)
    parts = np.array_split(np.random.default_rng(0).permutation(len(pixels)), 3)  # no digit is in two sets
    for seed, ((name, count), own) in enumerate(zip(SIZES.items(), parts, strict=True)):
        turned(pixels[own], count, seed).to_parquet(folder / f"{name}.parquet")
    photographs(1000).to_parquet(folder / "photographs.parquet")
    starts = trained(
        [untrained(folder / f"untrained{seed}", seed, **ANSWERS) for seed in range(MEMBERS)], folder, EPOCHS
    )
    members = trained(pruned(starts[0], folder), folder, MORE)
    ensemble = trained(starts, folder, MORE)  # as long as the members
    systems = {"network": ensemble[0], "Hydra": hydractl.fuse(members)}
    systems["Deep Ensemble"] = hydractl.fuse(ensemble, separate="all")
    labels = {"label_column": "angle"}
    ready = {
        name: hydractl.calibrate(one, id_data=f"{folder}/calibration.parquet", **labels)
        for name, one in systems.items()
    }
    for name, one in ready.items():
        print(f"{name}: {one}\n")
    report = hydractl.evaluate(
        ready,
        id_data=f"{folder}/test.parquet",
        ood_data={"photographs": f"{folder}/photographs.parquet"},
        **labels,
    )
    print(markdown_table(result_table(report.report, full=False)))


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    main(Path(sys.argv[1]))
