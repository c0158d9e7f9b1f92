"""Suites are several tasks, each with its own in-distribution, OOD and shifted data, evaluated as one.

A suite is a TOML file with a table for each task:

    about = "sentiment and topics"

    [tasks.sst2]
    id_data = "stanfordnlp/sst2:validation"
    ood_data = ["near/amazon=fancyzhx/amazon_polarity:test?text=title,content", "far/trec=trec.csv"]
    text_column = "sentence"
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from hydractl.data.corruptions import parse_corruptions
from hydractl.errors import OptionError
from hydractl.schema import Checked, Items, Origin, Schema, parse_toml, read_text

LARGEST = 2**18  # bytes of a suite
REMEDY = "correct it; hydractl guide data shows a suite"

Text = Annotated[str, Checked(min_length=1, max_length=4096)]
#: Of a task: it also names a folder of saved predictions.
Name = Annotated[str, Checked(pattern=r"^[\w][\w.-]{0,99}$")]


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
OPENOOD = "Yang et al. 2022, Zhang et al. 2023 (OpenOOD); sets that are not on the hub are to be added as folders: "
WITHOUT_PLACES = f"{OPENOOD}far Places365"
WITHOUT_MOST = f"{OPENOOD}near SSB-hard and NINCO, far iNaturalist and OpenImage-O"

BUILT_IN = (
    _suite("openood-cifar10", WITHOUT_PLACES, cifar10=(CIFAR10, [f"near/cifar100={CIFAR100}", *FAR])),
    _suite("openood-cifar100", WITHOUT_PLACES, cifar100=(CIFAR100, [f"near/cifar10={CIFAR10}", *FAR])),
    _suite("openood-imagenet1k", WITHOUT_MOST, imagenet1k=(IMAGENET, [TEXTURES])),
    _suite(
        "openood-imagenet200",
        f"{WITHOUT_MOST}; imagenet-200.txt is to name its 200 classes, one a line, as the ID data call them",
        imagenet200=(f"{IMAGENET}?only=imagenet-200.txt", [TEXTURES]),
    ),
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
