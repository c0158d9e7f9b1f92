"""Timing models side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.bounds import BATCH, whole
from hydractl.errors import OptionError
from hydractl.inputs.result import Result
from hydractl.options import Option, function
from hydractl.run_options import Compiled, Device, DtypeLike, choose_device, choose_dtype
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.evaluation.timing import LaidOut, Row
    from hydractl.steps.evaluate import Systems as Models
    from hydractl.systems.onnx_file import OnnxFile

    Sizes = str | int | Sequence[int]
    Dtypes = DtypeLike | Sequence[DtypeLike]
else:  # what the command line derives arguments from
    Models = Sequence[Any]
    Sizes = Dtypes = Any


@dataclass(frozen=True, eq=False, repr=False)
class Speeds(Result):
    """The time of each model at each batch size and precision, and the environment."""

    rows: Sequence[Row]
    models: Mapping[str, Sequence[str]]
    environment: Mapping[str, Any]
    laid_out: LaidOut

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "hydractl-speed",
            "version": 1,
            **asdict(self.laid_out),
            "environment": dict(self.environment),
            "models": {name: list(references) for name, references in self.models.items()},
            "rows": [row.to_json() for row in self.rows],
        }

    def lines(self) -> Iterator[str]:
        from hydractl.reports.timings import timing_lines

        yield from timing_lines(self.rows)


@dataclass(frozen=True)
class AnalyseSpeed:
    """Time models side by side on random inputs.

    Example: hydractl analyse speed vit members=m1+m2+m3 hydra.safetensors --batch-sizes 1,4,32 --dtypes fp32,bf16

    Prints, for each batch size and precision, a row per model: latency (median, interquartile range), throughput, peak
    memory, parameters, multiply-adds, and the ratios of time and of multiply-adds to the first model.

    In Python, models may have names as `{name: model}`, and several in a list are run one after the other.

    >>> timed = hydractl.analyse_speed({"members": ["m1", "m2"], "hydra": "hydra"}, batch_sizes=2, seconds=0)
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
    graphs: Annotated[bool, Option("Record each model's forward pass as a CUDA graph.", "Compute")] = False
    transformers: Annotated[bool, Option("Time transformers' own forward of Hugging Face folders too.")] = False
    seconds: Annotated[
        float, Option("Time for each batch size and precision, without warm-up.", minimum=0, maximum=86_400)
    ] = 10
    tokens: Annotated[int, Option("Length of texts.", minimum=1, maximum=2**20)] = 128
    processor_time: Annotated[
        bool, Option("Measure processor time of one thread, for a busy machine.", heading="Compute")
    ] = False
    device: Device = "auto"

    def run(self, watch: Watcher) -> Speeds:
        from hydractl.evaluation.timing import LaidOut, Timer, open_timed, timing_environment

        sizes = [_size(size) for size in _split(self.batch_sizes)]
        precisions = [dtype for name in _split(self.dtypes) if (dtype := choose_dtype(name))]
        place = choose_device(self.device)
        if self.processor_time and place.type != "cpu":
            raise OptionError(f"`processor_time` is for the CPU, not for {place.type}: pass `device` cpu")
        if self.graphs and (self.compiled or place.type != "cuda"):
            raise OptionError("`graphs` is for a CUDA device, and without `compiled`: leave one out")
        opened = _opened(self.models)
        laid_out = LaidOut(self.compiled, self.graphs)
        rows: list[Row] = []
        total = self.seconds * len(sizes) * len(precisions) or None
        with _one_thread(self.processor_time), watch.progress("time", total) as advance:
            timer = Timer(self.seconds, self.processor_time, advance)
            for dtype in precisions:
                systems = open_timed(opened, place, dtype, laid_out, transformers=self.transformers)
                for size in sizes:
                    watch.note(f"{dtype}, batch {size}: {', '.join(systems)}".removeprefix("torch."))
                    rows += timer.time(systems, size, self.tokens)
            environment = timing_environment(place)
        references = {name: system.references for name, system in systems.items()}
        return Speeds(rows, references, environment, laid_out)


analyse_speed = function(AnalyseSpeed)


@contextmanager
def _one_thread(alone: bool) -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1 if alone else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _opened(models: Models) -> dict[str, Sequence[Checkpoint] | OnnxFile]:
    """Returns models by name, spelt as `evaluate` takes them; several that are run one after the other."""
    from hydractl.steps.evaluate import named_systems
    from hydractl.systems.networks import NetworkSystem
    from hydractl.systems.onnx import OnnxSystem

    opened: dict[str, Sequence[Checkpoint] | OnnxFile] = {}
    for name, system in named_systems(models):
        if name in opened:
            raise OptionError(f"two models are called {name}: name them, as in first={name}")
        if isinstance(system, OnnxSystem):
            opened[name] = system.file
            continue
        if not isinstance(system, NetworkSystem) or system.dropout:
            raise OptionError(
                f"{name}: only networks are timed: name models, or MODEL+MODEL to run one after the other"
            )
        opened[name] = system.checkpoints
    return opened


def _split(value: Any) -> Sequence[Any]:
    if isinstance(value, str):
        return value.split(",")
    return value if isinstance(value, list | tuple) else [value]


def _size(size: Any) -> int:
    samples = whole(size, 1, BATCH)
    if samples is None:
        raise OptionError(f"`batch_sizes` {size}: expected whole numbers from 1 to {BATCH}")
    return samples
