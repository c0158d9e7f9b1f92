"""`hydractl benchmark`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hydractl.cli import console
from hydractl.cli.device import choose_device, choose_dtype
from hydractl.cli.options import Compiled, Device, DtypeName, Force, Quiet, Token
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from hydractl.evaluation.benchmark import Row
    from hydractl.evaluation.timed import TimedSystem

SHORT: dict[str, DtypeName] = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def benchmark(
    models: Annotated[
        list[str],
        typer.Argument(metavar="[NAME=]MODEL[+MODEL...]", help="Models; A+B+C are run one after the other, as one."),
    ],
    batch_sizes: Annotated[str, typer.Option(metavar="1,4,32", help="Samples per forward pass.")] = "1,4,32",
    dtypes: Annotated[str, typer.Option(metavar="fp32,bf16,fp16", help="Precisions.")] = "fp32",
    compiled: Compiled = False,
    transformers: Annotated[
        bool, typer.Option("--transformers", help="Time transformers' own forward of Hugging Face folders too.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0, help="Time for each batch size and precision, warm-up aside.")] = 10,
    tokens: Annotated[int, typer.Option(min=1, help="Length of texts.")] = 128,
    processor_time: Annotated[
        bool, typer.Option("--processor-time", help="Count processor time of one thread: for a machine in use.")
    ] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE|-", help="Write the figures as JSON as well.")] = None,
    device: Device = "auto",
    quiet: Quiet = False,
    force: Force = False,
    token: Token = None,
) -> None:
    """Time models side by side on random inputs.

    Example: hydractl benchmark vit members=m1+m2+m3 hydra.safetensors --batch-sizes 1,4,32 --dtypes fp32,bf16

    Prints, for each batch size and precision, a row per model: latency (median, interquartile range), throughput, peak
    memory, parameters, multiply-adds, and the ratios of time and of multiply-adds to the first model.
    """
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.evaluation.benchmark import compare, time_systems
    from hydractl.evaluation.timed import open_systems

    sizes, precisions = _sizes(batch_sizes), _dtypes(dtypes)
    if json is not None and str(json) != console.STDOUT:
        refuse_existing(json, force)
    place = choose_device(device)
    if processor_time:
        if place.type != "cpu":
            raise OptionError(f"--processor-time is for the CPU, not for {place.type}: pass --device cpu")
        _use_one_thread()
    rows: list[Row] = []
    for dtype in precisions:
        systems = open_systems(_references(models), place, _torch_dtype(dtype), compiled, transformers)
        weights = {name: system.weight for name, system in systems.items()}
        for size in sizes:
            console.note(f"{dtype}, batch {size}: {', '.join(systems)}", quiet)
            runs = {name: system.on_noise(size, tokens) for name, system in systems.items()}
            timings = time_systems(runs, weights, seconds, cuda=place.type == "cuda", processor_time=processor_time)
            rows += compare(timings, weights, dtype, size)
            if str(json) != console.STDOUT:
                _print_rows(rows[-len(runs) :])
    if json is not None:
        console.write_json(json, _report(rows, systems, place, compiled), force)


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _references(models: Sequence[str]) -> dict[str, list[str]]:
    """Model references by name; several where models are run one after the other."""
    found: dict[str, list[str]] = {}
    for text in models:
        name, equals, reference = text.partition("=")
        if not equals or Path(text).exists():
            name, reference = Path(text.split("+")[0]).resolve().name.removesuffix(".safetensors"), text
        if name in found:
            raise OptionError(f"two models are called {name}: give them names, as in first={reference}")
        found[name] = [reference] if Path(reference).exists() else reference.split("+")
    return found


def _sizes(text: str) -> list[int]:
    sizes = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if min(sizes) < 1:
        raise OptionError(f"--batch-sizes {text}: expected whole numbers from 1 on, with commas between")
    return sizes


def _dtypes(text: str) -> list[DtypeName]:
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in SHORT and name not in SHORT.values():
            raise OptionError(f"--dtypes {text}: {name!r} is unknown: choose of {', '.join(SHORT)}")
    return [SHORT.get(name) or name for name in names]  # type: ignore[misc]


def _torch_dtype(name: DtypeName) -> torch.dtype:
    dtype = choose_dtype(name)
    assert dtype is not None
    return dtype


def _print_rows(rows: Sequence[Row]) -> None:
    from hydractl.report.timings import print_timings

    print_timings(rows, console.stdout_console())


def _report(
    rows: Sequence[Row], systems: Mapping[str, TimedSystem], place: torch.device, compiled: bool
) -> dict[str, object]:
    from hydractl.evaluation.benchmark import environment

    return {
        "format": "hydractl-benchmark",
        "version": 1,
        "compiled": compiled,
        "environment": environment(place),
        "models": {name: system.references for name, system in systems.items()},
        "rows": [row.to_json() for row in rows],
    }
