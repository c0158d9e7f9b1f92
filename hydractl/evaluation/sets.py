"""The data sets of an evaluation: their names, how they are opened, and samples that a system was made with."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hydractl.data.corruptions import corrupted
from hydractl.data.hashes import remembered_samples
from hydractl.data.image_form import form_notes
from hydractl.data.open import open_samples
from hydractl.data.reading import Indexed, Modality, Reading
from hydractl.data.samples import Samples
from hydractl.data.sources import DataSpec, DataValues, parse_data, parse_data_sets, refuse_same
from hydractl.errors import DataError, OptionError
from hydractl.evaluation.settings import Sets
from hydractl.surgery.provenance import search_data
from hydractl.systems.description import KnownLeak
from hydractl.systems.system import EvaluationData, SetKey

SHIFT = re.compile(r"(?P<name>[^/\\:=]+)/(?P<severity>\d{1,4})", re.DOTALL | re.ASCII)


def open_sets(
    sources: Sets, reading: Reading, modality: Modality, seed: int, *, on_note: Callable[[str], None]
) -> EvaluationData:
    """Opens the sets of an evaluation.

    Args:
        seed: of the corruptions' draws.
        on_note: called with what was left out or looks odd.

    Raises:
        DataError: a source cannot be read.
        OptionError: two sets of one name, a shifted set without severity, or corruptions of texts.
    """

    def opened(spec: DataSpec | DataValues, strict: bool = True) -> Samples:
        samples = open_samples(spec, modality, reading, strict=strict, skip_bad=sources.skip_bad)
        for note in samples.notes:
            on_note(note)
        return samples

    sets: dict[SetKey, Samples] = {}
    if sources.calib_data is not None:
        spec = parse_data(sources.calib_data, "calibration")
        sets[SetKey("calibration", spec.name)] = opened(spec)
    assert sources.id_data is not None
    id_spec = parse_data(sources.id_data, "id")
    sets[SetKey("id", id_spec.name)] = opened(id_spec)
    for spec in parse_data_sets(sources.ood_data, "ood"):
        if any(key.role == "ood" and key.name == spec.name for key in sets):
            raise OptionError(f"`ood_data` {spec}: a set called {spec.name} is there already: give it another name")
        refuse_same(spec, id_spec)
        # A column named for the ID data need not be there in every OOD set.
        sets[SetKey("ood", spec.name, spec.group)] = opened(spec, strict=False)
    for key, spec in _shifted(sources.shift_data):
        if key in sets:
            raise OptionError(f"`shift_data` {spec}: {key.path} is there already")
        sets[key] = opened(spec)
    data = EvaluationData(sets, reading.match_labels)
    if sources.query_column is not None:
        names = [str(query) for query in data.id.column(sources.query_column, "query_column")]
        data = replace(data, queries=np.unique(names, return_inverse=True)[1])
    for note in form_notes(data.id, (samples for key, samples in sets.items() if key.role == "ood")):
        on_note(note)
    for kind, severity in sources.corruptions:
        sets[SetKey("shift", kind.name, severity=severity)] = corrupted(data.id, kind, severity, seed)
    return data


def _shifted(
    shifted: Sequence[str] | Mapping[str, str | Path | Indexed],
) -> Iterator[tuple[SetKey, DataSpec | DataValues]]:
    pairs = shifted.items() if isinstance(shifted, Mapping) else (text.partition("=")[::2] for text in shifted)
    for place, data in pairs:
        if (match := SHIFT.fullmatch(place)) is None or (isinstance(data, str) and not data):
            raise OptionError(f"`shift_data` {place}: write NAME/SEVERITY=SOURCE[:SPLIT], as in fog/3=fog-3.parquet")
        yield SetKey("shift", match["name"], severity=int(match["severity"])), parse_data(data, place)


ROLES = {"id": "ID", "ood": "OOD", "shift": "shifted"}
CALIBRATION = "--calib-data"  # the use of calibration data, in a report


def leak_text(system: str, leak: KnownLeak) -> str:
    """Returns a leak as messages tell it."""
    counted = f"{ROLES[leak.set.split('/')[0]]} data {leak.name}: {leak.overlap} of {leak.samples} samples"
    if leak.used_as == (CALIBRATION,):
        return f"{counted} are in `calib_data` too"
    return f"{counted} were used to make {system} (as {', '.join(leak.used_as)})"


def find_leaks(system: str, provenances: Iterable[Mapping[str, Any]], data: EvaluationData) -> list[KnownLeak]:
    """Returns the sets of an evaluation with samples that the system was made with, or that are calibrated on.

    Args:
        system: what reports call it.
        provenances: of its models; the search data of each step that led to them is looked for.
        data: hashed only where there is something to compare with.
    """
    seen = [entry for provenance in provenances for entry in search_data(provenance)]
    calibration = next((samples for key, samples in data.sets.items() if key.role == "calibration"), None)
    if not seen and calibration is None:
        return []
    leaks = []
    for key, samples in data.sets.items():
        if key.role == "calibration":
            continue
        hashes = samples.content_hashes()
        hits = [(name, remembered_samples(entry, hashes, f"{system}: {name}")) for name, entry in seen]
        if calibration is not None:
            hits.append((CALIBRATION, np.isin(hashes, calibration.content_hashes())))
        overlap = int(np.any([hit for _, hit in hits], axis=0).sum())
        if overlap:
            used_as = tuple(dict.fromkeys(name for name, hit in hits if hit.any()))
            leaks.append(KnownLeak(key.path, samples.name, len(samples), overlap, used_as=used_as))
    return leaks


def refuse_leaks(
    system: str, leaks: Sequence[KnownLeak], or_else: str = "pass `allow_leak`, which marks the report"
) -> None:
    """Raises DataError when a system has any."""
    if not leaks:
        return
    findings = "; ".join(leak_text(system, leak) for leak in leaks)
    raise DataError(f"{findings}: an evaluation on them would flatter it: name other data, or {or_else}")
