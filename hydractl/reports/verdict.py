"""Gains and losses of a system against another beyond chance, and the lines below a report's table."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, log
from shlex import quote
from typing import Any

from hydractl.evaluation.results import UNSEEN, Difference, Resampled, Results, SystemResult
from hydractl.metrics.bootstrap import Outcome, outcome
from hydractl.metrics.scaling import far_from_one
from hydractl.ood.ood_scores import BASELINE, OOD_SCORES
from hydractl.reports.columns import JUDGED, Column, judged_sets, numbers_judged

LEAK = "†"
TOLERATED = 0.02  # the loss of accuracy or mean AUROC that samples must rule out before a system is recommended
COIN = 0.5  # the AUROC of a score that tells nothing
# Samples of a set that rule out such a loss, with 97.5 %, if they show none; fewer never do, whatever intervals say.
ENOUGH = ceil(log(0.025) / log(1 - TOLERATED))


@dataclass(frozen=True)
class Judgement:
    """One metric of a system against another: the paired difference and whether it is beyond chance."""

    key: str
    metric: str
    difference: Difference
    outcome: Outcome
    text: str  # the difference and its interval as people read them
    # the ratio of the loss that is not ruled out to TOLERATED; 0 for a metric that may be lost, or has its outcome
    risk: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {"outcome": self.outcome, "difference": self.difference.value, "interval": [*self.difference.interval]}


@dataclass(frozen=True)
class Verdict:
    """The gains and losses of a system against another, and its cost."""

    system: str
    other: str
    judgements: tuple[Judgement, ...]
    # multiply_adds, parameters: as multiples of the other's; None where a report does not know them
    multiply_adds: float | None
    parameters: float | None
    samples: float | None = None  # labelled samples it was measured on; None where unknown
    smallest: tuple[str, float] | None = None  # the smallest set that must rule out a loss, and its samples
    uncounted: tuple[Judgement, ...] = ()  # on OOD sets of the kind that training saw
    sets: Mapping[str, tuple[Judgement, ...]] = field(default_factory=dict)  # detection of each OOD set
    below_coin: tuple[str, ...] = ()  # OOD sets that the system ranks worse than a coin, with the AUROC

    def of(self, outcome: Outcome) -> list[Judgement]:
        """Returns the metrics with this outcome."""
        return [judgement for judgement in self.judgements if judgement.outcome == outcome]

    @property
    def losses(self) -> list[Judgement]:
        """The metrics that are worse beyond chance, also on a single OOD set."""
        return [
            *self.of("worse"),
            *(judgement for each in self.sets.values() for judgement in each if judgement.outcome == "worse"),
        ]

    @property
    def gains(self) -> bool:
        """True if any metric is better beyond chance."""
        return bool(self.of("better"))

    def sentence(self) -> str:
        """Returns the verdict in one sentence."""
        parts = []
        for way, judgements in (("better", self.of("better")), ("worse", self.losses)):
            if judgements:
                parts.append(
                    f"{way} in {_listed([f'{judgement.metric} ({judgement.text})' for judgement in judgements])}"
                )
        if parts and not self.gains:
            parts.insert(0, "nothing is better beyond chance")
        if even := self.of("within chance"):
            parts.append(f"{_listed([judgement.metric for judgement in even])} within chance")
        if self.below_coin:
            parts.append(f"worse than a coin on {_listed(self.below_coin)}")
        if self.uncounted:
            listed = _listed([f"{judgement.metric} ({judgement.text})" for judgement in self.uncounted])
            parts.append(f"not counted, on OOD sets of the kind that training saw: {listed}")
        return f"{self.system} against {self.other}: {'; '.join(parts)}{self._cost()}."

    def deployment(self, ending: str = "") -> tuple[str, str]:
        """Returns the system to deploy, and the reason in one sentence.

        Args:
            ending: of the files, which have the names of systems.
        """
        model, network = (f"{name}{ending}" for name in (self.system, self.other))
        ways = (self.of("better"), self.losses)
        better, worse = (_listed([judgement.metric for judgement in judgements] or [""]) for judgements in ways)
        if not better:
            return self.other, f"Deploy {network}: {model} is better in nothing beyond chance."
        if doubt := self._doubt():
            return self.other, f"Deploy {network}: {model} seems better in {better}, but {doubt}."
        times = "" if self.multiply_adds is None else f" at {self.multiply_adds:.2f} times the multiply-adds"
        if not worse:
            return self.system, f"Deploy {model}: it is better in {better}{times}."
        verb = "matter" if len(self.of("better")) > 1 else "matters"
        return self.system, f"Deploy {model} if {better} {verb} more than {worse}{times}; otherwise {network}."

    def alternative(self, lost: Sequence[str], first: str, ending: str) -> str:
        """Returns a sentence that deploys the other system, or this one for metrics that only the other loses.

        Args:
            lost: these metrics, in which the other system is worse than the first.
        """
        model, rival, network = (f"{name}{ending}" for name in (self.system, self.other, first))
        cost = "" if self.multiply_adds is None else f", at {self.multiply_adds:.2f} times the multiply-adds"
        verb = "matter" if len(lost) > 1 else "matters"
        return f"Deploy {rival}; if {_listed(lost)} {verb}, {model}{cost}: {rival} is worse there than {network}."

    def to_json(self) -> dict[str, Any]:
        """Returns its part of a report."""
        return {
            "against": self.other,
            **_by_key(self.judgements),
            **({"sets": sets} if (sets := {name: _by_key(each) for name, each in self.sets.items()}) else {}),
            "cost_ratio": {"multiply_adds": self.multiply_adds, "parameters": self.parameters},
            "sentence": self.sentence(),
        }

    def _doubt(self) -> str:
        """Returns why the samples are too few to recommend the system; empty if they suffice."""
        if self.smallest is not None and self.smallest[1] < ENOUGH:
            of, samples = self.smallest
            return f"{samples:.0f} samples{of} are too few for a recommendation: evaluate on {ENOUGH} or more"
        riskiest = max(self.judgements, key=lambda judgement: judgement.risk)
        if riskiest.risk <= 1:
            return ""
        lost = f"these samples do not rule out that it loses {100 * TOLERATED * riskiest.risk:.1f} points of "
        # An interval shrinks with the root of the samples.
        enough = "more" if self.samples is None else f"{_rounded(self.samples * riskiest.risk**2)} or more"
        return f"{lost}{riskiest.metric}: evaluate on {enough}"

    def _cost(self) -> str:
        costs = {"the multiply-adds": self.multiply_adds, "the parameters": self.parameters}
        ratios = [f"{ratio:.2f} times {name}" for name, ratio in costs.items() if ratio is not None]
        return f"; at {_listed(ratios)}" if ratios else ""


def _by_key(judgements: Sequence[Judgement]) -> dict[str, Any]:
    return {judgement.key: judgement.to_json() for judgement in judgements}


def verdicts(models: Mapping[str, SystemResult]) -> dict[str, Verdict]:
    """Returns the verdicts by system, on those with paired differences to the first system.

    Args:
        models: of a report, with the `difference` that resampling gives.
    """
    first = next(iter(models), "")
    every = {name: _verdict(models, name, first, entry.difference) for name, entry in models.items() if name != first}
    return {name: verdict for name, verdict in every.items() if verdict.judgements}


def rivalries(models: Mapping[str, SystemResult]) -> list[Verdict]:
    """Returns the verdicts on one system against each that is not the first, if the evaluation was to `compare` it."""
    return [
        _verdict(models, name, rival, difference)
        for name, entry in models.items()
        for rival, difference in (entry.rivals or {}).items()
    ]


def recommended(models: Mapping[str, SystemResult], ending: str = "") -> tuple[str, str]:
    """Returns the system to deploy, and the reason in one sentence.

    It is the system that was compared with all others, else the largest, unless another costs no more and is as good.

    Args:
        models: at least one with paired differences to the first.
        ending: of the files, which have the names of systems.
    """
    by_first = verdicts(models)
    rivals = [rival for rival in rivalries(models) if rival.system in by_first]
    system = rivals[0].system if rivals else max(by_first, key=lambda name: models[name].members)
    against = by_first[system]
    affordable = [against, *(rival for rival in rivals if (rival.multiply_adds or 1) >= 1)]
    unbeaten = [rival for rival in affordable if not rival.gains]
    closest = min(unbeaten or affordable, key=lambda rival: len(rival.of("better")) - len(rival.of("worse")))
    if not against.gains:  # then the choice is between the first and what beats it
        ahead = [by_first[rival.other] for rival in unbeaten[1:] if by_first[rival.other].gains]
        closest = next(iter(ahead), against)
    deployed, why = closest.deployment(ending)
    if against.gains and not closest.gains and deployed == closest.other and deployed in by_first:
        kept = {judgement.metric for judgement in against.losses}
        lost = [judgement.metric for judgement in by_first[deployed].losses if judgement.metric not in kept]
        why = closest.alternative(lost, against.other, ending) if lost else why
    return deployed, why


def next_command(networks: Sequence[str]) -> str:
    """Returns the command that uses a system of one network; empty if it has several or none."""
    return f"hydractl predict {quote(networks[0])} INPUT" if len(networks) == 1 else ""


def _verdict(models: Mapping[str, SystemResult], name: str, other: str, gap: Resampled[Difference] | None) -> Verdict:
    compared = replace(models[name], difference=gap)
    seen = any(entry.exposed for entry in models.values())
    deciding = {key: _unseen(column) if seen else column for key, column in JUDGED.items()}
    judgements = _judgements(deciding, compared)
    multiply_adds, parameters = (_ratio(compared, models[other], key) for key in ("multiply_adds", "parameters"))
    return Verdict(
        name,
        other,
        judgements,
        multiply_adds=multiply_adds,
        parameters=parameters,
        samples=models[name].id.samples,
        smallest=_smallest(compared, judgements, {of for entry in models.values() for of in entry.exposed or ()}),
        uncounted=_judgements({key: JUDGED[key] for key in JUDGED if deciding[key] != JUDGED[key]}, compared),
        sets=_on_sets(compared, models[other]),
        below_coin=tuple(below_coin(compared)),
    )


def _smallest(
    entry: SystemResult, judgements: Sequence[Judgement], exposed: Collection[str]
) -> tuple[str, float] | None:
    """Returns the smallest set that must rule out a loss as ` of NAME`, and its samples; None where unknown.

    Args:
        exposed: the OOD sets that do not count.
    """
    sizes = {"": entry.id.samples}
    if any(judgement.key == "mean_auroc" and judgement.outcome == "within chance" for judgement in judgements):
        sizes |= {f" of {name}": numbers.samples for name, numbers in entry.ood.items() if name not in exposed}
    counts = [(of, samples) for of, samples in sizes.items() if samples is not None]
    return min(counts, key=lambda count: count[1], default=None)


def _on_sets(compared: SystemResult, other: SystemResult) -> dict[str, tuple[Judgement, ...]]:
    """Returns the judgements on each OOD set, whose texts say both numbers."""
    judged = {}
    for name, columns in judged_sets(compared).items():
        ends = {
            key: [column.show(column.value(entry) or 0) for entry in (other, compared)]
            for key, column in columns.items()
        }
        judged[name] = tuple(
            replace(judgement, text=f"{' to '.join(ends[judgement.key])}, {judgement.text}")
            for judgement in _judgements(columns, compared)
        )
    return judged


def below_coin(entry: SystemResult) -> Iterator[str]:
    """Yields the OOD sets whose AUROC is below that of a coin, beyond chance where that is known, with the AUROC."""
    for name, numbers in entry.ood.items():
        ends = (entry.intervals.ood or {}).get(name, {}).get("auroc") if entry.intervals else None
        if ends is None and min(samples or ENOUGH for samples in (numbers.samples, entry.id.samples)) < ENOUGH:
            continue
        low, high = ends or (numbers.auroc, numbers.auroc)
        if outcome(numbers.auroc - COIN, (low - COIN, high - COIN), True, numbers_judged(entry)) == "worse":
            yield f"{name} (AUROC {100 * numbers.auroc:.2f} %)"


def _unseen(column: Column) -> Column:
    """Returns the metric over OOD sets of which training saw none of the kind; unchanged if it is not one of OOD."""
    if column.path[0] != "ood_means":
        return column
    return replace(column, name=f"{column.name} of {UNSEEN} sets", path=("ood_means", UNSEEN, column.path[-1]))


def own_score(file: str, entry: SystemResult) -> Iterator[str]:
    """Yields what the OOD score that a file brings gains over the MSP if it detects better, and the sets it loses."""
    mean = entry.ood_means.get("all")
    if entry.typicality and mean and mean.msp_auroc is not None and mean.auroc > mean.msp_auroc:
        by_own, by_msp = 100 * mean.auroc, 100 * mean.msp_auroc
        gain = f"mean AUROC {by_own:.1f} by its own score ({entry.score}), {by_msp:.1f} by the {BASELINE}"
        yield f"{file}: {gain}, at no extra cost."
    yield from own_losses(file, entry)


def own_losses(name: str, entry: SystemResult) -> Iterator[str]:
    """Yields, in a sentence, the OOD sets that a system's own score tells worse than the MSP beyond chance."""
    by_set = entry.own_less_msp or {}
    losses = []
    for of, differences in by_set.items():
        for key, title, better in (("auroc", "AUROC", True), ("fpr95", "FPR95", False)):
            difference = differences[key]
            if outcome(difference.value, difference.interval, better, 2 * len(by_set)) == "worse":
                now, before = (100 * getattr(entry.ood[of], part) for part in (key, f"msp_{key}"))
                losses.append(f"{title} of {of} ({before:.2f} to {now:.2f})")
    if losses:
        yield f"{name} detects worse by its own score ({entry.score}) than by the {BASELINE}: {_listed(losses)}."


def marked(name: str, entry: SystemResult) -> str:
    """Returns the name of a system in a table, with a mark where it was evaluated on samples that made it."""
    return f"{name} {LEAK}" if entry.leaks else name


def caption(report: Results, full: bool = False) -> Iterator[str]:
    """Yields the lines under a table: what its marks mean, what tells OOD from ID, and how it was averaged.

    Args:
        full: whether the table shows every metric.
    """
    models = report.models
    yield from _compared(models)
    score = report.options.get("ood_score", BASELINE)
    if any(system.ood for system in models.values()):
        yield from _scored(models, score)
        yield "FPR95: false alarms on ID inputs when 95 % of the OOD inputs are caught. Means weigh all sets equally."
        if confident := [name for name, entry in models.items() if entry.score and entry.typicality is None]:
            yield f"Scored by a confidence of their own: {', '.join(confident)}."
        if full:
            yield "AUPR: average precision, OOD positive (out) or ID (in); chance is the share of those samples."
    if fitted := "; ".join(_fitted(models)):
        yield f"Temperature fitted: {fitted}."
    yield from _far_from_one(models)
    for name, system in models.items():
        if (sure := system.sure) is not None:
            right = "" if sure.right is None else f", {100 * sure.right:.1f} % of them right"
            of = "ID" if system.id.span_f1 is None else "the spans that it finds in ID"
            sure_of = f"{100 * sure.share:.1f} % of {of}{right}"
            yield f"{name} is sure of {sure_of}; {100 * sure.accuracy:.1f} % are promised."
        if (recall := system.recall) is not None:
            kept, precision = (
                f"{100 * value:.1f} %" + ("" if ends is None else f" (95 % {100 * ends[0]:.1f} to {100 * ends[1]:.1f})")
                for value, ends in ((recall.kept, recall.kept_interval), (recall.precision, recall.precision_interval))
            )
            promised, without = (f"{100 * share:.1f} %" for share in (recall.promised, recall.before))
            yield f"Answers of {name} hold {kept} of what is there; {promised} are promised."
            yield f"That makes the precision {precision}; without the promise it is {without}."
        if system.exposed:
            yield f"Training of {name} saw OOD data of the kind of {_listed(system.exposed)}: gains there do not count."
        for leak in system.leaks or ():
            counted = f"{leak.overlap} of {leak.samples} samples of {leak.name} ({leak.set})"
            yield f"{LEAK} {counted} were used to make or fit {name} (as {', '.join(leak.used_as)}): flattered."
    if not report.complete:
        yield "Interrupted: systems are missing."


def _compared(models: Mapping[str, SystemResult]) -> Iterator[str]:
    """Yields what marks mean, and the OOD sets on which a system's score does harm."""
    if differing := [entry for entry in models.values() if entry.difference]:
        corrected = f"paired 95 % interval, corrected for {max(map(numbers_judged, differing))} numbers"
        yield f"▲ better, ▼ worse than {next(iter(models))} beyond chance ({corrected}; ▲: with 80 % power too)."
    for name, system in models.items():
        yield from own_losses(name, system)
        if not system.difference and (sets := list(below_coin(system))):
            yield f"{name} is worse than a coin on {_listed(sets)}."


def _scored(models: Mapping[str, SystemResult], score: str) -> Iterator[str]:
    """Yields what tells OOD from ID in each system.

    Args:
        score: of the systems that bring none.
    """
    brought = {
        name: (system.score or score, system.typicality)
        for name, system in models.items()
        if system.typicality is not None
    }
    if not brought:
        yield f"OOD is positive. Score: {score}, {_meaning(score)}."
        return
    parts = [f"{name} by {score_name}" for name, (score_name, _) in brought.items()]
    parts += [f"{name} by {score}" for name, entry in models.items() if entry.score is None]
    beside = any(ood_result.msp_auroc is not None for entry in models.values() for ood_result in entry.ood.values())
    also = f" Columns MSP: every system by the {BASELINE}." * beside
    yield f"OOD is positive. Each file's own score: {_listed(parts)}.{also}"
    yield from (f"{key}: {_meaning(key)}." for key in dict.fromkeys(key for key, _ in brought.values()))
    for name, (_, typicality) in brought.items():
        accepted, promised = (f"{100 * share:.1f} %" for share in (typicality.coverage, typicality.accept))
        yield f"Typicality of {name} accepts {accepted} of ID; {promised} are promised."


def _meaning(score: str) -> str:
    for row in OOD_SCORES:
        if row.name == score:
            return f"{row.help}; fitted on calibration data" if row.fit is not None else row.help
    return "as given"


def _fitted(models: Mapping[str, SystemResult]) -> Iterator[str]:
    for name, system in models.items():
        fit = system.temperature
        if fit is not None and fit.argmax_changed is not None:
            changed = f"{100 * fit.argmax_changed:.2f} % of predictions changed"
            yield f"{name} {fit.value:.3f}, NLL {fit.nll_before:.3f} to {fit.nll_after:.3f}, {changed}"


def _far_from_one(models: Mapping[str, SystemResult]) -> Iterator[str]:
    for name, system in models.items():
        exposed = (f"outlier exposure to data of the kind of {data}" for data in system.exposed or ())
        if system.temperature is not None and (far := far_from_one(system.temperature.value, exposed)) is not None:
            yield f"{name}: {far}."


def _judgements(columns: Mapping[str, Column], entry: SystemResult) -> tuple[Judgement, ...]:
    """Returns the outcomes of the metrics that have a difference."""
    return tuple(
        _judgement(key, column, difference, result)
        for key, column in columns.items()
        if (difference := column.paired(entry)) and (result := column.outcome(entry))
    )


def _judgement(key: str, column: Column, difference: Difference, result: Outcome) -> Judgement:
    value, low, high = map(column.signed, (difference.value, *difference.interval))
    text = f"{value}{' points' if column.kind == 'percent' else ''}, 95 % {low} to {high}"
    risky = key in ("accuracy", "mean_auroc") and result == "within chance"  # both are better if higher
    return Judgement(
        key, column.name, difference, result, text=text, risk=-difference.interval[0] / TOLERATED if risky else 0.0
    )


def _rounded(samples: float) -> int:
    """Returns a number of samples, rounded up to hundreds."""
    return 100 * ceil(samples / 100)


def _ratio(entry: SystemResult, first: SystemResult, key: str) -> float | None:
    ours, theirs = (0 if system.cost is None else getattr(system.cost, key) for system in (entry, first))
    return ours / theirs if ours and theirs else None


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
