"""Opens the data sets that `hydractl evaluate` is given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hydractl.cli import console
from hydractl.cli.material import DataOptions
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.data.columns import Columns
    from hydractl.data.corruptions.kinds import Corruption
    from hydractl.data.like import Modality
    from hydractl.data.samples import Samples
    from hydractl.data.spec import DataSpec
    from hydractl.data.streams import SampleStream
    from hydractl.evaluation.sets import EvaluationData, SetKey

SHIFT = re.compile(r"(?P<name>[^/\\:=]+)/(?P<severity>\d+)=(?P<source>.+)", re.DOTALL)


@dataclass(frozen=True)
class SetOptions:
    """The options that name the sets of an evaluation, and how they are read."""

    id_data: str
    ood_data: Sequence[str]
    calib_data: str | None
    shift_data: Sequence[str]
    corrupt: Sequence[tuple[Corruption, int]]
    seed: int
    skip_bad: bool
    streaming: bool
    reading: DataOptions


def open_evaluation_data(options: SetOptions, modality: Modality, quiet: bool) -> EvaluationData:
    """The sets of an evaluation, opened; what was left out or looks odd is said on stderr.

    Raises:
        DataError: a source cannot be read.
        OptionError: two sets of one name, a shifted set without severity, or corruptions of texts.
    """
    from hydractl.data.columns import Columns
    from hydractl.data.open import open_samples, open_stream
    from hydractl.data.spec import parse_data_spec
    from hydractl.evaluation.sets import EvaluationData, SetKey

    reading = options.reading
    columns = Columns(reading.image_column, reading.text_column, reading.label_column)

    def read(spec: DataSpec, columns: Columns) -> Samples:
        samples = open_samples(spec, modality, columns=columns, limit=reading.limit, skip_bad=options.skip_bad)
        _tell(samples, quiet)
        return samples

    def opened(text: str, columns: Columns, grouped: bool = False) -> tuple[Samples | SampleStream, SetKey]:
        spec = parse_data_spec(text, grouped)
        if not options.streaming:
            return read(spec, columns), SetKey("ood", spec.name, spec.group)
        stream = open_stream(spec, modality, columns=columns, limit=reading.limit, skip_bad=options.skip_bad)
        for text in stream.notes:
            console.note(f"note: {text}", quiet)
        return stream, SetKey("ood", spec.name, spec.group)

    sets: dict[SetKey, Samples | SampleStream] = {}
    if options.calib_data is not None:
        # All of it is fitted on at once.
        spec = parse_data_spec(options.calib_data)
        sets[SetKey("calibration", spec.name)] = read(spec, columns)
    samples, key = opened(options.id_data, columns)
    sets[replace(key, role="id")] = samples
    # A column named for the ID data need not be there in every OOD set.
    lenient = replace(columns, strict=False)
    for text in options.ood_data:
        samples, key = opened(text, lenient, grouped=True)
        if any(other.role == "ood" and other.name == key.name for other in sets):
            raise OptionError(f"--ood-data {text}: a set called {key.name} is there already: give it another name")
        sets[key] = samples
    for text in options.shift_data:
        if (found := SHIFT.fullmatch(text)) is None:
            raise OptionError(f"--shift-data {text}: write NAME/SEVERITY=SOURCE[:SPLIT], as in fog/3=fog-3.parquet")
        shifted = SetKey("shift", found["name"], severity=int(found["severity"]))
        if shifted in sets:
            raise OptionError(f"--shift-data {text}: {shifted.path} is there already")
        sets[shifted] = opened(found["source"], columns)[0]
    data = EvaluationData(sets, reading.match_labels)
    return replace(data, sets={**sets, **_corrupted(data.id, options)})


def _corrupted(inside: Samples | SampleStream, options: SetOptions) -> dict[SetKey, Samples | SampleStream]:
    """The ID data in each corruption and severity asked for."""
    from hydractl.data.corrupt import corrupted
    from hydractl.evaluation.sets import SetKey

    return {
        SetKey("shift", kind.name, severity=severity): corrupted(inside, kind, severity, options.seed)
        for kind, severity in options.corrupt
    }


def _tell(samples: Samples, quiet: bool) -> None:
    for text in samples.notes:
        console.note(f"note: {text}", quiet)
    if samples.skipped:
        console.note(f"note: {samples.name}: {len(samples.skipped)} samples left out: {samples.skipped[0]}", quiet)
        for text in samples.skipped[1:]:
            console.note(f"      {text}", quiet)
