"""Content hashes: which samples are the same, whatever file or format they lie in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hydractl.data.images import EncodedImages, decode_image, with_channels
from hydractl.data.texts import Text
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


def text_hashes(texts: Iterable[Text]) -> Hashes:
    """The hash of each text or pair, `[N]`."""
    return np.fromiter((text_hash(text) for text in texts), dtype=np.uint64)


def image_hashes(images: EncodedImages) -> tuple[Hashes, dict[int, str]]:
    """The hash of each image, `[N]`, and the position of each that cannot be read with what is wrong."""
    starts = range(0, len(images), CHUNK)
    with ThreadPoolExecutor() as pool:  # threads suffice: Pillow decodes outside the interpreter lock
        results = [one for chunk in pool.map(lambda start: _hash_chunk(images, start), starts) for one in chunk]
    bad = {at: result for at, result in enumerate(results) if isinstance(result, str)}
    return np.array([0 if isinstance(result, str) else result for result in results], dtype=np.uint64), bad


def _hash_chunk(images: EncodedImages, start: int) -> list[int | str]:
    results: list[int | str] = []
    for encoded, where in images.encoded(slice(start, start + CHUNK)):
        try:
            results.append(image_hash(decode_image(encoded, where)))
        except DataError as error:
            results.append(str(error))
    return results
