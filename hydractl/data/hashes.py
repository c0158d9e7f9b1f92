"""Content hashes: which samples are the same, whatever file or format they lie in."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hydractl.data.images import EncodedImages, with_channels
from hydractl.data.like import Text
from hydractl.errors import DataError

Hashes = NDArray[np.uint64]
CHUNK = 64  # images decoded by one thread at a time


def image_hash(image: Image.Image) -> int:
    """64 bits of BLAKE2b over size and RGB pixels: a grey image and its RGB copy are the same sample."""
    pixels = with_channels(image, 3)
    return _hash(b"%dx%d" % pixels.size, pixels.tobytes())


def text_hash(text: Text) -> int:
    """64 bits of BLAKE2b over the words, so that blanks which a file format adds or strips do not count."""
    parts = (text,) if isinstance(text, str) else text
    return _hash(b"text", "\0".join(" ".join(part.split()) for part in parts).encode("utf-8", "surrogatepass"))


def _hash(kind: bytes, content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, person=kind[:16]).digest(), "little")


def hash_inputs(inputs: Sequence[Any]) -> tuple[Hashes, dict[int, str]]:
    """The hash of each image, text or pair of texts, `[N]`, and the position of each bad one with what is wrong."""
    if isinstance(inputs, EncodedImages):
        starts = range(0, len(inputs), CHUNK)
        with ThreadPoolExecutor() as pool:  # threads suffice: Pillow decodes outside the interpreter lock
            results = [one for chunk in pool.map(lambda start: _hash_encoded(inputs, start), starts) for one in chunk]
    else:
        results = [_hash_or_problem(partial(_hash_at, inputs, at)) for at in range(len(inputs))]
    bad = {at: result for at, result in enumerate(results) if isinstance(result, str)}
    return np.array([0 if isinstance(result, str) else result for result in results], dtype=np.uint64), bad


def _hash_encoded(images: EncodedImages, start: int) -> list[int | str]:
    decoders = images.decoders(slice(start, start + CHUNK))
    return [_hash_or_problem(partial(_hash_decoded, decode)) for decode in decoders]


def _hash_decoded(decode: Callable[[], Image.Image]) -> int:
    return image_hash(decode())


def _hash_at(inputs: Sequence[Any], place: int) -> int:
    one = inputs[place]
    return text_hash(one) if isinstance(one, str | tuple) else image_hash(one)


def _hash_or_problem(make: Callable[[], int]) -> int | str:
    try:
        return make()
    except DataError as error:
        return str(error)
