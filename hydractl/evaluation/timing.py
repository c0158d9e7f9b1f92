"""Time and memory of systems: side by side in one run, so that noise hits all of them alike."""

from __future__ import annotations

import os
import platform
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from torch import Tensor

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.spec import ModelSpec
from hydractl.errors import OptionError
from hydractl.families.peft import CONFIG as ADAPTER
from hydractl.inference import load_checkpoint
from hydractl.model.hydra import Hydra
from hydractl.systems.cost import cost, give_synthetic_classes, synthetic_inputs
from hydractl.systems.onnx import start_onnx
from hydractl.systems.onnx_file import OnnxFile
from hydractl.tasks.all_tasks import find_task

WARM_UP = 2  # calls of each system before the first that counts
FEWEST = 5  # rounds, however long one takes

Run = Callable[[], object]


@dataclass(frozen=True)
class Weight:
    """A system's parameters and multiply-adds, known without running it.

    Args:
        parameters: numbers stored.
        size: their bytes.
        multiply_adds: of one sample as the network is published, every token through every layer.
        performed: of one sample as the system computes it.
    """

    parameters: int
    size: int
    multiply_adds: int
    performed: int


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one batch (median, interquartile range, fastest round), and the bytes it needs at its peak."""

    milliseconds: float
    fastest: float
    spread: float
    rounds: int
    peak_memory: int


@dataclass(frozen=True)
class Row:
    """One system at one batch size in one precision; ratios are to the first system of the run.

    `over_counted` is the ratio of times over the ratio of multiply-adds performed: 1 where time follows arithmetic.
    """

    name: str
    dtype: str
    batch_size: int
    timing: Timing
    weight: Weight
    ratio: float
    counted_ratio: float

    @property
    def throughput(self) -> float:
        """Samples per second."""
        return 1000 * self.batch_size / self.timing.milliseconds

    @property
    def over_counted(self) -> float:
        return self.ratio / self.counted_ratio

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "throughput": self.throughput, "over_counted": self.over_counted}


@dataclass(frozen=True)
class Timer:
    """Times systems that take turns."""

    seconds: float  # to spend on all of them together, after warm-up
    # Count this thread's time on the processor instead, which other programs do not lengthen; for one thread of a CPU.
    processor_time: bool = False
    # Called after each turn with how many of them are spent since the last.
    on_seconds: Callable[[float], None] = lambda spent: None

    def time(self, systems: Mapping[str, TimedSystem], batch_size: int, tokens: int) -> list[Row]:
        """Returns a row per system, with ratios to the first.

        Args:
            tokens: of texts.
        """
        runs = {name: system.on_noise(batch_size, tokens) for name, system in systems.items()}
        for run in runs.values():
            for _ in range(WARM_UP):
                run()
        peaks = {name: _activation_peak(run, systems[name].device) for name, run in runs.items()}
        taken: dict[str, list[float]] = {name: [] for name in runs}
        names, end = deque(runs), time.perf_counter() + self.seconds
        left = self.seconds
        while len(taken[names[0]]) < FEWEST or left > 0:
            for name in names:
                taken[name].append(self._milliseconds(runs[name], systems[name].device))
            names.rotate(-1)  # nobody always follows the same system's caches
            before, left = left, max(0.0, end - time.perf_counter())
            self.on_seconds(before - left)
        return _rows(systems, batch_size, {name: _timing(values, peaks[name]) for name, values in taken.items()})

    def _milliseconds(self, run: Run, device: torch.device) -> float:
        if device.type == "cuda":
            return _milliseconds_on_device(run)
        clock = time.thread_time if self.processor_time else time.perf_counter
        start = clock()
        run()
        return 1000 * (clock() - start)


def _rows(systems: Mapping[str, TimedSystem], batch_size: int, timings: Mapping[str, Timing]) -> list[Row]:
    first = next(iter(systems))
    return [
        Row(
            name=name,
            dtype=system.precision or str(system.dtype).removeprefix("torch."),
            batch_size=batch_size,
            timing=replace(timings[name], peak_memory=system.weight.size + timings[name].peak_memory),
            weight=system.weight,
            ratio=timings[name].milliseconds / timings[first].milliseconds,
            counted_ratio=system.weight.performed / systems[first].weight.performed,
        )
        for name, system in systems.items()
    ]


def timing_environment(device: torch.device) -> dict[str, Any]:
    """Returns everything that the figures depend on beside the models."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {"device": str(device), "name": name, "torch": torch.__version__, "threads": torch.get_num_threads()}


def _timing(values: Sequence[float], activations: int) -> Timing:
    low, _, high = quantiles(values, n=4)
    return Timing(median(values), min(values), spread=high - low, rounds=len(values), peak_memory=activations)


def _milliseconds_on_device(run: Run) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def _activation_peak(run: Run, device: torch.device) -> int:
    """Returns the most bytes that one call holds at once beside the weights."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler greets on stderr otherwise
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    return max([0, *accumulate(event.nbytes() for event in sorted(events, key=lambda e: e.start_ns()))])


@dataclass(frozen=True, eq=False)
class TimedSystem:
    """Models that answer one after the other; their mean is the system's answer."""

    references: tuple[str, ...]
    spec: ModelSpec
    answers: tuple[Callable[[dict[str, Tensor]], Tensor], ...]  # inputs to probabilities
    weight: Weight
    device: torch.device
    dtype: torch.dtype
    precision: str | None = None  # of its products, where that is not the type of its inputs

    def on_noise(self, batch_size: int, tokens: int) -> Run:
        """Returns one call of this system on a random batch of its own."""
        inputs = synthetic_inputs(self.spec, batch_size, self.device, tokens)
        inputs = {k: v.to(self.dtype) if v.is_floating_point() else v for k, v in inputs.items()}

        def run() -> Tensor:
            with torch.inference_mode():
                return torch.stack([answer(inputs) for answer in self.answers]).mean(0)

        return run


def open_timed(
    networks: Mapping[str, Sequence[Checkpoint] | OnnxFile],
    device: torch.device,
    dtype: torch.dtype,
    *,
    graphs: bool = False,
    transformers: bool = False,
) -> dict[str, TimedSystem]:
    """Returns the systems to time, by name.

    Args:
        networks: models by system; several are run one after the other. An ONNX file runs in its own precision.
        graphs: whether their passes are recorded as CUDA graphs.
        transformers: also time transformers' own forward of each single model that is a folder as it writes them.

    Raises:
        CheckpointError: a tensor cannot be read.
        OptionError: `transformers` without a folder that transformers can time.
    """
    checkpoints = {name: models for name, models in networks.items() if not isinstance(models, OnnxFile)}
    systems = {
        name: _graph(models) if isinstance(models, OnnxFile) else _system(models, device, dtype, graphs)
        for name, models in networks.items()
    }
    if transformers:
        folders = {
            name: Path(models[0].name)
            for name, models in checkpoints.items()
            if len(models) == 1 and (Path(models[0].name) / "config.json").is_file()
        }
        refusal = "`transformers` times folders of image or text classifiers as transformers writes them"
        if not folders:
            raise OptionError(refusal)
        for name in folders:
            find_task(systems[name].spec.task).require_classifier(refusal)
        for name, folder in folders.items():
            systems[f"{name} (transformers)"] = _their_forward(folder, systems[name])
    return systems


def _system(models: Sequence[Checkpoint], device: torch.device, dtype: torch.dtype, graphs: bool) -> TimedSystem:
    loaded = [load_checkpoint(model, device, dtype).optimize_for_inference() for model in models]
    for model in loaded:
        give_synthetic_classes(model)
    costs = [cost(model) for model in loaded]
    if graphs:
        loaded = [model.optimize_for_inference(graphs=True) for model in loaded]
    weight = Weight(
        sum(figures.parameters for figures in costs),
        sum(parameter.nbytes for model in loaded for parameter in model.parameters()),
        sum(figures.multiply_adds for figures in costs),
        performed=sum(figures.performed for figures in costs),
    )
    names = tuple(model.name for model in models)
    return TimedSystem(names, loaded[0].spec, tuple(map(_probabilities, loaded)), weight, device=device, dtype=dtype)


def _graph(file: OnnxFile) -> TimedSystem:
    """Returns an ONNX file to time on a processor; the memory of its activations is not known."""
    model, cost = start_onnx(file), file.cost
    weight = Weight(cost.parameters, file.size, cost.multiply_adds, performed=cost.performed)

    def answer(inputs: dict[str, Tensor]) -> Tensor:
        return next(iter(model.run(inputs).values()))

    return TimedSystem(
        (file.name,),
        model.spec,
        (answer,),
        weight,
        device=torch.device("cpu"),
        dtype=torch.float32,
        precision=file.precision,
    )


def _probabilities(model: Hydra) -> Callable[[dict[str, Tensor]], Tensor]:
    return lambda inputs: model(**inputs).probabilities


def _their_forward(folder: Path, system: TimedSystem) -> TimedSystem:
    from transformers import AutoModelForImageClassification, AutoModelForSequenceClassification

    if (folder / ADAPTER).exists():  # transformers would load, or fetch, the network that it names in place of this one
        raise OptionError(f"{folder}: holds {ADAPTER}, which names another network: `transformers` needs one without")
    images, task = system.spec.modality == "image", find_task(system.spec.task)
    classes: Any = AutoModelForImageClassification if images else AutoModelForSequenceClassification
    # The same attention as in our own forward: torch's, on whichever backend it chooses.
    options = {"trust_remote_code": False, "local_files_only": True, "use_safetensors": True}
    model = classes.from_pretrained(folder, dtype=system.dtype, attn_implementation="sdpa", **options)
    model = model.eval().to(system.device)

    def answer(inputs: dict[str, Tensor]) -> Tensor:
        return task.probabilities(task.link(model(**inputs).logits[None], 1.0))

    return replace(system, answers=(answer,), weight=replace(system.weight, performed=system.weight.multiply_adds))
