"""Opens the data sets of an evaluation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from hydractl.data.columns import Columns
from hydractl.data.corruptions import Corruption, corrupted
from hydractl.data.like import DataLike, DataSetsLike, Indexed, Modality
from hydractl.data.open import notes_of, open_samples, open_stream
from hydractl.data.samples import Samples
from hydractl.data.spec import DataSpec, DataValues, parse_data, parse_data_sets
from hydractl.data.streams import SampleStream
from hydractl.errors import OptionError
from hydractl.evaluation.sets import EvaluationData, SetKey

Opened = Samples | SampleStream

SHIFT = re.compile(r"(?P<name>[^/\\:=]+)/(?P<severity>\d{1,4})", re.DOTALL | re.ASCII)


@dataclass(frozen=True, eq=False)
class AskedSets:
    """The sets of an evaluation as a user gives them, and how they are read.

    Attributes:
        shifted: `NAME/SEVERITY=SOURCE` each, or data by `NAME/SEVERITY`.
        corrupt: kinds of corruption and severities by which the ID images are made worse, with draws of `seed`.
        columns: those the user named.
        limit: samples of each set.
        match: how labels are matched to the model's.
        skip_bad: whether samples that cannot be read are left out.
        streaming: whether all but the calibration data, which is fitted on at once, are read as they come, for each
            system anew.
    """

    id: DataLike
    ood: DataSetsLike = ()
    calibration: DataLike | None = None
    shifted: Sequence[str] | Mapping[str, str | Path | Indexed] = ()
    corrupt: Sequence[tuple[Corruption, int]] = ()
    seed: int = 0
    columns: Columns = Columns()
    limit: int | None = None
    match: Literal["name", "index"] = "name"
    skip_bad: bool = False
    streaming: bool = False


def open_sets(asked: AskedSets, modality: Modality, on_note: Callable[[str], None]) -> EvaluationData:
    """The sets of an evaluation, opened.

    Args:
        on_note: told what was left out or looks odd.

    Raises:
        DataError: a source cannot be read.
        OptionError: two sets of one name, a shifted set without severity, or corruptions of texts.
    """

    def opened(spec: DataSpec | DataValues, streaming: bool = asked.streaming, strict: bool = True) -> Opened:
        samples = (open_stream if streaming else open_samples)(
            spec, modality, columns=replace(asked.columns, strict=strict), limit=asked.limit, skip_bad=asked.skip_bad
        )
        for note in notes_of(samples):
            on_note(note)
        return samples

    sets: dict[SetKey, Opened] = {}
    if asked.calibration is not None:
        spec = parse_data(asked.calibration, "calibration")
        sets[SetKey("calibration", spec.name)] = opened(spec, streaming=False)
    spec = parse_data(asked.id, "id")
    sets[SetKey("id", spec.name)] = opened(spec)
    for spec in parse_data_sets(asked.ood, "ood"):
        if any(key.role == "ood" and key.name == spec.name for key in sets):
            raise OptionError(f"`ood_data` {spec}: a set called {spec.name} is there already: give it another name")
        # A column named for the ID data need not be there in every OOD set.
        sets[SetKey("ood", spec.name, spec.group)] = opened(spec, strict=False)
    for key, spec in _shifted(asked.shifted):
        if key in sets:
            raise OptionError(f"`shift_data` {spec}: {key.path} is there already")
        sets[key] = opened(spec)
    data = EvaluationData(sets, asked.match)
    return replace(data, sets={**sets, **_corrupted(data.id, asked)})


def _shifted(
    shifted: Sequence[str] | Mapping[str, str | Path | Indexed],
) -> Iterator[tuple[SetKey, DataSpec | DataValues]]:
    named = shifted.items() if isinstance(shifted, Mapping) else (text.partition("=")[::2] for text in shifted)
    for place, data in named:
        if (found := SHIFT.fullmatch(place)) is None or (isinstance(data, str) and not data):
            raise OptionError(f"`shift_data` {place}: write NAME/SEVERITY=SOURCE[:SPLIT], as in fog/3=fog-3.parquet")
        yield SetKey("shift", found["name"], severity=int(found["severity"])), parse_data(data, place)


def _corrupted(inside: Opened, asked: AskedSets) -> dict[SetKey, Opened]:
    """The ID data in each corruption and severity asked for."""
    return {
        SetKey("shift", kind.name, severity=severity): corrupted(inside, kind, severity, asked.seed)
        for kind, severity in asked.corrupt
    }
