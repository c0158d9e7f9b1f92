"""Writes the digits example's data: 1,797 real handwritten digits and two photographs, all from inside scikit-learn.

    python digits_data.py FOLDER

    FOLDER/digits/{train,validation,test}/{zero,...,five}/*.png   in-distribution, 8x8 grey
    FOLDER/near_search, FOLDER/near_test                           digits 6 to 9: out-of-distribution, but close
    FOLDER/far_search, FOLDER/far_test                             patches of the photographs: far from any digit

The `_search` halves are for choosing heads, the `_test` halves for evaluation; no image is in both.
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


def photograph_patches() -> np.ndarray:
    """The patches of the two photographs as [N,8,8] bytes: grey, without overlap, each from black to white.

    A scanned digit spans the whole range too: contrast alone must not give a patch away.
    """
    patches = []
    for photograph in load_sample_images().images:
        grey = Image.fromarray(photograph).convert("L").reduce(SHRINK)
        for top in range(0, grey.height - SIDE + 1, SIDE):
            for left in range(0, grey.width - SIDE + 1, SIDE):
                patch = ImageOps.autocontrast(grey.crop((left, top, left + SIDE, top + SIDE)))
                patches.append(np.asarray(patch))
    return np.unique(patches, axis=0)  # a flat piece of sky looks like the next, and belongs in one half only


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
    near = pixels[shuffle(np.flatnonzero(digits.target >= len(NAMES)))]
    far = shuffle(photograph_patches())
    for name, images in (("near", near), ("far", far)):
        save(images[::2], folder / f"{name}_search")
        save(images[1::2], folder / f"{name}_test")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
