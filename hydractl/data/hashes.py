"""Content hashes: which samples are equal, in any file format, and which of them a model has seen.

A sketch remembers the samples that a model was chosen, calibrated or searched on. Up to EXACT samples it keeps all, as
the upper 48 bits of their hashes; of more, those with the smallest hashes, a fair draw of EXACT. It takes a sample that
was never seen for one that was with probability kept / 2**48: 1,500 remembered and 50,000 tested give one false alarm
in four million evaluations. Where N samples are remembered by EXACT, a leak of k samples goes unnoticed with
probability (1 - EXACT / N)**k.
"""

import base64
import hashlib
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, count
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hydractl.data.images import EncodedImages, with_channels
from hydractl.data.reading import Part, Text
from hydractl.errors import ArtifactError, DataError
from hydractl.schema import Checked, Origin, Schema, document

Hashes = NDArray[np.uint64]
CHUNK = 64  # images decoded by one thread at a time
EXACT = 20_000
DROPPED_BITS = np.uint64(16)


def image_hash(image: Image.Image) -> int:
    """Returns 64 bits of BLAKE2b over size and RGB pixels; a grey image and its RGB copy have the same hash."""
    pixels = with_channels(image, 3)
    return _hash(b"%dx%d" % pixels.size, pixels.tobytes())


def text_hash(text: Text) -> int:
    """Returns 64 bits of BLAKE2b over the words, so that blanks added or stripped by a file format do not count."""
    parts = (text,) if isinstance(text, str) else text
    return _hash(b"text", "\0".join(" ".join(part.split()) for part in parts).encode("utf-8", "surrogatepass"))


def _hash(kind: bytes, content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, person=kind[:16]).digest(), "little")


def hash_inputs(inputs: Sequence[Any]) -> tuple[Hashes, dict[int, str]]:
    """Returns the hash of each input, `[N]`, and a message for the position of each bad input."""
    # Pillow decodes outside the interpreter lock; a data set of the user's own may not bear threads.
    with ThreadPoolExecutor(None if isinstance(inputs, EncodedImages) else 1) as pool:
        starts = range(0, len(inputs), CHUNK)
        results = [hashed for chunk in pool.map(partial(_hash_chunk, inputs), starts) for hashed in chunk]
    bad = {at: result for at, result in enumerate(results) if isinstance(result, str)}
    return np.array([0 if isinstance(result, str) else result for result in results], dtype=np.uint64), bad


def _hash_chunk(inputs: Sequence[Any], start: int) -> list[int | str]:
    chunk = inputs[start : start + CHUNK]
    return [_hash_or_problem(chunk, at) for at in range(len(chunk))]


def _hash_or_problem(inputs: Sequence[Any], place: int) -> int | str:
    try:
        sample = inputs[place]
        return text_hash(sample) if isinstance(sample, str | tuple) else image_hash(sample)
    except DataError as error:
        return str(error)


class _Sketch(Schema):
    samples: Annotated[int, Checked(ge=0)]  # their number
    complete: bool  # whether the hashes contain every one of them
    hashes: str


def sketch(hashes: Hashes) -> dict[str, Any]:
    """Returns JSON that remembers a set of samples in about 7 characters each.

    Args:
        hashes: `[N]`, as `Samples.content_hashes` returns them.
    """
    keys = np.unique(hashes >> DROPPED_BITS)
    return _written(len(hashes), len(keys) <= EXACT, keys[:EXACT])


def remembered_samples(entry: object, hashes: Hashes, where: str) -> NDArray[np.bool_]:
    """Returns a mask `[N]` of the remembered samples; an incomplete sketch misses some.

    Args:
        entry: a result of `sketch` or `merged`.
        where: the artifact, for messages.

    Raises:
        ArtifactError: the sketch is damaged.
    """
    return np.isin(hashes >> DROPPED_BITS, _read(entry, where)[1])


def merged(sketches: Iterable[tuple[str, object]], where: str) -> dict[str, Any]:
    """Returns sketches by name, as a fused model carries them for its members, without duplicates.

    Sketches of one name become one while it can remember every sample; otherwise `name (2)` is added, so that nothing
    is forgotten.

    Args:
        sketches: names and sketches; a name may occur several times.
        where: their source, for messages.

    Raises:
        ArtifactError: a sketch is damaged.
    """
    result: dict[str, Any] = {}
    for name, entry in sketches:
        for place in chain([name], (f"{name} ({number})" for number in count(2))):
            held = result.setdefault(place, entry)
            if held == entry:
                break
            (previous, keys), (other, more) = _read(held, where), _read(entry, where)
            keys = np.union1d(keys, more)
            if previous.complete and other.complete and len(keys) <= EXACT:
                result[place] = _written(len(keys), True, keys)
                break
    return result


def _written(samples: int, complete: bool, keys: Hashes) -> dict[str, Any]:
    """Returns the JSON of some keys, which ascend, each once."""
    gaps = np.diff(keys, prepend=np.uint64(0)).astype("<u8")
    # Bytes of equal significance are grouped: the upper ones are zeros, which zlib compresses to almost nothing.
    planes = np.ascontiguousarray(gaps.view(np.uint8).reshape(-1, 8).T)
    packed = base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode("ascii")
    return {"samples": samples, "complete": complete, "hashes": packed}


def _read(entry: object, where: str) -> tuple[_Sketch, Hashes]:
    """Returns a sketch and its keys."""
    origin = Origin(f"{where}: its record of samples used", ArtifactError, "make the file again")
    written = document(entry, origin).read(_Sketch)
    try:
        packed = base64.b64decode(written.hashes, validate=True)
        planes = np.frombuffer(zlib.decompressobj().decompress(packed, 8 * EXACT), dtype=np.uint8).reshape(8, -1)
    except (ValueError, zlib.error) as error:
        raise origin.refusal(f"is damaged ({error})") from error
    keys = np.cumsum(np.ascontiguousarray(planes.T).view("<u8").ravel(), dtype=np.uint64)
    if len(keys) < min(1, written.samples):
        raise origin.refusal("is damaged (no keys of some samples)")
    return written, keys


def positions(part: Part, hashes: Hashes) -> NDArray[np.int64]:
    """Returns the positions of the samples of a part, ascending, from the hashes `[N]` of all samples."""
    return np.flatnonzero(_held(part, hashes)[0])


def _held(part: Part, hashes: Hashes) -> tuple[NDArray[np.bool_], Hashes]:
    """Returns a mask of the samples of a part, and the hashes mixed once for each division."""
    outer, hashes = _held(part.within, hashes) if part.within else (np.ones(len(hashes), bool), hashes)
    mixed = _mixed(hashes, part.seed)
    number = mixed % np.uint64(part.count) + np.uint64(1)
    return outer & (part.first <= number) & (number <= part.last), mixed


def _mixed(hashes: Hashes, seed: int) -> Hashes:
    """Mixes the hashes with the seed: the finish of SplitMix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        x = hashes.astype(np.uint64) + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
