"""Systems evaluated one after the other on the same data; under torchrun one process leads, the others serve."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from hydractl.checkpoint.output import claim, make_folder
from hydractl.checkpoint.spec import PROBLEM_TYPES
from hydractl.data.number_labels import match_to_task
from hydractl.data.reading import Modality
from hydractl.data.samples import missing_classes
from hydractl.errors import OptionError
from hydractl.evaluation.curves import curves_of, doubts_of, oddest_of
from hydractl.evaluation.results import DataInfo, Ood, SetInfo, SystemResult
from hydractl.evaluation.run import SystemPredictions, predict_sets
from hydractl.evaluation.sets import find_leaks, leak_text, refuse_leaks
from hydractl.evaluation.settings import NO_DATA, Procedure, Settings
from hydractl.evaluation.system_numbers import (
    SystemNumbers,
    alarms_of,
    group_means,
    id_key,
    numbers_of,
    resample,
    resamples,
)
from hydractl.metrics.arrays import FloatArray
from hydractl.surgery.provenance import exposed_to
from hydractl.systems.saved import SavedAnswers, SavedPredictions, about_json, answer_conditions
from hydractl.systems.system import Answering, Description, EvaluationData, KnownLeak, OnBatch, Running, SetKey, System
from hydractl.tasks.embeddings import EmbeddingTable, kept_neighbours
from hydractl.watch import Watcher

CHANCE = 0.03  # an AUROC is about 50 % if it is nearer to it
FEWEST = 100  # OOD samples from which on that says something
QUICK = 10_000  # images of a set that are hashed for a warning alone


@dataclass(frozen=True, eq=False)
class Comparison:
    """Systems to compare, by names that differ, with data and settings."""

    systems: Sequence[tuple[str, System]]
    data: EvaluationData | None  # None where all systems bring their answers along
    settings: Settings
    procedure: Procedure

    def sets(self, system: System) -> Sequence[SetKey]:
        """Returns the data sets that a system is evaluated on."""
        return list(system.sets if self.data is None else self.data.sets)


def open_comparison(
    systems: Sequence[tuple[str, System]],
    open_data: Callable[[Modality], EvaluationData] | None,
    settings: Settings,
    procedure: Procedure,
) -> Comparison:
    """Opens the systems and the data.

    Args:
        systems: by name.
        open_data: opens the data of a modality; None where no data is named.

    Raises:
        OptionError: systems and data that do not go together.
        CheckpointError: a checkpoint cannot be read.
        DataError: a source cannot be read, or saved predictions are of other data.
    """
    names = [name for name, _ in systems]
    if twice := [name for name in names if names.count(name) > 1]:
        raise OptionError(
            f"{names.count(twice[0])} systems are called {twice[0]}: give them names, as in first={twice[0]}"
        )
    modalities = {system.modality: name for name, system in systems if system.modality is not None}
    if len(modalities) > 1:
        listed = ", ".join(f"{name} takes {modality}s" for modality, name in modalities.items())
        raise OptionError(f"one evaluation takes either images or texts: {listed}")
    kinds = {(system.task.answers, PROBLEM_TYPES.get(system.task.name)): (name, system) for name, system in systems}
    if len(kinds) > 1:
        listed = ", ".join(f"{name} is for {system.task.name}" for name, system in kinds.values())
        raise OptionError(f"metrics of different tasks cannot be compared ({listed}): evaluate these systems apart")
    if not modalities and open_data is not None:
        raise OptionError("saved predictions include their data sets: leave out `id_data` and other data")
    if modalities and open_data is None:
        raise OptionError(NO_DATA)
    data = None if open_data is None else open_data(next(iter(modalities)))
    for _, system in systems:
        system.check(data)
    if data is None:
        first, *others = (system for _, system in systems if isinstance(system, SavedPredictions))
        for other in others:
            other.check_beside(first)
    return Comparison(systems, data, settings, procedure)


def serve(comparison: Comparison, running: Running) -> None:
    """Answers what the leading process asks, system after system."""
    for name, system in comparison.systems:
        system.on(comparison.data, _named(running, name, set())).serve()


def evaluate_systems(comparison: Comparison, running: Running, watch: Watcher) -> Iterator[SystemNumbers]:
    """Yields the numbers of each system; its weights are let go before the next.

    Raises:
        DataError: a set cannot be read, or holds samples that made a system and that is not allowed.
        OptionError: something is to be fitted and there is no calibration data.
        OutputError: logits cannot be saved.
    """
    leaks, exposed = _leaks(comparison, watch), _exposed(comparison)
    seen = frozenset().union(*exposed.values())
    if comparison.data is not None:
        _warn_of_shared(comparison.data, watch)
    at_chance: dict[str, list[bool]] = {}
    procedure, on_note = comparison.procedure, running.on_note
    notes, reference = set[str](), None
    for name, system in comparison.systems:
        folder = None if procedure.save_logits is None else Path(procedure.save_logits) / name
        made_of = replace(system.describe(), leaks=leaks[name] or None, exposed=exposed[name] or None)

        def on_set(key: SetKey, samples: int, name: str = name) -> AbstractContextManager[OnBatch]:
            return watch.progress(f"{name}: {key.path}", samples)

        prefixed = _named(running, name, notes)
        result, predictions, alarms = _evaluate(
            comparison, system, made_of, folder, running=prefixed, reference=reference, watch=on_set
        )
        reference = predictions.embedding if reference is None else reference
        for alarm in alarms:
            watch.warn(f"{name}: {alarm}")
        result = replace(result, ood_means=group_means(result.ood, seen))
        draws = resamples(procedure.bootstrap, predictions, on_note)
        on_note = _ignored  # what holds for the first system holds for all
        for each, numbers in result.ood.items():
            at_chance.setdefault(each, []).append(_is_at_chance(numbers))
        drawn = resample(predictions, draws, procedure.seed, exposed=seen) if draws else None
        yield SystemNumbers(name, result, drawn)
    for each, systems in at_chance.items():
        if all(systems):
            watch.warn(f"OOD data {each}: AUROC is about 50 % for every system: check that they show no ID classes")


def _is_at_chance(numbers: Ood) -> bool:
    """Returns whether no score tells a set from the ID data, on enough samples to say so."""
    aurocs = [auroc for auroc in (numbers.auroc, numbers.msp_auroc) if auroc is not None]
    return (numbers.samples or 0) >= FEWEST and all(abs(auroc - 0.5) < CHANCE for auroc in aurocs)


def _warn_of_shared(data: EvaluationData, watch: Watcher) -> None:
    """Warns of OOD samples that are ID samples; large sets of images are compared only if they have been hashed."""
    ood_sets = [samples for key, samples in data.sets.items() if key.role == "ood"]
    id_samples = data.id
    for samples in ood_sets:
        quick = samples.modality == "text" or max(len(samples), len(id_samples)) <= QUICK
        if quick or (samples.hashes is not None and id_samples.hashes is not None):
            shared = int(np.isin(samples.content_hashes(), id_samples.content_hashes()).sum())
            if shared:
                overlap = f"{shared} of {len(samples)} samples are ID samples too"
                watch.warn(f"OOD data {samples.name}: {overlap}: its detection numbers are wrong; name other data")


def _evaluate(
    comparison: Comparison,
    system: System,
    made_of: Description,
    folder: Path | None,
    *,
    running: Running,
    reference: FloatArray | None,
    watch: Callable[[SetKey, int], AbstractContextManager[OnBatch]],
) -> tuple[SystemResult, SystemPredictions, Sequence[str]]:
    """Returns the numbers of one system, and what is alarming in them; its weights are in memory meanwhile.

    Args:
        reference: the embeddings `[N,P]` of the first system, whose neighbours others may keep.
    """
    data, settings = comparison.data, comparison.settings
    predictor = system.on(data, running)
    answers: Answering = predictor.answers
    with ExitStack() as claims:
        if folder is not None and predictor.task.tells_ood != "scores":
            raise OptionError("`save_logits` needs a model that chooses one class: leave it out")
        if folder is not None and data is not None and not system.sets:
            make_folder(folder, parents=True)
            claims.enter_context(claim(folder))
            head = predictor.ood_head if settings.own_scores else None
            answers = SavedAnswers(
                predictor,
                folder,
                about_json(data.id.name, predictor, made_of, head),
                head,
                conditions=partial(answer_conditions, system.conditions(running), data, predictor.labels),
                resume=comparison.procedure.resume,
                force=comparison.procedure.force,
            )
            answers.start()
        predictions = predict_sets(
            predictor,
            comparison.sets(system),
            settings,
            on_set=lambda key: watch(key, predictor.samples(key)),
            answers=answers,
        )
    if (embedding := predictions.embedding) is not None:
        kept = EmbeddingTable(embedding, kept_neighbours(embedding if reference is None else reference, embedding))
        predictions = replace(predictions, tables={**predictions.tables, id_key(predictions): kept})
    result = replace(numbers_of(predictions, predictor.cost), **vars(made_of))
    if comparison.procedure.curves and predictions.with_msp:
        curves = curves_of(predictions)
        if data is not None:
            doubts, oddest = doubts_of(predictions, data.id, predictor.labels), oddest_of(predictions, data, predictor)
            curves = replace(curves, doubts=doubts, oddest=oddest or None)
        result = replace(result, curves=curves)
    alarms = list(alarms_of(predictions, predictor.labels if predictor.task.tells_ood == "scores" else None))
    if data is not None and predictor.labels is not None:
        fitted_on = (samples for key, samples in data.sets.items() if key.role == "calibration")
        matched = (match_to_task(samples, predictor.task, predictor.labels, data.match) for samples in fitted_on)
        alarms += filter(None, map(missing_classes, matched))
    predictor.dismiss()
    return result, predictions, alarms


def _named(running: Running, name: str, notes: set[str]) -> Running:
    """Returns `running` with notes prefixed by the system's name, dropping repeats."""

    def on_note(text: str) -> None:
        if text not in notes:
            notes.add(text)
            running.on_note(f"{name}: {text}")

    return replace(running, on_note=on_note)


def describe_data(comparison: Comparison) -> DataInfo:
    """Returns names, sizes and columns of the sets, as a report lists them."""
    if comparison.data is None:
        _, first = comparison.systems[0]
        described = {key: SetInfo(key.name, samples) for key, samples in first.sets.items()}
    else:
        described = {
            key: SetInfo(samples.name, len(samples), samples.columns) for key, samples in comparison.data.sets.items()
        }
    single = {key.role: info for key, info in described.items()}
    return DataInfo(
        single.get("calibration"),
        single.get("id"),
        {key.name: info for key, info in described.items() if key.role == "ood"},
        {f"{key.name}/{key.severity}": info for key, info in described.items() if key.role == "shift"},
    )


def _leaks(comparison: Comparison, watch: Watcher) -> dict[str, tuple[KnownLeak, ...]]:
    """Returns the leaks of the systems by name."""
    leaks_of: dict[str, tuple[KnownLeak, ...]] = {}
    for name, system in comparison.systems:
        # Saved predictions say themselves what leaked when they were made.
        leaks = [] if comparison.data is None else find_leaks(name, system.histories, comparison.data)
        if not comparison.procedure.allow_leak:
            refuse_leaks(name, leaks)
        for leak in leaks:
            watch.warn(f"{leak_text(name, leak)}: the numbers flatter it")
        leaks_of[name] = (*system.leaks, *leaks)
    return leaks_of


def _exposed(comparison: Comparison) -> dict[str, tuple[str, ...]]:
    """Returns, by system, the OOD sets that share their name with one that its training saw."""
    exposed: dict[str, tuple[str, ...]] = {}
    for name, system in comparison.systems:
        seen = {ood_name for history in system.histories for ood_name in exposed_to(history)}
        exposed[name] = tuple(key.name for key in comparison.sets(system) if key.role == "ood" and key.name in seen)
    return exposed


def _ignored(_note: str) -> None:
    pass
