"""Opens the data sets of an evaluation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hydractl.data.corruptions import corrupted
from hydractl.data.open import SampleStream, notes_of, open_samples, open_stream
from hydractl.data.reading import Indexed, Modality, Reading
from hydractl.data.samples import Samples
from hydractl.data.sources import DataSpec, DataValues, parse_data, parse_data_sets
from hydractl.errors import OptionError
from hydractl.evaluation.sets import EvaluationData, SetKey
from hydractl.evaluation.settings import Sets

Opened = Samples | SampleStream

SHIFT = re.compile(r"(?P<name>[^/\\:=]+)/(?P<severity>\d{1,4})", re.DOTALL | re.ASCII)


def open_sets(
    asked: Sets, reading: Reading, modality: Modality, seed: int, *, on_note: Callable[[str], None]
) -> EvaluationData:
    """Opens the sets of an evaluation.

    Args:
        seed: of the corruptions' draws.
        on_note: called with what was left out or looks odd.

    Raises:
        DataError: a source cannot be read.
        OptionError: two sets of one name, a shifted set without severity, or corruptions of texts.
    """

    def opened(spec: DataSpec | DataValues, streaming: bool = asked.streaming, strict: bool = True) -> Opened:
        opener = open_stream if streaming else open_samples
        samples = opener(spec, modality, reading, strict=strict, skip_bad=asked.skip_bad)
        for note in notes_of(samples):
            on_note(note)
        return samples

    sets: dict[SetKey, Opened] = {}
    if asked.calib_data is not None:
        spec = parse_data(asked.calib_data, "calibration")
        sets[SetKey("calibration", spec.name)] = opened(spec, streaming=False)
    assert asked.id_data is not None
    spec = parse_data(asked.id_data, "id")
    sets[SetKey("id", spec.name)] = opened(spec)
    for spec in parse_data_sets(asked.ood_data, "ood"):
        if any(key.role == "ood" and key.name == spec.name for key in sets):
            raise OptionError(f"`ood_data` {spec}: a set called {spec.name} is there already: give it another name")
        # A column named for the ID data need not be there in every OOD set.
        sets[SetKey("ood", spec.name, spec.group)] = opened(spec, strict=False)
    for key, spec in _shifted(asked.shift_data):
        if key in sets:
            raise OptionError(f"`shift_data` {spec}: {key.path} is there already")
        sets[key] = opened(spec)
    data = EvaluationData(sets, reading.match_labels)
    worse = {
        SetKey("shift", kind.name, severity=severity): corrupted(data.id, kind, severity, seed)
        for kind, severity in asked.corruptions
    }
    return replace(data, sets={**sets, **worse})


def _shifted(
    shifted: Sequence[str] | Mapping[str, str | Path | Indexed],
) -> Iterator[tuple[SetKey, DataSpec | DataValues]]:
    named = shifted.items() if isinstance(shifted, Mapping) else (text.partition("=")[::2] for text in shifted)
    for place, data in named:
        if (found := SHIFT.fullmatch(place)) is None or (isinstance(data, str) and not data):
            raise OptionError(f"`shift_data` {place}: write NAME/SEVERITY=SOURCE[:SPLIT], as in fog/3=fog-3.parquet")
        yield SetKey("shift", found["name"], severity=int(found["severity"])), parse_data(data, place)
