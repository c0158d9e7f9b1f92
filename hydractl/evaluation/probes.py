"""Probes: inputs made from an owner's own samples that a network should answer less surely, or flag.

A new probe is a row. The seed and the place of a sample determine all random draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator
from PIL import Image

from hydractl.data.corrupt import to_image, to_pixels
from hydractl.data.corruptions import parse_corruptions
from hydractl.data.images import Lazy, with_channels
from hydractl.data.samples import Samples, spread_places
from hydractl.data.words import Words

SIDE = 512  # pixels: larger images are reduced before they are changed, which no network of this size can see
CELLS = 3  # parts along a side of an image
BLANKS = ("...", "-", "?", ".")


@dataclass(frozen=True)
class Probe:
    """A way to change inputs.

    Attributes:
        keeps_label: whether a person would still give the changed input its label.
        change: from an input, another sample's and random draws to the changed input; images are RGB.
    """

    name: str
    keeps_label: bool
    help: str
    change: Callable[[Any, Any, Generator], Any]


def _worse(name: str, image: Image.Image, _other: Image.Image, draw: Generator) -> Image.Image:
    """Returns an image with the corruption of a name at its worst."""
    [(kind, severity)] = parse_corruptions(f"{name}:5")
    return to_image(kind.function(to_pixels(image), kind.strength(severity, image.size), draw))


def _dark(image: Image.Image, _other: Image.Image, _draw: Generator) -> Image.Image:
    return to_image(to_pixels(image) * 0.2)


def _inverted(image: Image.Image, _other: Image.Image, _draw: Generator) -> Image.Image:
    return to_image(1 - to_pixels(image))


def _turned(image: Image.Image, _other: Image.Image, _draw: Generator) -> Image.Image:
    return image.transpose(Image.Transpose.ROTATE_180)


def _shuffled(image: Image.Image, _other: Image.Image, draw: Generator) -> Image.Image:
    """Returns an image whose equal parts have changed places; what is beyond them keeps its place."""
    x = to_pixels(image)
    down, across = (min(CELLS, size) for size in x.shape[:2])
    height, width = len(x) // down, x.shape[1] // across
    rows = [x[at : at + height] for at in range(0, height * down, height)]
    parts = [row[:, at : at + width] for row in rows for at in range(0, width * across, width)]
    order = draw.permutation(len(parts)).reshape(down, across)
    shuffled = np.vstack([np.hstack([parts[at] for at in line]) for line in order])
    changed = x.copy()
    changed[: len(shuffled), : shuffled.shape[1]] = shuffled
    return to_image(changed)


def _blended(image: Image.Image, other: Image.Image, _draw: Generator) -> Image.Image:
    return Image.blend(image, other.resize(image.size), 0.5)


def _plain(image: Image.Image, _other: Image.Image, _draw: Generator) -> Image.Image:
    """Returns the mean colour of an image, everywhere."""
    x = to_pixels(image)
    return to_image(np.broadcast_to(x.mean(axis=(0, 1)), x.shape))


IMAGE_PROBES = (
    Probe("noise", True, "a sensor's noise", partial(_worse, "gaussian_noise")),
    Probe("blur", True, "out of focus", partial(_worse, "defocus_blur")),
    Probe("low resolution", True, "coarse pixels", partial(_worse, "pixelate")),
    Probe("JPEG", True, "strongly compressed", partial(_worse, "jpeg_compression")),
    Probe("dark", True, "a fifth of the light", _dark),
    Probe("inverted", True, "as a negative", _inverted),
    Probe("upside down", False, "turned by half", _turned),
    Probe("parts shuffled", False, "nine parts change places", _shuffled),
    Probe("two blended", False, "half another image", _blended),
    Probe("plain colour", False, "the mean colour of each image", _plain),
)

Text = str | tuple[str, str]
#: From the words of a text, those of another one and random draws to other words.
Reword = Callable[[Sequence[str], Sequence[str], Generator], Sequence[str]]


def _reworded(reword: Reword, text: Text, other: Text, draw: Generator) -> Text:
    """Returns a text, or both of a pair, with other words; of a text without blanks each character is one."""
    if isinstance(text, tuple):
        first, second = (str(_reworded(reword, *pair, draw)) for pair in zip(text, other, strict=True))
        return first, second
    words, others = (_parts(each) for each in (text, other))
    changed = reword(words, others, draw)
    return Words.of(changed) if isinstance(text, Words) else ("" if _unspaced(text) else " ").join(changed)


def _unspaced(text: str) -> bool:
    return len(text.split()) < 2


def _parts(text: Text) -> Sequence[str]:
    if isinstance(text, Words):
        return text.words
    text = text if isinstance(text, str) else " ".join(text)
    return list(text) if _unspaced(text) else text.split()


def _mixed(words: Sequence[str], _others: Sequence[str], draw: Generator) -> Sequence[str]:
    return [words[at] for at in draw.permutation(len(words))]


def _misspelled(words: Sequence[str], _others: Sequence[str], draw: Generator) -> Sequence[str]:
    """Returns words of which every second one has two neighbouring letters in each other's place."""

    def misspelled(word: str) -> str:
        if len(word) < 3 or draw.random() < 0.5:
            return word
        at = int(draw.integers(len(word) - 1))
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]

    return [misspelled(word) for word in words]


def _halved(words: Sequence[str], others: Sequence[str], _draw: Generator) -> Sequence[str]:
    return [*words[: (len(words) + 1) // 2], *others[len(others) // 2 :]]


def _random(words: Sequence[str], others: Sequence[str], draw: Generator) -> Sequence[str]:
    """Returns as many words of as many letters, each letter one of both texts."""
    letters = list("".join([*words, *others])) or list(BLANKS[0])
    return ["".join(draw.choice(letters, max(len(word), 1))) for word in words]


def _repeated(words: Sequence[str], _others: Sequence[str], draw: Generator) -> Sequence[str]:
    return [words[int(draw.integers(len(words)))]] * len(words)


def _empty(_words: Sequence[str], _others: Sequence[str], draw: Generator) -> Sequence[str]:
    return [BLANKS[int(draw.integers(len(BLANKS)))]]


TEXT_PROBES = (
    Probe("letters broken", True, "every second word is misspelled", partial(_reworded, _misspelled)),
    Probe("words shuffled", False, "in a random order", partial(_reworded, _mixed)),
    Probe("half another", False, "the second half is another text's", partial(_reworded, _halved)),
    Probe("random letters", False, "words of random letters", partial(_reworded, _random)),
    Probe("one word", False, "a word of it, repeated", partial(_reworded, _repeated)),
    Probe("no content", False, "a mark, such as ...", partial(_reworded, _empty)),
)


def probed(samples: Samples, count: int, seed: int) -> dict[Probe, Samples]:
    """Returns the samples of each probe, made from `count` of these, spread evenly; none of none."""
    places = np.array(spread_places(len(samples), count), dtype=np.int64)
    if not count:
        return {}
    image, chosen = samples.modality == "image", samples.subset(places)
    inputs = list(map(_reduced, chosen.inputs)) if image else list(chosen.inputs)
    plain = replace(chosen, inputs=inputs, hashes=None)
    unlabelled = replace(plain, labels=None, label_names=None, tagged=False)

    def changed(probe: Probe) -> Samples:
        of = partial(_changed, probe, inputs, seed)
        made = Lazy(range(len(inputs)), of)
        return replace(plain if probe.keeps_label else unlabelled, inputs=made if image else list(made))

    return {probe: changed(probe) for probe in (IMAGE_PROBES if image else TEXT_PROBES)}


def _reduced(image: Image.Image) -> Image.Image:
    """Returns an image in RGB, without pixels that are too many."""
    small = with_channels(image, 3).copy()
    small.thumbnail((SIDE, SIDE))
    return small


def _changed(probe: Probe, inputs: Sequence[Any], seed: int, place: int) -> Any:
    # Data may be sorted by class: a sample half-way round is probably of another.
    other = inputs[(place + len(inputs) // 2) % len(inputs)]
    return probe.change(inputs[place], other, np.random.default_rng((seed, place)))
