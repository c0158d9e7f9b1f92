"""A drill for `hydractl monitor`: a camera goes out of focus, new classes appear, class shares shift.

    python drill.py FOLDER [STEPS]

Trains a small ViT on the digits 0 to 5 inside scikit-learn for STEPS steps (1,000), calibrates it on 250 images that
it has not seen, and watches four streams. Each begins with 190 fresh images; then 190 others come: fresh ones too, the
same out of focus, a third of them digits 6 and 7, or mostly zeros. Prints a table of what each number says.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import digits_data
import numpy as np
import vit_model
from PIL import Image, ImageFilter
from sklearn.datasets import load_digits

import hydractl
from hydractl.monitoring.estimates import estimates

HALF = 190  # images in each half of a stream
BLUR = 0.7  # pixels of 8
NEW = HALF // 3


def images() -> tuple[np.ndarray, np.ndarray]:
    """All digits, shuffled: `[N,8,8]` bytes and their labels."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    return np.rint(digits.images * (255 / 16)).astype(np.uint8)[order], digits.target[order]


def blurred(pixels: np.ndarray) -> np.ndarray:
    return np.stack([np.asarray(Image.fromarray(one).filter(ImageFilter.GaussianBlur(BLUR))) for one in pixels])


def halves(fresh: np.ndarray, labels: np.ndarray, new: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """The second half of each stream, and its labels; None for images that have no right answer."""
    zeros = np.flatnonzero(labels == 0)
    shifted = np.concatenate([zeros, np.flatnonzero(labels != 0)[: len(zeros) // 3]])
    return {
        "all is well": (fresh, labels),
        "out of focus": (blurred(fresh), labels),
        "new classes": (np.concatenate([fresh[: HALF - NEW], new[:NEW]]), None),
        "mostly zeros": (fresh[shifted], labels[shifted]),
    }


def prepare(folder: Path, steps: int) -> tuple[Path, dict[str, tuple[np.ndarray, np.ndarray | None]], np.ndarray]:
    """Trains and calibrates; returns the file, the second halves, and the first."""
    pixels, labels = images()
    known = labels < len(digits_data.NAMES)
    own, own_labels = pixels[known], labels[known]
    parts = np.split(np.arange(len(own)), np.cumsum([len(own) - 250 - 2 * HALF, 250, HALF]))
    for name, part in zip(("train", "calibration"), parts[:2], strict=True):
        for digit, word in enumerate(digits_data.NAMES):
            digits_data.save(own[part][own_labels[part] == digit], folder / "digits" / name / word)
    vit_model.main(vit_model.NETWORKS["digits"], folder / "untrained")
    recipe = Path(__file__).parent / "digits.toml"
    tuned = hydractl.finetune(
        folder / "untrained", train_data=folder / "digits" / "train", recipe=recipe, steps=steps, device="cpu"
    )
    hydractl.calibrate(tuned, id_data=folder / "digits" / "calibration", output=folder / "model.safetensors")
    new = pixels[(labels == 6) | (labels == 7)]
    return folder / "model.safetensors", halves(own[parts[3]], own_labels[parts[3]], new), own[parts[2]]


def row(model: Any, first: np.ndarray, second: np.ndarray, labels: np.ndarray | None) -> list[str]:
    """What the numbers say of one stream: evidence of both halves, all else of the second."""
    order = np.random.default_rng(1).permutation(len(second))
    whole, recent = hydractl.Monitor(model), hydractl.Monitor(model)
    whole.update(model.predict([Image.fromarray(one) for one in first]))
    answer = model.predict([Image.fromarray(second[at]) for at in order])
    whole.update(answer)
    recent.update(answer)
    found, now = whole.findings(), recent.findings()
    estimated = estimates(recent.streams[0].answered, recent.known.baseline)  # also where many look OOD
    said = [digits_data.NAMES.index(label) for label in answer.labels]
    [zero] = (one for one in now.classes if one.name == "zero")
    return [
        f"{found.highest:.3g}",
        str(found.alarm_at or "-"),
        " ".join(str(one.layer) for one in found.layers if one.moved) or "-",
        f"{answer.typicality.mean():.2f}",
        f"{100 * now.flagged.value:.0f}",
        f"{100 * now.confidence:.0f}",
        *(str(estimated[name]) for name in ("mean confidence", "ATC")),
        "-" if labels is None else f"{100 * np.mean(np.array(said) == labels[order]):.0f} %",
        f"{100 * zero.estimated.value:.0f} ({100 * zero.calibrated:.0f})",
    ]


def main(folder: Path, steps: int) -> None:
    file, seconds, first = prepare(folder, steps)
    model = hydractl.load(file)
    names = ("second half", "highest evidence", "alarm at input", "layers", "mean typicality", "look OOD, %")
    names += (
        "mean confidence, %",
        "accuracy by mean confidence",
        "accuracy by ATC",
        "accuracy",
        "zeros by EM (calibration), %",
    )
    print(f"| {' | '.join(names)} |\n|---|{'---:|' * (len(names) - 1)}")
    for name, (second, labels) in seconds.items():
        print(f"| {name} | {' | '.join(row(model, first, second, labels))} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
