"""`hydractl evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hydractl.cli.device import choose_device, choose_dtype
from hydractl.cli.evaluation_data import SetOptions
from hydractl.cli.evaluation_options import (
    AllowLeak,
    Bootstrap,
    CalibData,
    ConformalName,
    Corrupt,
    Coverage,
    IdData,
    OodData,
    Plan,
    ResumeLogits,
    SaveLogits,
    Score,
    Seeds,
    ShiftData,
    Streaming,
    StyleName,
    Systems,
    Temperature,
    read_settings,
)
from hydractl.cli.evaluation_output import Full, JsonReport, Outputs, ReportFolder, check_outputs, output_report
from hydractl.cli.evaluation_run import Opened, data_json, measure_systems, open_evaluation, serve
from hydractl.cli.evaluation_systems import Running
from hydractl.cli.material import DataOptions
from hydractl.cli.options import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_TEMPLATE,
    BatchSize,
    Classes,
    Compiled,
    Device,
    Dtype,
    Force,
    ImageColumn,
    LabelColumn,
    Limit,
    MatchLabels,
    Quiet,
    Seed,
    SkipBad,
    Template,
    TextColumn,
    Token,
    Workers,
)
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.evaluation.certainty import Measured


def evaluate(
    systems: Systems,
    id_data: IdData = None,
    ood_data: OodData = None,
    calib_data: CalibData = None,
    shift_data: ShiftData = None,
    corrupt: Corrupt = None,
    ood_score: Score = "msp",
    style: StyleName = "hydractl",
    temperature: Temperature = None,
    conformal: ConformalName = None,
    coverage: Coverage = 0.9,
    bootstrap: Bootstrap = 0,
    seeds: Seeds = False,
    limit: Limit = None,
    classes: Classes = None,
    template: Template = DEFAULT_TEMPLATE,
    image_column: ImageColumn = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    match_labels: MatchLabels = "name",
    skip_bad: SkipBad = False,
    streaming: Streaming = False,
    json: JsonReport = None,
    report: ReportFolder = None,
    full: Full = False,
    save_logits: SaveLogits = None,
    allow_leak: AllowLeak = False,
    resume: ResumeLogits = False,
    device: Device = "auto",
    dtype: Dtype = None,
    compiled: Compiled = False,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    workers: Workers = 0,
    seed: Seed = 0,
    token: Token = None,
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Measure accuracy, calibration and OOD detection.

    Example: hydractl evaluate vit hydra=hydra.safetensors --id-data cifar10:test --ood-data far/textures=dtd:test

    Prints a table with a row per system, the best of each column in bold; --json - prints the report instead. The ID
    and OOD sets must not have been used to choose heads: what the models remember of that is refused, or with
    --allow-leak marked. torchrun shares the batches among processes; the numbers are the same bytes for any number.
    """
    from hydractl.data.corrupt import parse_corruptions
    from hydractl.data.ranks import batch_workers, join_ranks, local_device

    outputs = Outputs(json, report, full, force, quiet)
    check_outputs(outputs)
    if resume and save_logits is None:
        raise OptionError("--resume takes up what --save-logits FOLDER has saved: pass both")
    if streaming and (save_logits is not None or allow_leak):
        other = "--allow-leak marks" if allow_leak else "--save-logits needs"
        raise OptionError(f"{other} what is known of a set before it is read: leave --streaming out")
    settings = read_settings(ood_score, style, temperature, conformal, coverage)
    plan = Plan(settings, bootstrap, seed, report is not None, save_logits, resume, force)
    reading = DataOptions(limit, classes, template, image_column, text_column, label_column, match_labels)
    asked = None
    if id_data is not None:
        corruptions = parse_corruptions(corrupt) if corrupt else []
        asked = SetOptions(
            id_data, ood_data or [], calib_data, shift_data or [], corruptions, seed, skip_bad, streaming, reading
        )
    options = {"batch_size": batch_size, "limit": limit, "dtype": dtype, "corrupt": corrupt, **settings.to_json()}
    options |= {"compiled": compiled or None, "bootstrap": bootstrap or None}
    place = local_device(choose_device(device))
    with join_ranks(place) as ranks, batch_workers(place, ahead=1) as in_parallel:
        if streaming and ranks.size > 1:
            raise OptionError("--streaming reads its data in one process: leave torchrun out")
        silent = quiet or not ranks.leads
        precision = choose_dtype(dtype)
        running = Running(place, precision, compiled, batch_size, workers, seed, reading, ranks, in_parallel, silent)
        if not ranks.leads:
            with ranks.following():
                serve(open_evaluation(systems, seeds, asked, silent), running)
            return
        with ranks.leading():
            opened = open_evaluation(systems, seeds, asked, silent)
            measured: list[Measured] = []
            try:
                for system in measure_systems(opened, running, plan, allow_leak):
                    measured.append(system)
            finally:
                # An interruption keeps what was finished before it.
                if measured:
                    output_report(_content(opened, measured, options, plan), outputs)


def _content(opened: Opened, measured: list[Measured], options: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """The report of what is finished."""
    from hydractl.evaluation.certainty import assemble
    from hydractl.report.artifact import report_json

    systems = opened[0]
    drawn = plan.bootstrap or options["corrupt"] or any(system.spec.dropout for system in systems)
    used = {**options, "seed": plan.seed if drawn else None}
    return report_json(assemble(measured), data_json(opened), used, complete=len(measured) == len(systems))
