"""Writes the digits example's data: 1,797 real handwritten digits and two photographs, all from inside scikit-learn.

    python digits_data.py FOLDER

    FOLDER/digits/{train,validation,test}/{zero,...,five}/*.png   in-distribution, 8x8 grey
    FOLDER/near_search, FOLDER/near_test                           digits 8 and 9, and 6 and 7: OOD, but close
    FOLDER/far_search, FOLDER/far_test                             patches of one photograph, and of the other: far

What ends in `_search` is for choosing heads, what ends in `_test` for evaluation: a network that was chosen to know one
kind of stranger is measured on another.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from sklearn.datasets import load_digits, load_sample_images

NAMES = ("zero", "one", "two", "three", "four", "five")
SIDE = 8  # pixels of a digit, so of a patch
SHRINK = 4  # photographs are shrunk before they are cut, or a patch would be a plain grey square
SEED = 0


def save(pixels: np.ndarray, folder: Path) -> None:
    """Writes [N,8,8] bytes as grey PNG files, numbered in order."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{i:04}.png")


def photograph_patches() -> tuple[np.ndarray, np.ndarray]:
    """The patches of each of the two photographs as [N,8,8] bytes: grey, without overlap, each from black to white.

    A scanned digit spans the whole range too: contrast alone must not give a patch away.
    """
    patches, origins = [], []
    for origin, photograph in enumerate(load_sample_images().images):
        grey = Image.fromarray(photograph).convert("L").reduce(SHRINK)
        for top in range(0, grey.height - SIDE + 1, SIDE):
            for left in range(0, grey.width - SIDE + 1, SIDE):
                patch = ImageOps.autocontrast(grey.crop((left, top, left + SIDE, top + SIDE)))
                patches.append(np.asarray(patch))
                origins.append(origin)
    # A flat piece of sky looks like the next, and is taken once.
    once, first = np.unique(patches, axis=0, return_index=True)
    of_second = np.array(origins)[first] == 1
    return once[~of_second], once[of_second]


def main(folder: Path) -> None:
    shuffle = np.random.default_rng(SEED).permutation
    digits = load_digits()
    pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)  # scikit-learn counts ink from 0 to 16
    for digit, name in enumerate(NAMES):
        images = pixels[shuffle(np.flatnonzero(digits.target == digit))]
        train, validation, test = np.split(images, [int(0.6 * len(images)), int(0.8 * len(images))])
        save(train, folder / "digits" / "train" / name)
        save(validation, folder / "digits" / "validation" / name)
        save(test, folder / "digits" / "test" / name)
    for name, pair in (("near_search", (8, 9)), ("near_test", (6, 7))):
        save(pixels[shuffle(np.flatnonzero(np.isin(digits.target, pair)))], folder / name)
    for name, patches in zip(("far_search", "far_test"), photograph_patches(), strict=True):
        save(shuffle(patches), folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
