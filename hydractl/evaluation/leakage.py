"""Finds evaluations on samples that were used to choose heads or to fit anything in a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hydractl.data.hashes import remembered
from hydractl.data.open import SampleStream
from hydractl.data.samples import Samples
from hydractl.errors import DataError
from hydractl.evaluation.results import KnownLeak
from hydractl.evaluation.sets import EvaluationData, Role, SetKey
from hydractl.surgery.provenance import search_data

ROLES = {"id": "ID", "ood": "OOD", "shift": "shifted"}
CALIBRATION = "--calib-data"  # what a report says that calibration data was used as


@dataclass(frozen=True)
class Leak:
    """Samples of an evaluation that were used to make a system, or to fit something in it."""

    system: str
    role: Role
    known: KnownLeak

    def __str__(self) -> str:
        known = self.known
        counted = f"{ROLES[self.role]} data {known.name}: {known.overlap} of {known.samples} samples"
        if known.used_as == (CALIBRATION,):
            return f"{counted} are in `calib_data` too"
        return f"{counted} were used to make {self.system} (as {', '.join(known.used_as)})"


def find_leaks(system: str, provenances: Iterable[Mapping[str, Any]], data: EvaluationData) -> list[Leak]:
    """The sets of an evaluation with samples that the system was made with, or that are calibrated on.

    Args:
        system: what reports call it.
        provenances: of its models; the search data of each step that led to them is looked for.
        data: hashed only where there is something to compare with.

    Raises:
        ArtifactError: a record of samples used is damaged.
    """
    seen = [entry for provenance in provenances for entry in search_data(provenance)]
    whole = {key: samples for key, samples in data.evaluated.items() if isinstance(samples, Samples)}
    found = (_leak(system, key, samples, seen, data.calibration) for key, samples in whole.items())
    return [leak for leak in found if leak is not None]


def watch_streams(system: str, provenances: Iterable[Mapping[str, Any]], data: EvaluationData) -> EvaluationData:
    """The same data, whose streams refuse samples that the system was made with as they come to them."""
    seen = [entry for provenance in provenances for entry in search_data(provenance)]

    def watched(key: SetKey, stream: SampleStream) -> SampleStream:
        def check(block: Samples) -> Samples:
            leak = _leak(system, key, block, seen, data.calibration)
            refuse_leaks([leak] if leak else [], or_else="read them without `streaming` and pass `allow_leak`")
            return block

        return stream.through(check)

    sets = {key: watched(key, s) if isinstance(s, SampleStream) else s for key, s in data.sets.items()}
    return replace(data, sets=sets)


def refuse_leaks(leaks: Sequence[Leak], or_else: str = "pass `allow_leak`, which marks the report") -> None:
    """Raises DataError when there are any, naming those of the first system."""
    if not leaks:
        return
    own = [leak for leak in leaks if leak.system == leaks[0].system]
    remedies = ["name other data"] if any(set(leak.known.used_as) - {CALIBRATION} for leak in own) else []
    remedies += ["calibrate on other data"] if any(CALIBRATION in leak.known.used_as for leak in own) else []
    raise DataError(
        f"{'; '.join(map(str, own))}: an evaluation on them would flatter it: {', '.join(remedies)}, or {or_else}"
    )


def _leak(
    system: str, key: SetKey, samples: Samples, seen: Sequence[tuple[str, object]], calibration: Samples | None
) -> Leak | None:
    if not seen and calibration is None:
        return None
    hashes = samples.content_hashes()
    hits = [(name, remembered(entry, hashes, f"{system}: {name}")) for name, entry in seen]
    if calibration is not None:
        hits.append((CALIBRATION, np.isin(hashes, calibration.content_hashes())))
    overlap = int(np.any([hit for _, hit in hits], axis=0).sum())
    used_as = tuple(dict.fromkeys(name for name, hit in hits if hit.any()))
    known = KnownLeak(key.path, samples.name, len(samples), overlap, used_as=used_as)
    return Leak(system, key.role, known) if overlap else None
