"""The samples a model was chosen, calibrated or searched on, remembered in a few bytes each.

Up to EXACT samples all are kept, as the upper 48 bits of their hashes; of more, those with the smallest hashes,
which is a fair draw of EXACT. A sample that was never seen is taken for one that was with probability
kept / 2**48: 1,500 remembered and 50,000 asked about give one false alarm in four million evaluations. Where N
samples are remembered by EXACT, a leak of k samples goes unnoticed with probability (1 - EXACT / N)**k.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, count
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from hydractl.data.hashes import Hashes
from hydractl.errors import ArtifactError
from hydractl.schema import Origin, Schema, document

EXACT = 20_000
DROPPED_BITS = np.uint64(16)


class _Written(Schema):
    samples: Annotated[int, Field(ge=0)]
    complete: bool
    hashes: str


@dataclass(frozen=True)
class _Seen:
    samples: int  # how many there were
    complete: bool  # whether every one of them is among the keys
    keys: NDArray[np.uint64]  # ascending, each once


def sketch(hashes: Hashes) -> dict[str, Any]:
    """Plain JSON that remembers a set of samples in about 7 characters each.

    Args:
        hashes: `[N]`, as `Samples.content_hashes` returns them.
    """
    keys = np.unique(hashes >> DROPPED_BITS)
    return _written(_Seen(len(hashes), len(keys) <= EXACT, keys[:EXACT]))


def remembered(entry: object, hashes: Hashes, where: str) -> NDArray[np.bool_]:
    """Which of the samples are remembered, `[N]`; a sketch that does not keep them all misses some.

    Args:
        entry: what `sketch` or `merged` made.
        hashes: `[N]`, of the samples asked about.
        where: the artifact, for messages.

    Raises:
        ArtifactError: the sketch is damaged; to pass over it would let a leak through.
    """
    return np.isin(hashes >> DROPPED_BITS, _read(entry, where).keys)


def merged(named: Iterable[tuple[str, object]], where: str) -> dict[str, Any]:
    """Sketches by name, as a fused model carries for its members: what several remember is kept once.

    Those of one name become one sketch while it remembers every sample; else `name (2)` stands beside `name`, so
    that nothing is forgotten.

    Args:
        named: name and sketch, any name several times.
        where: what they come from, for messages.

    Raises:
        ArtifactError: a sketch is damaged.
    """
    result: dict[str, Any] = {}
    for name, entry in named:
        for place in chain([name], (f"{name} ({number})" for number in count(2))):
            held = result.setdefault(place, entry)
            if held == entry:
                break
            if joined := _union(_read(held, where), _read(entry, where)):
                result[place] = _written(joined)
                break
    return result


def _union(a: _Seen, b: _Seen) -> _Seen | None:
    """All samples of both; None where they are too many to remember every one."""
    keys = np.union1d(a.keys, b.keys)
    complete = a.complete and b.complete and len(keys) <= EXACT
    return _Seen(len(keys), True, keys) if complete else None


def _written(seen: _Seen) -> dict[str, Any]:
    gaps = np.diff(seen.keys, prepend=np.uint64(0)).astype("<u8")
    # Bytes of one significance together: the upper ones are all zero, and zlib leaves nothing of them.
    planes = np.ascontiguousarray(gaps.view(np.uint8).reshape(-1, 8).T)
    packed = base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode("ascii")
    return {"samples": seen.samples, "complete": seen.complete, "hashes": packed}


def _read(entry: object, where: str) -> _Seen:
    origin = Origin(f"{where}: its record of samples used", ArtifactError, "make the file again")
    written = document(entry, origin).read(_Written)
    try:
        packed = base64.b64decode(written.hashes, validate=True)
        planes = np.frombuffer(zlib.decompressobj().decompress(packed, 8 * EXACT), dtype=np.uint8).reshape(8, -1)
    except (ValueError, zlib.error) as error:
        raise origin.refusal(f"is damaged ({error})") from error
    keys = np.cumsum(np.ascontiguousarray(planes.T).view("<u8").ravel(), dtype=np.uint64)
    if len(keys) < min(1, written.samples):
        raise origin.refusal("is damaged (no keys of some samples)")
    return _Seen(written.samples, written.complete, keys)
