"""Timing models side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os.path import exists  # also of names that no path can have
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.bounds import BATCH, whole
from hydractl.errors import OptionError
from hydractl.options import Option, function
from hydractl.steps.compute import DTYPES, Device, DtypeLike, choose_device, choose_dtype
from hydractl.steps.inputs import Compiled, ModelLike, as_checkpoint, model_name
from hydractl.steps.result import Table
from hydractl.watch import Watcher

if TYPE_CHECKING:
    import torch

    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.evaluation.timing import Row

    Models = ModelLike | Sequence[ModelLike] | Mapping[str, ModelLike | Sequence[ModelLike]]
    Sizes = str | int | Sequence[int]
    Dtypes = DtypeLike | Sequence[DtypeLike]
else:  # what the command line derives arguments from
    Models = Sequence[Any]
    Sizes = Dtypes = Any


@dataclass(frozen=True, eq=False, repr=False)
class Benchmarked(Table):
    """The time of each model at each batch size and precision, and the environment."""

    rows: Sequence[Row]
    models: Mapping[str, Sequence[str]]
    environment: Mapping[str, Any]
    compiled: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "hydractl-benchmark",
            "version": 1,
            "compiled": self.compiled,
            "environment": dict(self.environment),
            "models": {name: list(references) for name, references in self.models.items()},
            "rows": [row.to_json() for row in self.rows],
        }

    def lines(self) -> Iterator[str]:
        from hydractl.report.analyses import timing_lines

        yield from timing_lines(self.rows)


@dataclass(frozen=True)
class Benchmark:
    """Time models side by side on random inputs.

    Example: hydractl benchmark vit members=m1+m2+m3 hydra.safetensors --batch-sizes 1,4,32 --dtypes fp32,bf16

    Prints, for each batch size and precision, a row per model: latency (median, interquartile range), throughput, peak
    memory, parameters, multiply-adds, and the ratios of time and of multiply-adds to the first model.

    In Python, models may have names as `{name: model}`, and several in a list are run one after the other.

    >>> timed = hydractl.benchmark({"members": ["m1", "m2"], "hydra": "hydra"}, batch_sizes=2, seconds=0)
    >>> [row.name for row in timed.rows]
    ['members', 'hydra']

    Raises:
        CheckpointError: a model cannot be read.
        OptionError: two models of one name, or bad options.
    """

    models: Annotated[
        Models,
        Option(
            "Models; A+B+C run one after the other, as one system.",
            "Model",
            "[NAME=]MODEL[+MODEL...]...",
            positional=True,
        ),
    ]
    batch_sizes: Annotated[Sizes, Option("Samples per forward pass.", "Compute", "N,...")] = "1,4,32"
    dtypes: Annotated[Dtypes, Option("Precisions.", "Compute", "fp32,bf16,fp16")] = "fp32"
    compiled: Compiled = False
    transformers: Annotated[bool, Option("Time transformers' own forward of Hugging Face folders too.")] = False
    seconds: Annotated[
        float, Option("Time for each batch size and precision, without warm-up.", minimum=0, maximum=86_400)
    ] = 10
    tokens: Annotated[int, Option("Length of texts.", minimum=1, maximum=2**20)] = 128
    processor_time: Annotated[
        bool, Option("Measure processor time of one thread, for a busy machine.", heading="Compute")
    ] = False
    device: Device = "auto"

    def run(self, watch: Watcher) -> Benchmarked:
        from hydractl.evaluation.timing import Timer, compare, environment, open_timed

        sizes, precisions = _sizes(self.batch_sizes), _precisions(self.dtypes)
        place = choose_device(self.device)
        if self.processor_time and place.type != "cpu":
            raise OptionError(f"`processor_time` is for the CPU, not for {place.type}: pass `device` cpu")
        checkpoints = _checkpoints(self.models)
        rows: list[Row] = []
        total = self.seconds * len(sizes) * len(precisions) or None
        with _one_thread(self.processor_time), watch.progress("time", total) as advance:
            timer = Timer(self.seconds, place.type == "cuda", self.processor_time, advance)
            for precision in precisions:
                systems = open_timed(
                    checkpoints, place, _dtype(precision), compiled=self.compiled, transformers=self.transformers
                )
                weights = {name: system.weight for name, system in systems.items()}
                for size in sizes:
                    watch.note(f"{precision}, batch {size}: {', '.join(systems)}")
                    runs = {name: system.on_noise(size, self.tokens) for name, system in systems.items()}
                    rows += compare(timer.time(runs, weights), weights, precision, size)
        references = {name: system.references for name, system in systems.items()}
        return Benchmarked(rows, references, environment(place), self.compiled)


benchmark = function(Benchmark)


@contextmanager
def _one_thread(wanted: bool) -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1 if wanted else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _checkpoints(models: Models) -> dict[str, list[Checkpoint]]:
    """Returns models by name; several that are run one after the other."""
    if isinstance(models, Mapping):
        return {name: [as_checkpoint(one) for one in _listed(model)] for name, model in models.items()}
    found: dict[str, list[Checkpoint]] = {}
    for model in _listed(models):
        name, parts = _named(model)
        if name in found:
            raise OptionError(f"two models are called {name}: name them, as in first={model}")
        found[name] = [as_checkpoint(part) for part in parts]
    return found


def _named(model: ModelLike) -> tuple[str, Sequence[ModelLike]]:
    """Returns the name of a model and its parts; `NAME=A+B` names several unless a file has that name."""
    if not isinstance(model, str):
        return model_name(model), [model]
    from hydractl.evaluation.checkpoints import networks_in

    name, equals, reference = model.partition("=")
    if not equals or exists(model):
        name, reference = model_name(model if exists(model) else model.split("+")[0]), model
    return name, networks_in(reference)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _sizes(sizes: Sizes) -> list[int]:
    parts = sizes.split(",") if isinstance(sizes, str) else _listed(sizes)
    found = [size for part in parts if (size := whole(part, 1, BATCH)) is not None]
    if not found or len(found) < len(parts):
        raise OptionError(f"`batch_sizes` {sizes}: expected whole numbers from 1 to {BATCH}")
    return found


def _precisions(dtypes: Dtypes) -> list[str]:
    parts = dtypes.split(",") if isinstance(dtypes, str) else _listed(dtypes)
    names = [str(part).strip().lower().removeprefix("torch.") for part in parts]
    if not names or not set(names) <= DTYPES.keys():
        unknown = next((name for name in names if name not in DTYPES), "nothing")
        raise OptionError(f"`dtypes` {dtypes}: {unknown!r} is unknown: choose from fp64, fp32, bf16, fp16")
    return [DTYPES[name] for name in names]


def _dtype(name: str) -> torch.dtype:
    dtype = choose_dtype(name)
    assert dtype is not None
    return dtype
