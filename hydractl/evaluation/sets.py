"""The data sets of an evaluation: their names, how they are opened, leaks; and suites, which are several tasks.

A suite is a TOML file with a table for each task, which has its own in-distribution, OOD and shifted data:

    about = "sentiment and topics"

    [tasks.sst2]
    id_data = "stanfordnlp/sst2:validation"
    ood_data = ["near/amazon=fancyzhx/amazon_polarity:test?text=title,content", "far/trec=trec.csv"]
    text_column = "sentence"
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from hydractl.data.corruptions import corrupted, parse_corruptions
from hydractl.data.open import open_samples
from hydractl.data.reading import (
    DataSpec,
    DataValues,
    Indexed,
    Modality,
    Reading,
    parse_data,
    parse_data_sets,
    refuse_same,
)
from hydractl.data.samples import Samples, form_notes
from hydractl.errors import DataError, OptionError
from hydractl.evaluation.settings import Sets
from hydractl.schema import Checked, Items, Origin, Schema, parse_toml, read_text
from hydractl.surgery.provenance import used_samples
from hydractl.systems.system import EvaluationData, KnownLeak, SetKey

SHIFT = re.compile(r"(?P<name>[^/\\:=]+)/(?P<severity>\d{1,4})", re.DOTALL | re.ASCII)
ROLES = {"id": "ID", "ood": "OOD", "shift": "shifted"}
CALIBRATION = "--calib-data"  # the use of calibration data, in a report
LARGEST = 2**18  # bytes of a suite
REMEDY = "correct it; hydractl guide data shows a suite"
Text = Annotated[str, Checked(min_length=1, max_length=4096)]
#: Of a task: it also names a folder of saved predictions.
Name = Annotated[str, Checked(pattern=r"^[\w][\w.-]{0,99}$")]
CIFAR10, CIFAR100 = "uoft-cs/cifar10:test", "uoft-cs/cifar100:test?label=fine_label"
IMAGENET = "ILSVRC/imagenet-1k:validation"
TINY_IMAGENET = "near/tiny-imagenet=zh-plus/tiny-imagenet:valid"
TEXTURES = "far/textures=tanganke/dtd:test"
MNIST, SVHN = "far/mnist=ylecun/mnist:test", "far/svhn=ufldl-stanford/svhn:cropped_digits:test"
FAR = [TINY_IMAGENET, MNIST, SVHN, TEXTURES]
ZERO_SHOT = {
    "imagenet1k": IMAGENET,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "food101": "ethz/food101:validation",
    "pets": "timm/oxford-iiit-pet:test?label=label",
    "cars": "tanganke/stanford_cars:test",
    "sun397": "tanganke/sun397:test",
    "eurosat": "tanganke/eurosat:test",
    "dtd": "tanganke/dtd:test",
}
OPENOOD = "Yang et al. 2022, Zhang et al. 2023 (OpenOOD); add sets that are not on the hub as folders: "
WITHOUT_PLACES = f"{OPENOOD}far Places365"
WITHOUT_MOST = f"{OPENOOD}near SSB-hard and NINCO, far iNaturalist and OpenImage-O"


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
            raise OptionError(f"`ood_data` {spec}: there is already a set called {spec.name}: give it another name")
        refuse_same(spec, id_spec)
        # A column named for the ID data need not be there in every OOD set.
        sets[SetKey("ood", spec.name, spec.group)] = opened(spec, strict=False)
    for key, spec in _shifted(sources.shift_data):
        if key in sets:
            raise OptionError(
                f"`shift_data` {spec}: there is already a set {key.path}: give it another name or severity"
            )
        sets[key] = opened(spec)
    data = EvaluationData(sets, reading.match_labels)
    for note in form_notes(data.id, (samples for key, samples in sets.items() if key.role == "ood")):
        on_note(note)
    for kind, severity in sources.corruptions:
        key = SetKey("shift", kind.name, severity=severity)
        if key in sets:
            raise OptionError(
                f"`corrupt` {kind.name}:{severity}: `shift_data` has a set {key.path}: give it another name"
            )
        sets[key] = corrupted(data.id, kind, severity, seed)
    return data


def _shifted(
    shifted: Sequence[str] | Mapping[str, str | Path | Indexed],
) -> Iterator[tuple[SetKey, DataSpec | DataValues]]:
    pairs = shifted.items() if isinstance(shifted, Mapping) else (text.partition("=")[::2] for text in shifted)
    for place, data in pairs:
        if (match := SHIFT.fullmatch(place)) is None or (isinstance(data, str) and not data):
            raise OptionError(f"`shift_data` {place}: write NAME/SEVERITY=SOURCE[:SPLIT], as in fog/3=fog-3.parquet")
        yield SetKey("shift", match["name"], severity=int(match["severity"])), parse_data(data, place)


def leak_text(system: str, leak: KnownLeak) -> str:
    """Returns a leak as messages tell it."""
    counted = f"{ROLES[leak.set.split('/')[0]]} data {leak.name}: {leak.overlap} of {leak.samples} samples"
    if leak.used_as == (CALIBRATION,):
        return f"{counted} are in `calib_data` too"
    return f"{counted} were used to make {system} (as {', '.join(leak.used_as)})"


def find_leaks(system: str, provenances: Sequence[Mapping[str, Any]], data: EvaluationData) -> list[KnownLeak]:
    """Returns the sets of an evaluation with samples that the system was made with, or that are calibrated on.

    Args:
        system: what reports call it.
        provenances: of its models; the search data of each step that led to them is looked for.
    """
    calibration = next((samples for key, samples in data.sets.items() if key.role == "calibration"), None)
    leaks = []
    for key, samples in data.sets.items():
        if key.role == "calibration":
            continue
        masks = used_samples(system, provenances, samples)
        if calibration is not None:
            fitted_on = np.isin(samples.content_hashes(), calibration.content_hashes())
            masks |= {CALIBRATION: fitted_on} if fitted_on.any() else {}
        if masks:
            overlap = int(np.any([*masks.values()], axis=0).sum())
            leaks.append(KnownLeak(key.path, samples.name, len(samples), overlap, used_as=tuple(masks)))
    return leaks


def refuse_leaks(
    system: str, leaks: Sequence[KnownLeak], or_else: str = "pass `allow_leak`, which marks the report"
) -> None:
    """Raises DataError when a system has any."""
    if not leaks:
        return
    findings = "; ".join(leak_text(system, leak) for leak in leaks)
    raise DataError(f"{findings}: an evaluation on them would flatter it: name other data, or {or_else}")


def _known(text: str) -> str:
    try:
        parse_corruptions(text)
    except OptionError as error:
        raise ValueError(str(error)) from error
    return text


class SuiteTask(Schema):
    """The data of one task; the names are those of the options of `hydractl evaluate`."""

    id_data: Text
    ood_data: Items[Text] = ()
    shift_data: Items[Text] = ()
    calib_data: Text | None = None
    corrupt: Annotated[Text, Checked(_known)] | None = None
    classes: Text | None = None
    template: Text | None = None
    image_column: Text | None = None
    text_column: Text | None = None
    label_column: Text | None = None
    match_labels: Literal["name", "index"] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Returns the task as options of an evaluation."""
        return {name: value for name, value in vars(self).items() if value not in (None, ())}


class _SuiteFile(Schema):
    about: Annotated[str, Checked(max_length=1000)] = ""
    tasks: Annotated[dict[Name, SuiteTask], Checked(min_length=1, max_length=1000)]


@dataclass(frozen=True)
class Suite:
    """Tasks by name, and where they come from."""

    name: str
    tasks: Mapping[str, SuiteTask]
    about: str = field(default="")


def find_suite(suite: str | Path | Suite) -> Suite:
    """Returns the built-in suite of that name, the one in a TOML file, or the suite itself.

    Raises:
        OptionError: neither a built-in suite nor a readable file.
    """
    if isinstance(suite, Suite):
        return suite
    if str(suite) in SUITES:
        return SUITES[str(suite)]
    if not str(suite).endswith(".toml"):
        raise OptionError(f"`suite` {suite}: unknown: choose {', '.join(SUITES)}, or name a .toml file")
    origin = Origin(str(suite), OptionError, REMEDY)
    content = parse_toml(read_text(Path(suite), origin, LARGEST), origin).read(_SuiteFile)
    return Suite(Path(suite).stem, content.tasks, content.about)


def _suite(name: str, about: str, **tasks: tuple[str, list[str]]) -> Suite:
    """Returns a built-in suite of tasks, each with the source of its ID data and its OOD data."""
    read = {
        task: SuiteTask(id_data=f"{task}={source}", ood_data=tuple(ood_sources))
        for task, (source, ood_sources) in tasks.items()
    }
    return Suite(name, read, about)


BUILT_IN = (
    _suite("openood-cifar10", WITHOUT_PLACES, cifar10=(CIFAR10, [f"near/cifar100={CIFAR100}", *FAR])),
    _suite("openood-cifar100", WITHOUT_PLACES, cifar100=(CIFAR100, [f"near/cifar10={CIFAR10}", *FAR])),
    _suite("openood-imagenet1k", WITHOUT_MOST, imagenet1k=(IMAGENET, [TEXTURES])),
    _suite(
        "clip",
        "nine zero-shot tasks in the manner of arXiv 2510.18358, Table 3: compare the sets with the paper's",
        **{name: (source, [SVHN, MNIST if name == "dtd" else TEXTURES]) for name, source in ZERO_SHOT.items()},
    ),
    _suite(
        "sst2",
        "arXiv 2510.18358, Table 4: SST-2 with near and far OOD data",
        sst2=(
            "stanfordnlp/sst2:validation",
            [
                "near/yelp=fancyzhx/yelp_polarity:test",
                "near/amazon=fancyzhx/amazon_polarity:test?text=title,content",
                "far/newsgroups=SetFit/20_newsgroups:test?text=text",
                "far/trec=SetFit/TREC-QC:test?text=text",
                "far/mnli=nyu-mll/glue:mnli:validation_matched?text=premise,hypothesis",
                "far/rte=nyu-mll/glue:rte:validation?text=sentence1,sentence2",
                "far/wmt16=wmt/wmt16:de-en:test?text=translation.en",
            ],
        ),
    ),
)
SUITES = {suite.name: suite for suite in BUILT_IN}
