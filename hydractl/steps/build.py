"""The whole pipeline: from a network and data to the Hydra worth keeping, and what it gains."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import member_heads
from hydractl.checkpoint.output import claim, is_ours, require_folder_of, write_bytes, write_folder
from hydractl.circuit.objective import require_confidence
from hydractl.data.reading import DataSpec, parse_data_spec
from hydractl.errors import CheckpointError, OptionError, OutputError, require
from hydractl.inputs.models import as_checkpoint, as_member
from hydractl.inputs.result import Result
from hydractl.inputs.search_data import modality_of
from hydractl.options import function
from hydractl.pipeline.build_options import (
    BEGUN,
    BUILD_TOML,
    BuildOptions,
    begun,
    effort_of,
    passes,
    record,
    settled,
    sizes_of,
    written,
)
from hydractl.pipeline.plan import FRONT, HYDRA, NETWORK, REPORT, TRAINED, plan
from hydractl.pipeline.stages import Given, Stage, makefile, run_stages
from hydractl.pipeline.thinning import families, thinning
from hydractl.selection.candidates import counts
from hydractl.steps.evaluate import Evaluate
from hydractl.training.request import Hyperparameters
from hydractl.watch import Watcher

if TYPE_CHECKING:
    from hydractl.evaluation.results import Results, SystemResult
    from hydractl.tasks.task import Task

KNOWN = 0.995  # an accuracy that networks reach on what they were trained on
KIND = "build"  # of the folder, see `hydractl.checkpoint.output`
RESULT = "work/build.json"
USES = {"ID_DATA": "ID data", "TRAIN_DATA": "training data"}  # of data before the evaluation; others are OOD data


@dataclass(frozen=True, eq=False, repr=False)
class Built(Result):
    """A Hydra and what it gains over the network it came from.

    Attributes:
        stages: the commands that made it, in order.
        folder: the folder of all files.
        report: the evaluation as plain JSON; None after a dry run.
        front: that of the best Hydra of each cost, beside the network; None where members train.
        verdict: gains and losses in a sentence.
        advice: which file to deploy, how the Hydra compares with the network trained as long and with teachers, what
            these gain over the network, what to try if the Hydra gains nothing, and the command that uses the file.
    """

    stages: Sequence[Stage]
    folder: Path
    report: Mapping[str, Any] | None = None
    front: Mapping[str, Any] | None = None
    verdict: str = ""
    advice: Sequence[str] = field(default_factory=tuple)

    @property
    def checkpoint(self) -> Checkpoint:
        """The Hydra."""
        return as_checkpoint(self.folder / HYDRA)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "hydractl-build",
            "version": 1,
            "steps": [stage.line() for stage in self.stages],
            "hydra": f"../{HYDRA}",  # as seen from this file
            **({} if self.front is None else {"front": f"../{FRONT}/report.json"}),
            "verdict": self.verdict or None,
            "advice": list(self.advice),
        }

    def lines(self) -> Iterator[str]:
        if self.report is None:
            yield f"mkdir -p {quote(str(self.folder / 'work'))}"
            yield from (stage.line(self.folder) for stage in self.stages)
            return
        yield self.verdict
        yield str(self.folder / HYDRA)
        yield from self.advice


@dataclass(frozen=True, kw_only=True)
class Build(BuildOptions):
    """Build the Hydra worth keeping, and report what it gains.

    Divides the data by the content of its samples into one part each to refit, select members, fit a temperature and
    evaluate. With training data, it tries members of several sizes and draws, keeps those that do best together, and
    fine-tunes them, so that they become uncertain on the OOD data, except the last of several sets, which decides the
    verdict; the network trains as long by itself, for comparison. Without training data, it tries members that lose MLP
    units or heads above a trunk, at several costs; `random` or `budgets` adds draws. Then fuses them, fits a
    temperature and an OOD score to the Hydra and to the network, and evaluates both on unseen samples.

    Example: hydractl build vit --id-data cifar10:test --ood-data textures=dtd:train -o built

    `effort` chooses the draws, the samples and the steps of training that are not given. Says before a step
    that takes longer than all others together, and between steps about how much time is left, once steps of the same
    kind (training, answers) have run.

    Writes hydra.safetensors, network.safetensors (the calibrated network), trained.safetensors (the network that
    trained as long), report/, build.toml, with which hydractl build repeats or changes it, a Makefile with the exact
    commands, which makes the same bytes, and work/ with the rest. If nothing trains, hydra-1.3x.safetensors and others
    are the best of each cost, which front/ compares. After an interruption, the same command continues. Prints the
    verdict, which file to deploy, gains, losses and cost.

    >>> planned = hydractl.build("vit", id_data="data/pets", ood_data=["data/noise"], output="built", dry_run=True)
    >>> list(dict.fromkeys(stage.command for stage in planned.stages))
    ['score-heads', 'prune', 'fuse', 'select', 'calibrate', 'evaluate']

    Raises:
        CheckpointError: the network cannot be read.
        DataError: data cannot be read, or a part of it is empty.
        OptionError: options contradict each other.
        OutputError: the folder is not a build's, or a build began there with other options, or the disk refuses it.
    """

    def run(self, watch: Watcher) -> Built:
        self._check()
        if not self.dry_run:
            require(
                "matplotlib", *(["accelerate"] if self.data.train_data else [])
            )  # the last steps need them, hours away
        folder, network = self.folder, as_member(self.model)
        task = self._check_task(network)
        planned, limits = begun(self, folder), self.limits
        thin = thinning(self, network, limits)
        counts("budgets", self.choice.budgets, len(member_heads(network.heads, 0)))  # which `select` refuses later
        if thin is None:
            limits.require_possible(network, self.choice.members)
        sizes = sizes_of(self, network)
        tried = families(self, network, limits, effort_of(self).untrained)
        if planned is None:
            planned = settled(self, sizes, thin is not None, watch, untrained=sum(map(len, tried.values())))
        if thin is not None:
            watch.note(
                f"note: from layer {thin.trunk} on, each member loses {thin.heads} heads and {thin.units} MLP units; "
                "`units` no tries trunks of several depths instead"
            )
        taught = bool(self.learning.teacher) and self._teachers_go_together(watch)
        mixed = taught and self._teachers_have_a_mean()
        trunks = self.choice.trunks or limits.trunks(network)
        stages = plan(
            planned,
            limits,
            trunks,
            thin,
            tried=tried,
            chooses_score=task.tells_ood == "scores",
            taught=taught,
            mixed=mixed,
        )
        if self.dry_run:
            return Built(stages, folder)
        if not self.data.ood_data:
            trained, measured = self.data.train_data is not None, bool(self.data.eval_ood_data)
            watch.note(without_ood_data(task, trained=trained, measured=measured))
        self._refuse_leaks(stages, network, taught=taught)
        self._begin(planned)
        refitted = [family.refit for rows in tried.values() for family in rows]
        return self._built(stages, passes(planned, network, sizes, trunks, refitted=refitted), watch)

    def _check(self) -> None:
        """Raises OptionError or OutputError for what a step would refuse hours later."""
        for name, value in {"id_data": self.data.id_data, "output": self.output}.items():
            if not value:
                raise OptionError(f"`{name}` is missing: give it")
        require_folder_of(self.folder, parents=True)
        if not isinstance(self.reading.classes, str | Path | None):
            raise OptionError("`classes`: a build takes a file with one name per line: write one")
        recipe, settings = self.learning.recipe, self.learning.settings
        training = {"recipe": recipe, "settings": settings, "train_samples": self.train_samples}
        for name, setting in training.items():
            if setting and self.data.train_data is None:
                raise OptionError(f"`{name}` has no effect without `train_data`: give both or neither")
        if self.learning.teacher:
            from hydractl.training.losses import require_fit

            require_fit([as_checkpoint(teacher) for teacher in self.learning.teacher], as_checkpoint(self.model))

    def _check_task(self, network: Checkpoint) -> Task:
        """Returns the network's task.

        Raises:
            OptionError: the network embeds, or its answers make no use of the OOD data.
        """
        from hydractl.tasks.all_tasks import find_task

        task = find_task(network.spec.task)
        if task.taught_only:
            raise OptionError(
                f"{network.name}: embeds, but build needs labels: use prune, finetune, fuse and calibrate"
            )
        require_confidence(task, (), self.data.ood_data or None)
        recipe = Hyperparameters(self.learning.recipe, self.learning.settings).changed_recipe()
        if not task.outliers_teach and self.data.train_data and self.data.ood_data and recipe.outlier_weight:
            raise OptionError("a model of words cannot learn from outliers: add `settings` outlier_weight=0")
        return task

    def _teachers_go_together(self, watch: Watcher) -> bool:
        """Returns whether the teachers make one file, which the Hydra can be compared with; notes why not."""
        from hydractl.surgery.fusion import require_agreement

        try:
            require_agreement([as_checkpoint(teacher) for teacher in self.learning.teacher])
        except CheckpointError as error:
            watch.note(f"note: the teachers are not evaluated: {error}")
            return False
        return True

    def _teachers_have_a_mean(self) -> bool:
        """Returns whether the teachers are several networks that keep the same heads and MLP units."""
        from hydractl.surgery.fusion import require_like

        teachers = [as_checkpoint(teacher) for teacher in self.learning.teacher]
        try:
            require_like(teachers)
        except CheckpointError:
            return False
        return sum(teacher.members for teacher in teachers) > 1

    def _refuse_leaks(self, stages: Sequence[Stage], network: Checkpoint, *, taught: bool) -> None:
        """Raises DataError for samples that the last step would refuse to measure on, hours later."""
        from hydractl.data.open import open_samples
        from hydractl.evaluation.sets import find_leaks, open_sets, refuse_leaks
        from hydractl.surgery.provenance import SEEN
        from hydractl.training.trainset import remembered_training

        evaluation: Any = stages[-1].step
        modality, reading = modality_of(network, self.reading), evaluation.reading
        histories = [as_checkpoint(model).provenance for model in (network, *(self.learning.teacher if taught else ()))]
        read = {
            (place, getattr(stage.step, "reading", reading).limit): USES.get(place.variable, "OOD data")
            for stage in stages
            for place in stage.places
            if stage.command != "evaluate" and isinstance(place, Given) and isinstance(place.source, DataSpec)
        }
        for (place, limit), use in read.items():
            data, limited = parse_data_spec(place, grouped=True), replace(reading, limit=limit)
            # An OOD set need not have the columns named for the others.
            seen = remembered_training(open_samples(data, modality, limited, strict=use != "OOD data"))
            histories.append({SEEN: {use: seen}})
        measured = open_sets(evaluation.sets, reading, modality, 0, on_note=lambda text: None)
        refuse_leaks(
            "the Hydra", find_leaks("the Hydra", histories, measured), "give others by `eval_data` or `eval_ood_data`"
        )

    def _built(self, stages: Sequence[Stage], counted: Mapping[str, float], watch: Watcher) -> Built:
        """Runs the commands and reads their results."""
        from hydractl.reports.page import read_report, report_json
        from hydractl.reports.verdict import next_command, own_score, recommended, rivalries, verdicts
        from hydractl.tasks.all_tasks import find_task

        folder, front = self.folder, any(FRONT in stage.makes for stage in stages)
        with claim(folder):
            goals = [FRONT, REPORT] if front else [REPORT]
            write_bytes(folder / "Makefile", makefile(stages, folder, goals).encode(), force=True)
            run_stages(stages, folder, counted, watch)
            report = read_report(str(folder / REPORT / "report.json"))
            found = verdicts(report.models)
            verdict = found["hydra"]
            others = [one for name, one in found.items() if name != "hydra"]
            chosen, why = recommended(report.models, ".safetensors")
            advice = [why]
            for file in (NETWORK, TRAINED):
                if file in advice[0]:  # it is what to deploy, or may be
                    advice += own_score(file, report.models[Path(file).stem])
            advice += [one.sentence() for one in (*rivalries(report.models), *others)]
            advice += cautions(report)
            if front:
                compared = read_report(str(folder / FRONT / "report.json"))
                advice += [*front_lines(compared.models), f"The front of costs: {folder / FRONT / 'index.html'}"]
            if not verdict.gains:
                # In words, not by names of options, which a shell and Python spell differently.
                last = stages[-1].step
                hurried = self.reading.limit is None and isinstance(last, Evaluate) and last.reading.limit is not None
                data = "more effort, which takes more of the data" if hurried else "more data to choose by"
                more = f"smaller budgets of heads, {data}"
                more = f"longer training, {more}" if self.data.train_data else f"{more}, training data for members"
                if front:
                    advice.append("Here, members that lose parts without training lose more than they gain together.")
                advice.append(f"For a Hydra that gains more, try {more}.")
            used = [one.reference for one in report.models[chosen].networks or ()]
            prompt = find_task(as_member(self.model).spec.task).template(self.reading.template)
            classes = "" if prompt is None else f" --classes {quote(str(self.reading.classes or 'FILE'))}"
            advice.append(f"Next: {next_command(used)}{classes}")
            shown = report_json(compared) if front else None
            built = Built(stages, folder, report_json(report), front=shown, verdict=verdict.sentence(), advice=advice)
            write_bytes(folder / RESULT, f"{json.dumps(built.to_json(), indent=2)}\n".encode(), force=True)
        return built

    def _begin(self, planned: Build) -> None:
        """Makes the folder of a build, unless this build began there.

        Raises:
            OutputError: the folder is not a build's.
        """
        folder = self.folder
        if (folder / BEGUN).exists():
            return
        if is_ours(folder, KIND):
            raise OutputError(f"{folder}: a build of another version began here: name another folder as `output`")
        with write_folder(folder, KIND) as new:
            (new / BEGUN).parent.mkdir()
            write_bytes(new / BEGUN, record(self, planned, folder))
            write_bytes(new / BUILD_TOML, written(planned, folder))


build = function(Build)


def without_ood_data(task: Task, *, trained: bool, measured: bool) -> str:
    """Returns a note of what a build lacks without OOD data, and of the remedy where the task has one.

    Args:
        measured: whether other OOD data evaluate.
    """
    lost = "no data choose the OOD score" if measured else "detection is not measured"
    if task.objective == "acc":
        return f"note: {lost}: {task.name} has no confidence by which OOD data could be detected"
    unsure = ", and members do not learn to be uncertain" if trained and task.outliers_teach else ""
    return f"note: without OOD data, {lost}{unsure}: give `ood_data`"


def front_lines(models: Mapping[str, SystemResult]) -> Iterator[str]:
    """Yields a line for each Hydra of the front: its cost, and what it gains over the network in NLL and AUROC."""
    from hydractl.reports.verdict import verdicts

    for name, verdict in verdicts(models).items():
        told = (each for each in verdict.judgements if each.key in ("nll", "mean_auroc", "loss"))
        gains = "; ".join(f"{each.metric} {each.text}" for each in told)
        yield f"{name}.safetensors at {verdict.multiply_adds or 0:.2f} times the multiply-adds: {gains}"


def cautions(report: Results) -> Iterator[str]:
    """Yields what a reader should know before believing a verdict: too few samples, or samples of the training."""
    from hydractl.reports.verdict import ENOUGH

    network = report.models["network"].id
    if network is None or network.samples is None:
        return
    if network.samples < ENOUGH:
        yield f"{network.samples:.0f} samples cannot tell small gains from chance: evaluate on {ENOUGH} or more."
    if network.accuracy is not None and network.accuracy >= KNOWN:
        share = f"{100 * network.accuracy:.1f} %"
        yield f"The network is right on {share} of the ID data: they look like its training data; give held-out data."
