"""Evaluating systems: accuracy, calibration, OOD detection and cost, side by side on the same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.data.reading import DEFAULT_TEMPLATE, Reading
from hydractl.errors import OptionError
from hydractl.evaluation.settings import NO_DATA, Procedure, Sets, Settings
from hydractl.inputs.result import Outputs, Reported, SuiteLike, SuiteReported
from hydractl.options import flat, function, make, option, required
from hydractl.run_options import Compute, Workers, dtype_name
from hydractl.systems.spelling import SYSTEM_KINDS
from hydractl.watch import Watcher, noting

if TYPE_CHECKING:
    from hydractl.data.reading import Modality
    from hydractl.evaluation.comparison import Comparison
    from hydractl.evaluation.system_numbers import SystemNumbers
    from hydractl.systems.system import EvaluationData, Running, System

Systems = Any  #: texts, models, and models that make a Deep Ensemble: one, several, or several by name
SPELLINGS = ", ".join(f"{kind.spelling} ({kind.help})" for kind in reversed(SYSTEM_KINDS))


@dataclass(frozen=True)
class Evaluate:
    """Measure accuracy, calibration and OOD detection.

    Example: hydractl evaluate vit hydra=hydra.safetensors --id-data cifar10:test --ood-data far/textures=dtd:test

    Prints a table with a row per system, the best of each column in bold; `json` - prints the report instead. The ID
    and OOD sets must not have been used to choose heads: evaluate refuses data that a model remembers, or with
    `allow_leak` marks the result. torchrun shares the batches among processes; any number of them gives the same bytes.

    >>> found = hydractl.evaluate({"single": "vit", "both": ["m1", "m2"]}, id_data="data/pets", ood_data="data/noise")
    >>> sorted(found.models)
    ['both', 'single']

    Raises:
        CheckpointError: a model cannot be read.
        DataError: data cannot be read, were used to make a model, or lack what is to be measured.
        OptionError: options that do not go together.
        OutputError: an output exists and `force` is not set, or the disk refuses it.
    """

    systems: Systems = field(
        metadata=required(
            f"Systems to evaluate: {SPELLINGS}.", "Model", "[NAME=]SYSTEM...", positional=True, repeated=True
        )
    )
    suite: SuiteLike | None = option(
        None,
        "Evaluate on each task of a suite, built-in or a file; see hydractl list suites.",
        "Data",
        "NAME|FILE.toml",
    )
    sets: Sets = Sets()
    settings: Settings = Settings()
    procedure: Procedure = Procedure()
    reading: Reading = Reading()
    compute: Compute = Compute()
    workers: Workers = 0
    outputs: Outputs = Outputs()

    def run(self, watch: Watcher) -> Reported | SuiteReported:
        self._check()
        return self._reported(watch) if self.suite is None else self._on_tasks(self.suite, watch)

    def _check(self) -> None:
        if self.procedure.resume and self.procedure.save_logits is None:
            raise OptionError("`resume` continues from the results of `save_logits`: pass both")
        name = self.procedure.compare
        if name is not None and name not in (names := dict(named_systems(self.systems))):
            raise OptionError(f"`compare` {name}: no system has this name: name one of {', '.join(names)}")
        if name is not None and len(self.systems) == 1:
            raise OptionError(f"`compare` {name}: no other system to compare with: name more, or leave it out")
        if name is not None and self.procedure.bootstrap == 0:
            raise OptionError(f"`compare` {name} needs intervals, which `bootstrap` 0 turns off: leave one out")
        if self.suite is None:
            self._check_data()

    def _check_data(self) -> None:
        """Raises OptionError for options on data that have no effect."""
        saved, values, plain = self.procedure.save_logits, flat(self), flat(Evaluate(self.systems))
        if self.sets.id_data is None:
            for name in (*vars(Sets()), *vars(Reading()), "save_logits"):
                if values.get(name) != plain.get(name):
                    raise OptionError(f"`{name}` has no effect without `id_data`: give both or neither")
            if isinstance(self.systems, list) and not any("predictions:" in str(system) for system in self.systems):
                raise OptionError(NO_DATA)
        elif self.sets.calib_data is not None and saved is None and not any(self.settings.fits(self.settings.score)):
            raise OptionError(
                "`calib_data`: nothing is fitted on it: add `temperature` fit or an `ood_score` of features, or leave "
                "it out"
            )

    def _reported(self, watch: Watcher) -> Reported:
        """Returns the numbers of every system; a process that does not lead returns none."""
        from hydractl.data.ranks import join_ranks, local_device
        from hydractl.evaluation.comparison import serve
        from hydractl.evaluation.results import Results
        from hydractl.systems.networks import run_by

        self.outputs.check()
        before = watch.warnings  # of other tasks of a suite
        settings = {"workers": self.workers, "seed": self.procedure.seed}
        with (
            join_ranks(local_device(self.compute.torch_device)) as ranks,
            run_by(self.compute, self.reading, noting(watch), ranks=ranks, **settings) as running,
        ):
            if not ranks.leads:
                with ranks.following():
                    serve(self._opened(watch), running)
                return Reported(Results(models={}))
            with ranks.leading():
                return self._measured(self._opened(watch), running, watch, before)

    def _opened(self, watch: Watcher) -> Comparison:
        from hydractl.evaluation.comparison import open_comparison
        from hydractl.evaluation.sets import open_sets
        from hydractl.systems.networks import NetworkSystem
        from hydractl.tasks.all_tasks import find_task

        def open_data(modality: Modality) -> EvaluationData:
            return open_sets(self.sets, self.reading, modality, self.procedure.seed, on_note=noting(watch))

        systems = named_systems(self.systems)
        networks = [system.checkpoints[0] for _, system in systems if isinstance(system, NetworkSystem)]
        template, tasks = self.reading.template, [find_task(network.spec.task) for network in networks]
        if template != DEFAULT_TEMPLATE and all(task.template(template) is None for task in tasks):
            raise OptionError(f"`template` {template}: no system is a zero-shot model: leave it out")
        procedure = replace(self.procedure, curves=self.outputs.report is not None)
        return open_comparison(systems, open_data if self.sets.id_data is not None else None, self.settings, procedure)

    def _measured(self, comparison: Comparison, running: Running, watch: Watcher, before: Sequence[str]) -> Reported:
        """Returns the report of all systems; if that is interrupted, the error holds that of the finished ones.

        Args:
            before: warnings that are not of this evaluation.
        """
        from hydractl.evaluation.comparison import evaluate_systems

        measured: list[SystemNumbers] = []
        try:
            for system in evaluate_systems(comparison, running, watch):
                measured.append(system)
        except BaseException as error:
            if measured:
                error.partial = self._written(comparison, measured, watch, before)  # type: ignore[attr-defined]
            raise
        return self._written(comparison, measured, watch, before)

    def _written(
        self, comparison: Comparison, measured: Sequence[SystemNumbers], watch: Watcher, before: Sequence[str]
    ) -> Reported:
        from hydractl.evaluation.comparison import describe_data
        from hydractl.evaluation.system_numbers import assemble
        from hydractl.reports.page import results

        resampled = max((numbers.draws for numbers in measured), default=0)
        drawn = resampled or self.sets.corrupt or any(system.draws for _, system in comparison.systems)
        options = {
            "batch_size": self.compute.batch_size,
            "limit": self.reading.limit,
            "dtype": dtype_name(self.compute.dtype),
            "corrupt": self.sets.corrupt,
            **self.settings.to_json(),
            "bootstrap": resampled or None,
            "seed": self.procedure.seed if drawn else None,
        }
        complete = len(measured) == len(comparison.systems)
        content = results(assemble(measured, self.procedure.compare), describe_data(comparison), options, complete)
        return self.outputs.write(replace(content, warnings=tuple(watch.warnings[len(before) :])), watch)

    def _on_tasks(self, suite: SuiteLike, watch: Watcher) -> SuiteReported:
        """Evaluates on each task of a suite; what a task says comes before the options.

        Raises:
            OptionError: data beside a suite, or an output of a single evaluation.
        """
        from hydractl.artifacts import write_json
        from hydractl.checkpoint.output import refuse_existing
        from hydractl.evaluation.sets import find_suite

        for name in ("id_data", "ood_data", "shift_data", "calib_data"):
            if getattr(self.sets, name) not in (None, ()):
                raise OptionError(f"`{name}`: each task of a suite names its own: leave it out")
        json, force = self.outputs.json, self.outputs.force
        if self.outputs.report is not None:
            raise OptionError("`report` draws the report of one task: write `json`, or evaluate on that task alone")
        if self.outputs.full:
            raise OptionError("`full` shows the metrics of one task: write `json`, or evaluate on that task alone")
        if json is not None:
            refuse_existing(Path(json), force)
        chosen, reports, below = find_suite(suite), {}, self.procedure.save_logits
        for name, task in chosen.tasks.items():
            watch.note(f"task {name}")
            saved = None if below is None else Path(below) / name
            options = {**task.options, "suite": None, "json": None, "save_logits": saved}
            reports[name] = make(Evaluate, flat(self) | options)._reported(watch)
        reported = SuiteReported(chosen.name, reports)
        if json is not None:
            write_json(Path(json), reported.to_json(), force)
        return reported


evaluate = function(Evaluate)


def named_systems(systems: Systems) -> list[tuple[str, System]]:
    """Returns the systems by name.

    Args:
        systems: one or several, or several by name: a text as the command line takes it, a model, models that make a
            Deep Ensemble.

    Raises:
        OptionError: no system, or a text that spells none.
    """
    if isinstance(systems, Mapping | Sequence) and not len(systems):
        raise OptionError("`systems` is empty: name a model")
    if isinstance(systems, Mapping):
        return [(name, _named(system)[1]) for name, system in systems.items()]
    if isinstance(systems, Sequence) and not isinstance(systems, str):
        return [_named(system) for system in systems]
    return [_named(systems)]


def _named(system: Any) -> tuple[str, System]:
    from hydractl.inputs.models import as_checkpoint
    from hydractl.model.hydra import Hydra
    from hydractl.systems.networks import NetworkSystem
    from hydractl.systems.onnx import OnnxSystem
    from hydractl.systems.onnx_file import is_onnx
    from hydractl.systems.saved import SavedPredictions
    from hydractl.systems.spelling import parse_system

    if isinstance(system, str) or is_onnx(system):
        return parse_system(str(system))
    if isinstance(system, NetworkSystem | OnnxSystem | SavedPredictions):
        return system.name, system
    networks = system if isinstance(system, list | tuple) else [system]
    kept = (network if isinstance(network, str | Path | Hydra) else as_checkpoint(network) for network in networks)
    made = NetworkSystem(tuple(kept))
    return made.name, made
