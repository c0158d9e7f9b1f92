"""The commands `analyse heads` and `analyse speed`: what dropped heads do, and models timed side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from hydractl import bounds
from hydractl.bounds import BATCH, whole
from hydractl.circuit.head_files import CircuitLike
from hydractl.data.reading import SOURCE, DataLike, Reading
from hydractl.errors import OptionError
from hydractl.inputs.members import named_circuits
from hydractl.inputs.models import Model, PlotOptions, as_member
from hydractl.inputs.result import Finding, Result
from hydractl.inputs.search_data import LabelledData, open_material, origin_of
from hydractl.options import Option, function, option, remembered, required
from hydractl.run_options import Compute, Device, DtypeLike, choose_device, choose_dtype
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.checkpoint.heads import Head
    from hydractl.circuit.objective import ScoringData
    from hydractl.circuit.separation import Separated
    from hydractl.evaluation.timing import Row
    from hydractl.model.hydra import Hydra
    from hydractl.steps.evaluate import Systems as Models
    from hydractl.systems.onnx_file import OnnxFile

    Sizes = str | int | Sequence[int]
    Dtypes = DtypeLike | Sequence[DtypeLike]
else:  # what the command line derives arguments from
    Models = Sequence[Any]
    Sizes = Dtypes = Any


@dataclass(frozen=True, kw_only=True)
class AnalyseHeads:
    """Compare how dropped and kept heads tell ID from OOD.

    For each head of the dense network, computes the distance between the mean outputs over ID and over OOD samples:
    Euclidean, and Mahalanobis by the ID samples' covariance. Reports the means over the heads that the circuit keeps
    and drops, in the last layer and in all.

    Example: hydractl analyse heads vit --circuit avg.json --id-data data/digits:test --ood-data data/far_test

    Prints four lines. `plot` draws each head's distances, with dropped heads crossed out. It also draws the outputs
    of the six heads dropped first and of the six dropped last, on their two principal components.

    >>> found = hydractl.analyse_heads("vit", circuit="circuit.json", budget=2, id_data="data/pets",
    ...                                ood_data="data/noise")
    >>> found.value.all["dropped"].heads
    2

    Source: arXiv 2510.18358, B.2.

    Raises:
        ArtifactError: the circuit cannot be read, or is of another model.
        CheckpointError: the model cannot be read.
        DataError: data cannot be read, or their labels are not the model's.
        OptionError: a budget above the number of ranked heads, or one that leaves no head to compare with.
        OutputError: the picture exists and `force` is not set, or the disk refuses it.
    """

    model: Model
    circuit: Annotated[CircuitLike, Option("The circuit whose heads are compared.", metavar="FILE|-", remembered=False)]
    budget: int | None = option(None, "Heads to drop. Default: all that the circuit ranks.", within=(1, bounds.HEADS))
    id_data: LabelledData
    ood_data: Annotated[DataLike, Option("Out-of-distribution data.", "Data", SOURCE, remembered=False)]
    reading: Reading = Reading()
    compute: Compute = Compute()
    picture: PlotOptions = PlotOptions()

    def run(self, watch: Watcher) -> Finding[Separated]:
        from hydractl.circuit.separation import separated, separations
        from hydractl.data.ranks import Ranks
        from hydractl.data.reading import parse_data
        from hydractl.reports.head_maps import separated_lines

        self.picture.check()
        parse_data(self.ood_data, "OOD data")  # several sets have no single centroid
        checkpoint = as_member(self.model)
        ranking = self._ranking(checkpoint)
        material = open_material(
            checkpoint,
            self.id_data,
            self.ood_data,
            reading=self.reading,
            compute=self.compute,
            watch=watch,
            by_loss=True,
        )
        drawn = 2 * (self.picture.plot is not None)  # each of the two drawn groups of heads takes one more pass
        with watch.progress("analyse", (1 + drawn) * material.samples) as advance:
            data = material.scoring_data(self.compute.batch_size, Ranks(), advance=advance)
            groups = separated(separations(material.model, data), ranking)
            figure = _heads_figure(groups, material.model, data) if drawn else None
        if figure is not None:
            self.picture.write(lambda: figure)
        origin = origin_of(checkpoint, remembered(self, budget=len(ranking), template=material.template))
        return Finding(groups, _heads_json(groups) | origin, list(separated_lines(groups)))

    def _ranking(self, checkpoint: Checkpoint) -> Sequence[Head]:
        """Returns the heads that the circuit drops."""
        from hydractl.checkpoint.heads import member_heads
        from hydractl.surgery.choose import by_ranking

        ((_, circuit),) = named_circuits(self.circuit, checkpoint).items()
        ranking = by_ranking(circuit.ranking, self.budget or len(circuit.ranking))
        kept = set(member_heads(checkpoint.heads, 0))
        if foreign := [head for head in ranking if head not in kept]:
            raise OptionError(
                f"{circuit.name}: drops {foreign[0]}, which {checkpoint.name} does not have: name the circuit's model"
            )
        return ranking


analyse_heads = function(AnalyseHeads)


def _heads_json(separated: Separated) -> dict[str, Any]:
    from hydractl.systems.system import plain

    heads = [
        {**head._asdict(), "dropped": head in separated.dropped, **vars(separation)}
        for head, separation in separated.heads.items()
    ]
    return plain(
        {"last_layer": separated.last, "all_layers": separated.all, "dropped": separated.dropped, "heads": heads}
    )


def _heads_figure(separated: Separated, model: Hydra, data: ScoringData) -> Figure:
    from hydractl.circuit.head_files import as_towers
    from hydractl.circuit.separation import shown_heads
    from hydractl.reports.head_maps import separation_figure
    from hydractl.steps.score_heads import about, projections

    maps: dict[str, list[list[float | None]]] = {}
    crossed: dict[str, list[tuple[int, int]]] = {}
    for name in ("euclidean", "mahalanobis"):
        values = {head: getattr(separation, name) for head, separation in separated.heads.items()}
        for tower, rows in as_towers(values, model.spec).items():
            maps[f"{tower} {name}"] = rows
            crossed[f"{tower} {name}"] = [(head.layer, head.head) for head in separated.dropped if head.tower == tower]
    distances = {head: separation.mahalanobis for head, separation in separated.heads.items()}
    groups = {}
    for name, heads in zip(("dropped first", "dropped last"), shown_heads(separated.dropped), strict=True):
        titles = {head: f"{separated.dropped.index(head) + 1}: {about(head, distances)}" for head in heads}
        groups[name] = projections(model, data, titles) if titles else []
    return separation_figure(maps, groups, "distance of ID and OOD means", crossed)


@dataclass(frozen=True, eq=False, repr=False)
class Speeds(Result):
    """The time of each model at each batch size and precision, and the environment."""

    rows: Sequence[Row]
    models: Mapping[str, Sequence[str]]
    environment: Mapping[str, Any]
    graphs: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "hydractl-speed",
            "version": 1,
            "graphs": self.graphs,
            "environment": dict(self.environment),
            "models": {name: list(references) for name, references in self.models.items()},
            "rows": [row.to_json() for row in self.rows],
        }

    def lines(self) -> Iterator[str]:
        from hydractl.reports.table import timing_lines

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

    models: Models = field(
        metadata=required(
            "Models; A+B+C run one after the other, as one system.",
            "Model",
            "[NAME=]MODEL[+MODEL...]...",
            positional=True,
        )
    )
    batch_sizes: Sizes = option("1,4,32", "Samples per forward pass.", "Compute", "N,...")
    dtypes: Dtypes = option("fp32", "Precisions.", "Compute", "fp32,bf16,fp16")
    graphs: bool = option(False, "Record each model's forward pass as a CUDA graph.", "Compute", rare=True)
    transformers: bool = option(False, "Time transformers' own forward of Hugging Face folders too.")
    seconds: float = option(
        10, "Time for each batch size and precision, without warm-up.", within=(0, 86_400), rare=True
    )
    tokens: int = option(128, "Length of texts.", within=(1, 2**20), rare=True)
    processor_time: bool = option(
        False, "Measure processor time of one thread, for a busy machine.", "Compute", rare=True
    )
    device: Device = "auto"

    def run(self, watch: Watcher) -> Speeds:
        from hydractl.evaluation.timing import Timer, open_timed, timing_environment

        sizes = [_size(size) for size in _split(self.batch_sizes)]
        precisions = [dtype for name in _split(self.dtypes) if (dtype := choose_dtype(name))]
        place = choose_device(self.device)
        if self.processor_time and place.type != "cpu":
            raise OptionError(f"`processor_time` is for the CPU, not for {place.type}: pass `device` cpu")
        if self.graphs and place.type != "cuda":
            raise OptionError(f"`graphs` needs a CUDA device, not {place.type}: leave it out")
        opened = _opened(self.models)
        rows: list[Row] = []
        total = self.seconds * len(sizes) * len(precisions) or None
        with _one_thread(self.processor_time), watch.progress("time", total) as advance:
            timer = Timer(self.seconds, self.processor_time, advance)
            for dtype in precisions:
                systems = open_timed(opened, place, dtype, graphs=self.graphs, transformers=self.transformers)
                for size in sizes:
                    watch.note(f"{dtype}, batch {size}: {', '.join(systems)}".removeprefix("torch."))
                    rows += timer.time(systems, size, self.tokens)
            environment = timing_environment(place)
        references = {name: system.references for name, system in systems.items()}
        return Speeds(rows, references, environment, self.graphs)


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
