"""Calibrating a model: a temperature, and what tells OOD, fitted on held-out data and kept in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydractl.bounds import parse_share
from hydractl.checkpoint.calibration import INTERVAL, OodFit
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.output import claim, refuse_existing
from hydractl.data.reading import DataLike, DataSetsLike, Reading, SkipBad
from hydractl.errors import OptionError
from hydractl.inputs.models import Model, as_checkpoint
from hydractl.inputs.result import MadeModel
from hydractl.inputs.search_data import OOD_SETS, modality_of, open_ood_sets, tell_oddities
from hydractl.ood.ood_scores import DEFAULT, OOD_SCORES
from hydractl.options import Option, function, option, remembered
from hydractl.run_options import Compute, Force, Output, Resume, Workers
from hydractl.text import span
from hydractl.watch import LOG, Watcher, noting, tell

if TYPE_CHECKING:
    from hydractl.calibration.network_fit import CalibrationData, Fit, Fits
    from hydractl.calibration.ood_fit import Accepted, Wanted
    from hydractl.calibration.promises import Recalled, WantedPromises
    from hydractl.checkpoint.output import StateFolder
    from hydractl.data.ranks import Ranks
    from hydractl.data.samples import Samples
    from hydractl.metrics.bootstrap import Choice
    from hydractl.metrics.scaling import FittedTemperature


@dataclass(frozen=True)
class Promises:
    """Says how often inputs are accepted, and answers, intervals and sets are right.

    Raises:
        OptionError: one is no share, or always, which no number of samples shows; or `by_class` without a promise.
    """

    accept: str = option(
        "95%", "Share of ID samples that predict must not flag as OOD, as 0.95 or 95%.", metavar="SHARE", rare=True
    )
    accuracy: str | None = option(
        None, "Find the confidence above which answers are right this often, as 0.99 or 99%.", metavar="SHARE"
    )
    interval: str | None = option(
        None,
        f"Share of intervals that must contain the right number. Default: {100 * INTERVAL:g}%.",
        metavar="SHARE",
        rare=True,
    )
    sets: str | None = option(
        None, "Find prediction sets that contain the right class this often, as 0.95 or 95%.", metavar="SHARE"
    )
    recall: str | None = option(
        None,
        "Share of true labels, or of true spans of words, that answers must contain, as 0.95 or 95%.",
        metavar="SHARE",
        rare=True,
    )
    by_class: bool = option(
        False, "Promise `accuracy`, `sets`, or the `recall` of labels for each class separately.", rare=True
    )

    def __post_init__(self) -> None:
        parse_share("accept", self.accept)
        for name in self.names:
            if parse_share(name, getattr(self, name)) == 1:
                raise OptionError(
                    f"`{name}` 1: no number of samples proves that answers are always right: choose a value below 1"
                )
        if self.by_class and self.first is None:
            raise OptionError("`by_class` needs a promise: add `accuracy`, `sets` or `recall`")

    @property
    def names(self) -> tuple[str, ...]:
        """The promises of answers that are asked for."""
        return tuple(name for name in ("accuracy", "sets", "recall", "interval") if getattr(self, name) is not None)

    @property
    def shares(self) -> dict[str, float | None]:
        """The shares of samples that are accepted, of answers and sets that are right, and of labels answered."""
        texts = {"accept": self.accept, "accuracy": self.accuracy, "sets": self.sets, "recall": self.recall}
        return {name: None if text is None else parse_share(name, text) for name, text in texts.items()}

    @property
    def accept_share(self) -> float:
        """The share of ID samples to accept."""
        return parse_share("accept", self.accept)

    @property
    def interval_share(self) -> float:
        """The share of numbers that intervals hold."""
        return INTERVAL if self.interval is None else parse_share("interval", self.interval)

    @property
    def first(self) -> str | None:
        """The first option that promises something of answers by labels, as messages name it."""
        return next((f"`{name}`" for name in self.names if name != "interval"), None)

    @property
    def wanted(self) -> WantedPromises:
        """The promises to fit to answers."""
        from hydractl.calibration.promises import WantedPromises

        shares = self.shares
        return WantedPromises(shares["accuracy"], shares["sets"], shares["recall"], by_class=self.by_class)


SHIFT_SETS = Option(
    "Inputs that differ from the ID data but should be accepted; repeat it for several sets.",
    "Data",
    "[NAME=]SOURCE[:SPLIT]",
    repeated=True,
    remembered=False,
    rare=True,
)


if TYPE_CHECKING:
    ScoreName = str
else:  # what the command line derives choices from
    ScoreName = Literal[("auto", *(score.name for score in OOD_SCORES))]


@dataclass(frozen=True, eq=False, repr=False)
class Calibrated(MadeModel):
    """A model with a temperature, and the change on the data it was fitted on.

    Attributes:
        fitted: the temperature or intervals, and the NLL before and after; None without labels.
        samples: how many it was fitted on.
        ood: the OOD score that was fitted too.
        accepted: how many of the ID samples it does not flag, by fits that do not know them.
        choice: what scores do on the OOD data, if some were given, and how that score was chosen.
        shift: of each set of shift data, the share that is flagged without and with taking it in.
        recall: what the promise of recall does on these samples, and costs in precision.
        warnings: lines that a person must see.
    """

    checkpoint: Checkpoint
    fitted: FittedTemperature | None
    samples: int
    ood: OodFit
    accepted: Accepted
    choice: Choice | None = None
    shift: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    recall: Recalled | None = None
    output: Path | None = None
    warnings: Sequence[str] = ()

    @property
    def temperature(self) -> float:
        """The number that divides the logits of every member."""
        return self.checkpoint.calibration.divisor

    def __str__(self) -> str:
        from hydractl.tasks.all_tasks import find_task

        fit = self.fitted
        scaled = find_task(self.checkpoint.spec.task).unfitted(self.samples)
        if fit is not None:
            scaled = (
                f"{fit}: NLL {fit.nll_before:.4f} -> {fit.nll_after:.4f} "
                f"on {self.samples} samples, {100 * fit.argmax_changed:.2f} % of predictions changed"
            )
        kept = f"accepts {self.accepted} of held-out samples, {100 * self.ood.accept:g} % are promised"
        return "; ".join([scaled, f"OOD score {self.ood.score} {kept}", *self._promises()])

    def _promises(self) -> Iterator[str]:
        if self.ood.accuracy is not None:
            share, least = f"{100 * self.ood.accuracy:g} % of", self.ood.least
            if least:
                yield f"{share} answers are right from a confidence of {span(least)}"
            else:
                yield f"{share} the answers with each label are right"
        if (sets := self.checkpoint.calibration.sets) is not None:
            yield f"{100 * sets.coverage:g} % of sets hold the right class, from a probability of {span(sets.least)}"
        if (recall := self.checkpoint.calibration.recall) is not None and (here := self.recall) is not None:
            share, cost = (
                f"{100 * recall.share:g} %",
                f"{100 * here.precision:.1f} %, {100 * here.before:.1f} % without",
            )
            bounds = f"from a probability of {span(recall.least)}"
            yield f"answers hold {share} of what is there, {bounds}, at a precision of {cost}"

    def to_json(self) -> dict[str, Any]:
        return {
            "output": None if self.output is None else str(self.output),
            **({} if self.fitted is None else asdict(self.fitted)),
            "ood": self.ood.to_json(),
            "accepted": {"share": self.accepted.share, "interval": self.accepted.interval()},
            "choice": None if self.choice is None else asdict(self.choice),
            **({} if (sets := self.checkpoint.calibration.sets) is None else {"sets": asdict(sets)}),
            **({} if self.recall is None else {"recall": asdict(self.recall)}),
            "shifted": {name: {"flagged": before, "taken_in": after} for name, (before, after) in self.shift.items()},
            "warnings": list(self.warnings),
        }

    def lines(self) -> Iterator[str]:
        yield str(self) if self.output is None else str(self.output)

    def guidance(self) -> Iterator[str]:
        if self.output is not None:
            yield f"next: hydractl check {self.output} --id-data SOURCE"

    def facts(self) -> Mapping[str, object]:
        fit = self.fitted
        scaled: dict[str, object] = {}
        if fit is not None:
            scaled = {
                "fitted": str(fit),
                "NLL": f"{fit.nll_before:.4f} before, {fit.nll_after:.4f} after",
                "predictions changed": f"{100 * fit.argmax_changed:.2f} %",
            }
        return (
            scaled
            | {"samples": self.samples}
            | {"OOD score": f"{self.ood.score}, flags {100 - 100 * self.ood.accept:g} %, accepts {self.accepted}"}
            | ({"promises": "; ".join(promises)} if (promises := list(self._promises())) else {})
            | ({"file": self.output} if self.output else {})
        )


@dataclass(frozen=True)
class Calibrate:
    """Fit the temperature of a model, and the OOD score that finds odd inputs.

    Example: hydractl calibrate hydra.safetensors --id-data cifar10:train[:2000] --ood-data textures -o out.safetensors

    One number divides the logits of every member: the one with the lowest negative log-likelihood of the members' mean
    probability. Predictions of the written file use it. They give each sample its typicality, the share of these
    samples that look at least as odd by an OOD score, and flag the samples below 1 - `accept`.

    The OOD score is layers, which asks all layers and, at half their weight, the last one again. It needs neither
    labels nor OOD data. With OOD data, another score takes its place if its mean AUROC on them is higher beyond chance.
    A score that `ood_score` names is measured beside the MSP. OOD data of a kind that training saw do not choose,
    because they flatter scores of answers. Without labels, only the OOD score is fitted. Evaluations refuse all data
    that was used.

    An OOD score finds inputs that are unlike the calibration data, not wrong answers, and also flags right inputs of a
    new source. `shift_data` names such inputs that are welcome: they join the samples that typicality counts.

    torchrun shares the batches among processes; any number of them gives the same bytes. Until the output is written, a
    .state folder beside it holds the finished data sets' answers; after an interruption, `resume` continues from them.

    For a multi-label model, the temperature minimises the binary loss, and each label gets the threshold with the
    highest F1 on these samples; with `accuracy` the lowest from which it is right that often, by the bound below.
    `predict` answers with the labels above their thresholds.

    For a regression, `interval` is the share of intervals around its numbers that hold the right one, by split
    conformal prediction: a random half of the samples fits how the error grows with the members' spread, the others
    the width. One logit with a sigmoid gets a temperature by labels of 0 and 1, or intervals by other numbers.

    For a model that labels words, the temperature minimises the NLL of words, and `accuracy` is that of spans.

    With `accuracy`, finds the lowest confidence (MSP) from which answers are right that often, by the one-sided 95 %
    bound of Clopper and Pearson. `predict` then says of which answers it is sure.

    With `sets`, finds the probability from which a class belongs to a prediction set, so that the sets of new ID inputs
    hold the right class that often (split conformal, LAC).

    With `recall`, finds the probability from which labels are answered, or words offered as part of a span, so that
    answers miss no more of what is there (conformal risk control): in the mean over samples with a label or span, the
    share of their labels, or of spans whose words are not all offered as their kind. Prints the cost in precision.

    `by_class` keeps these promises for each class by itself: sets and recall by the right class or label, sure answers
    by the class that is answered.

    >>> calibrated = hydractl.calibrate("hydra", id_data="data/pets")
    >>> hydractl.load(calibrated).temperature == calibrated.temperature
    True

    Raises:
        CheckpointError: the model cannot be read.
        DataError: a sample cannot be read, labels do not match, answers are no better than guesses, the samples are too
            few for the OOD score, it does not accept the share it promises, no confidence reaches the `accuracy`, or
            they, or those of a class, are too few for a promise.
        OptionError: a zero-shot model without classes, or `accept`, `accuracy` or `sets` is not a share.
        OutputError: the output exists and `force` is not set, an interrupted run is neither gone on with nor given up,
            or the disk refuses the output.
    """

    model: Model
    id_data: Annotated[
        DataLike, Option("ID data, apart from all evaluation data.", "Data", "SOURCE[:SPLIT]", remembered=False)
    ] = field(kw_only=True)
    ood_data: Annotated[DataSetsLike | None, OOD_SETS] = None
    shift_data: Annotated[DataSetsLike | None, SHIFT_SETS] = None
    promises: Promises = Promises()
    ood_score: ScoreName | None = option(
        None, "Score that separates OOD from ID. Default: auto with `ood_data`, which chooses by them, else layers."
    )
    reading: Reading = Reading()
    skip_bad: SkipBad = False
    compute: Compute = Compute()
    workers: Workers = 0
    output: Output = None
    resume: Resume = False
    force: Force = False

    def run(self, watch: Watcher) -> Calibrated:
        promises = self.promises
        if self.resume and self.output is None:
            raise OptionError("`resume` needs an `output`: the state of a run lies beside its file")
        output = None if self.output is None else Path(self.output)
        if output is not None:
            refuse_existing(output, self.force)
        checkpoint = as_checkpoint(self.model)
        from hydractl.calibration.network_fit import calibrated, missing_to_fit
        from hydractl.data.ranks import join_ranks, local_device
        from hydractl.data.samples import form_notes
        from hydractl.families.load import write_checkpoint
        from hydractl.tasks.all_tasks import find_task

        task = find_task(checkpoint.spec.task)
        task.check_promises(promises.names, promises.by_class)
        data = self._opened(checkpoint, watch)
        samples = data.inside
        tell_oddities(data.sets.values(), watch)
        if (missing := missing_to_fit(checkpoint, samples, self.reading)) is not None:
            watch.warn(missing)
        tell(watch, form_notes(samples, data.outside.values()))
        self._check_labels(samples, watch)
        device = local_device(self.compute.torch_device)
        with join_ranks(device) as ranks, claim(output if ranks.leads else None):
            watch = watch if ranks.leads else LOG
            ood_fit = self._wanted(checkpoint, data)
            fit = partial(task.fit, interval=promises.interval_share, precision=promises.shares["accuracy"])
            fits = self._fits(checkpoint, data, ood_fit, fit=fit, ranks=ranks, watch=watch)
            fitted, ood = fits.fitted, fits.ood
            self._tell(fits, checkpoint, watch)
            options = remembered(self, **promises.shares, by_class=promises.by_class or None, template=None)
            made = calibrated(checkpoint, fits, data, options=options)
            lost = checkpoint.calibration.lost(made.calibration)
            warnings = [f"{checkpoint.name}: the promise of {lost} is gone: request it again"] * bool(lost)
            for warning in warnings:
                watch.warn(warning)
            result = Calibrated(
                made,
                fitted,
                len(samples),
                ood.fitted.fit,
                accepted=ood.accepted,
                choice=ood.choice,
                shift=ood.shift,
                recall=ood.recalled,
                output=output,
                warnings=warnings,
            )
            if output is not None and ranks.leads:
                write_checkpoint(result.checkpoint, output, self.force)
                if fits.kept is not None:
                    fits.kept.remove()
                watch.note(str(result))
        return result

    def _opened(self, checkpoint: Checkpoint, watch: Watcher) -> CalibrationData:
        from hydractl.calibration.network_fit import CalibrationData, labelled_for, unseen_sets
        from hydractl.data.open import open_samples
        from hydractl.surgery.provenance import trained_on

        modality = modality_of(checkpoint, self.reading)
        samples = open_samples(self.id_data, modality, self.reading, skip_bad=self.skip_bad, name="calibration data")
        ood, shifted = (
            open_ood_sets(sets, self.id_data, modality, self.reading, skip_bad=self.skip_bad)
            for sets in (self.ood_data, self.shift_data)
        )
        if (warning := trained_on(checkpoint, samples)) is not None:
            watch.warn(warning)
        unseen = unseen_sets(checkpoint, ood)
        if seen := [name for name in ood if name not in unseen]:
            of = f"{checkpoint.name} trained on OOD data of the kind of {', '.join(seen)}"
            watch.note(f"note: {of}, which therefore do not choose the OOD score")
        return CalibrationData(labelled_for(checkpoint, samples), unseen, shifted)

    def _wanted(self, checkpoint: Checkpoint, data: CalibrationData) -> Wanted:
        """Returns the OOD score to fit; raises OptionError for options that do not fit the model."""
        from hydractl.calibration.ood_fit import Wanted
        from hydractl.tasks.all_tasks import find_task, require_one_class

        score, task = self.ood_score or ("auto" if data.outside else DEFAULT), find_task(checkpoint.spec.task)
        if task.tells_ood != "scores" and (data.outside or score != DEFAULT):
            unfit = "a choice by `ood_data`" if data.outside else score
            require_one_class(checkpoint.spec, unfit, f"leave it out to fit {DEFAULT}")
        task.check_fit(score, self.promises.first)
        accept, promises = self.promises.accept_share, self.promises.wanted
        return Wanted(score, accept, promises, fixed=task.fixed)

    def _fits(
        self, checkpoint: Checkpoint, data: CalibrationData, ood_fit: Wanted, *, fit: Fit, ranks: Ranks, watch: Watcher
    ) -> Fits:
        from hydractl.calibration.network_fit import fit_network
        from hydractl.model.hydra import Hydra
        from hydractl.systems.networks import run_by

        total = sum(map(len, data.sets.values()))
        run = run_by(self.compute, self.reading, noting(watch), ranks=ranks, workers=self.workers)
        with run as running, watch.progress("calibrate", total) as advance:
            return fit_network(
                self.model if isinstance(self.model, Hydra) else checkpoint,
                data,
                running,
                fit=fit,
                request=ood_fit,
                keep=self._state if self.output is not None and ranks.leads else None,
                on_batch=advance,
            )

    def _check_labels(self, samples: Samples, watch: Watcher) -> None:
        """Notes that confidence stays as it is without labels; raises OptionError for an option that needs them."""
        from hydractl.calibration.network_fit import NO_CLASS

        if samples.labels is not None or samples.label_problem == NO_CLASS:
            return
        needs = self.promises.first
        if needs is not None:
            problem = samples.label_problem or "holds none"
            raise OptionError(f"{needs} needs labels, but {samples.name} {problem}: give labelled data")
        watch.note(
            f"note: {samples.name} {samples.label_problem or 'holds no labels'}: the OOD score is fitted, confidence "
            "is not calibrated"
        )

    def _tell(self, fits: Fits, checkpoint: Checkpoint, watch: Watcher) -> None:
        """Notes a fit at its bound or far from 1, how the OOD score was chosen, and what shifted data do."""
        from hydractl.metrics.scaling import far_from_one
        from hydractl.surgery.provenance import exposed_to

        fitted = fits.fitted
        if fitted is not None and fitted.at_bound:
            watch.warn(NOTHING_TO_FIT if fitted.nll_after == fitted.nll_before else AT_BOUND)
        exposed = (f"outlier exposure to {name}" for name in dict.fromkeys(exposed_to(checkpoint.provenance)))
        if fitted is not None and (far := far_from_one(fitted.temperature, exposed)) is not None:
            watch.note(f"note: {far}")
        if fits.ood.choice is not None:
            for line in fits.ood.choice.lines():
                watch.note(line)
            for line in fits.ood.choice.warnings():
                watch.warn(line)
        for name, (before, after) in fits.ood.shift.items():
            watch.note(
                f"note: {100 * before:.1f} % of {name} would be flagged, {100 * after:.1f} % are after fitting on it"
            )

    def _state(self, conditions: Mapping[str, Any]) -> StateFolder:
        """Opens the folder that keeps answers until the output is written."""
        from hydractl.checkpoint.output import StateFolder

        return StateFolder(Path(f"{self.output}.state"), conditions, self.resume, self.force)


calibrate = function(Calibrate)

AT_BOUND = "the loss still falls at the highest temperature: the model is rarely right on this data"
NOTHING_TO_FIT = "every sample is predicted correctly, so the fit has nothing to correct: give more data"
