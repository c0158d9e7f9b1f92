"""Content hashes: which samples are the same, whatever file or format they lie in."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Condition
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hydractl.data.images import MOST_PIXELS, EncodedImages, LargeImageError, strips, with_channels
from hydractl.data.like import Text
from hydractl.errors import DataError

Hashes = NDArray[np.uint64]
CHUNK = 64  # images decoded by one thread at a time
FREE_PIXELS = 2**20  # of an image that needs no room to be made for it


def image_hash(image: Image.Image) -> int:
    """64 bits of BLAKE2b over size and RGB pixels: a grey image and its RGB copy are the same sample."""
    pixels = with_channels(image, 3)
    return _hash(b"%dx%d" % pixels.size, (strip.tobytes() for strip, _ in strips(pixels)))


def text_hash(text: Text) -> int:
    """64 bits of BLAKE2b over the words, so that blanks which a file format adds or strips do not count."""
    parts = (text,) if isinstance(text, str) else text
    return _hash(b"text", ["\0".join(" ".join(part.split()) for part in parts).encode("utf-8", "surrogatepass")])


def _hash(kind: bytes, content: Iterable[bytes]) -> int:
    digest = hashlib.blake2b(digest_size=8, person=kind[:16])
    for piece in content:
        digest.update(piece)
    return int.from_bytes(digest.digest(), "little")


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
    return [_hash_or_problem(partial(_with_room, decode)) for decode in images.decoders(slice(start, start + CHUNK))]


def _with_room(decode: Callable[..., Image.Image]) -> int:
    """The hash of an image that is decoded once there is room for it beside those of other threads."""
    try:
        return image_hash(decode(most=FREE_PIXELS))
    except LargeImageError as error:
        with _ROOM.taken(min(error.pixels, MOST_PIXELS)):
            return image_hash(decode())


class _Room:
    """Pixels that threads may hold at once; one that wants more than are free waits."""

    def __init__(self, pixels: int) -> None:
        self._free, self._changed = pixels, Condition()

    @contextmanager
    def taken(self, pixels: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._free >= pixels)
            self._free -= pixels
        try:
            yield
        finally:
            with self._changed:
                self._free += pixels
                self._changed.notify_all()


_ROOM = _Room(MOST_PIXELS)


def _hash_at(inputs: Sequence[Any], place: int) -> int:
    one = inputs[place]
    return text_hash(one) if isinstance(one, str | tuple) else image_hash(one)


def _hash_or_problem(make: Callable[[], int]) -> int | str:
    try:
        return make()
    except DataError as error:
        return str(error)
