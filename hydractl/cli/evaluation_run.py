"""Runs the systems of an evaluation one after the other; under torchrun one process leads, the others answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.cli import console
from hydractl.cli.evaluation_data import SetOptions, open_evaluation_data
from hydractl.cli.evaluation_leaks import check_leaks, watched
from hydractl.cli.evaluation_options import Plan
from hydractl.cli.evaluation_systems import OpenSystem, Running, check_same_samples, modality_of, open_systems
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.evaluation.certainty import Measured
    from hydractl.evaluation.networks import Networks
    from hydractl.evaluation.predictor import Predictor
    from hydractl.evaluation.sets import EvaluationData, SetKey

Opened = tuple[Sequence[OpenSystem], "EvaluationData | None"]


def open_evaluation(systems: Sequence[str], seeds: bool, asked: SetOptions | None, quiet: bool) -> Opened:
    """The systems and the data; no data where all systems bring their predictions along.

    Args:
        seeds: whether several systems may share a name.
        asked: None where no ID data is named.

    Raises:
        OptionError: systems and data that do not go together.
        CheckpointError: a checkpoint cannot be read.
        DataError: a source cannot be read, or saved predictions are of other data.
    """
    opened = open_systems(systems, seeds)
    modality = modality_of(opened)
    if asked is None or modality is None:
        if modality is not None:
            raise OptionError("--id-data SOURCE is missing: only saved predictions need no data")
        if asked is not None:
            raise OptionError("saved predictions bring their sets along: leave --id-data and other data out")
        return opened, None
    data = open_evaluation_data(asked, modality, quiet)
    for system in opened:
        check_same_samples(system, data)
    return opened, data


def serve(opened: Opened, running: Running) -> None:
    """Answers what the leading process asks, system after system."""
    systems, data = opened
    for system in systems:
        if system.saved is None and data is not None:
            system.load(data, running).serve()


def measure_systems(opened: Opened, running: Running, plan: Plan, allow_leak: bool) -> Iterator[Measured]:
    """The numbers of each system; its weights are let go before the next.

    Raises:
        DataError: a set cannot be read, or holds samples that made a system and that is not allowed.
        OutputError: logits cannot be saved.
    """
    systems, data = opened
    leaks = check_leaks(systems, data, allow_leak)
    folders = _folders([system.spec.name for system in systems], plan.save_logits)
    for system, folder in zip(systems, folders, strict=True):
        about = {**system.describe(), **leaks[system.spec.name]}
        networks = None if data is None or system.saved else system.load(watched(system, data), running)
        predictor = system.saved or _saving(networks, folder, about, plan)
        keys = list(system.saved.files if data is None and system.saved else data.sets if data else ())
        yield _measure(system.spec.name, predictor, keys, about, plan, running.quiet)
        if networks is not None:
            networks.dismiss()


def _folders(names: Sequence[str], below: Path | None) -> list[Path | None]:
    """Where each system's logits are saved; seeds of one name are numbered from the second on."""
    if below is None:
        return [None] * len(names)
    counts = [names[: place + 1].count(name) for place, name in enumerate(names)]
    return [below / (name if n == 1 else f"{name}-{n}") for name, n in zip(names, counts, strict=True)]


def _saving(networks: Networks | None, folder: Path | None, about: Mapping[str, Any], plan: Plan) -> Predictor:
    """The networks, their logits saved on the way where that is asked for."""
    from hydractl.evaluation.saving import SavingSystem, about_json

    assert networks is not None
    if folder is None:
        return networks
    leaks = {"leaks": about["leaks"]} if "leaks" in about else {}
    said = about_json(
        networks.data.id.name, networks.models[0].labels, networks.temperature, networks.cost, about["networks"]
    )
    features = plan.settings.score.needs_features
    saved = SavingSystem(networks, folder, {**said, **leaks}, features, plan.resume, plan.force)
    saved.start()
    return saved


def _measure(
    name: str, predictor: Predictor, keys: Sequence[SetKey], about: Mapping[str, Any], plan: Plan, quiet: bool
) -> Measured:
    from hydractl.evaluation.certainty import Measured, resample
    from hydractl.evaluation.curves import curves_json
    from hydractl.evaluation.results import measure
    from hydractl.evaluation.run import predict_sets

    def watch(key: SetKey) -> AbstractContextManager[Callable[[int], None]]:
        return console.progress(f"{name}: {key.path}", predictor.samples(key) or None, quiet)

    predictions = predict_sets(predictor, keys, plan.settings, watch)
    entry = {**about, **measure(predictions, predictor.cost, plan.settings).to_json()}
    if plan.curves:
        entry["curves"] = curves_json(predictions)
    drawn = resample(predictions, plan.settings, plan.bootstrap, plan.seed) if plan.bootstrap else None
    return Measured(name, entry, drawn)


def data_json(opened: Opened) -> dict[str, Any]:
    """Names, sizes and columns of the sets, by what they are for."""
    from hydractl.data.streams import SampleStream

    systems, data = opened
    described: dict[SetKey, dict[str, Any]] = {}
    if data is None:
        saved = next(system.saved for system in systems if system.saved is not None)
        described = {key: {"name": key.name, "samples": saved.samples(key)} for key in saved.files}
    else:
        for key, samples in data.sets.items():
            columns = samples.chosen_columns
            listed = {"columns": list(columns.inputs)} if columns else {}
            size = samples.length if isinstance(samples, SampleStream) else len(samples)
            counted = {} if size is None else {"samples": size}  # the numbers of each system count a stream's
            described[key] = {"name": samples.name, **counted, **listed}
    single = {str(key.role): entry for key, entry in described.items() if key.role in ("id", "calibration")}
    ood = {key.name: entry for key, entry in described.items() if key.role == "ood"}
    shift = {f"{key.name}/{key.severity}": entry for key, entry in described.items() if key.role == "shift"}
    return {**single, "ood": ood, "shift": shift}
