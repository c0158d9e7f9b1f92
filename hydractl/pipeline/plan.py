"""The commands of a build, in order, each with its part of the data; also where members lose units above a trunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from hydractl.checkpoint.arithmetic import plain_multiply_adds
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, Unit, member_heads, without
from hydractl.checkpoint.layout import side_by_side
from hydractl.circuit.modes import MODES
from hydractl.circuit.score_methods import Taylor
from hydractl.data.reading import Part, Reading, parse_data_spec
from hydractl.errors import OptionError
from hydractl.evaluation.settings import Procedure, Sets
from hydractl.inputs.members import Limits
from hydractl.inputs.refitting import ENOUGH, RefitOptions
from hydractl.inputs.result import Outputs
from hydractl.options import Rows, declared, flat
from hydractl.pipeline.build_options import NO_CIRCUITS, BuildOptions
from hydractl.pipeline.stages import Given, Made, Stage
from hydractl.steps.calibrate import Calibrate
from hydractl.steps.evaluate import Evaluate
from hydractl.steps.extract_circuit import ExtractCircuit
from hydractl.steps.finetune import Finetune
from hydractl.steps.fuse import Fuse
from hydractl.steps.prune import Prune
from hydractl.steps.score_heads import ScoreHeads
from hydractl.steps.select import Candidates, Select
from hydractl.surgery.prune_methods import AtRandom, ByScores, Spread, UnitCut
from hydractl.training.request import Execution, Hyperparameters, Seeds, TrainingSources

MOST = 2.0  # from this multiple of the network's multiply-adds on, members need not lose units
SAMPLES = 1000  # that units are scored on
#: Options of a build that choose among candidates, of which this plan has none.
CHOOSING = ("objective", "budgets", "draws", "random", "trunks", "max_accuracy_drop", "search", "search_samples")
HYDRA, NETWORK, TRAINED, TEACHER, SOUP = (
    Made(f"{name}.safetensors") for name in ("hydra", "network", "trained", "teacher", "soup")
)
SELECTED, FUSED = Made("work/selected.safetensors"), Made("work/fused.safetensors")
CIRCUITS = {objective: Made(f"work/circuit-{objective}.json") for objective in ("acc", "ood", "avg")}
REPORT = Made("report")


@dataclass(frozen=True)
class Thinning:
    """Heads and units that each member loses above a trunk."""

    trunk: int  # the layers below, which stay whole
    heads: int  # that it loses; members draw them
    units: int  # that it loses; members share the best half of the others and divide the rest


def thinning(build: BuildOptions, network: Checkpoint, limits: Limits) -> Thinning | None:
    """Returns what members lose to keep to a limit of multiply-adds; None if they lose no units.

    Raises:
        OptionError: `units` is wanted and cannot be had.
    """
    most = limits.budget_macs
    options = flat(build)
    choosing = [
        option.name
        for option in declared(type(build))
        if option.name in CHOOSING and options[option.name] != option.default
    ]
    fits = (
        build.data.train_data is not None
        and most is not None
        and limits.budget_params is None
        and build.choice.members > 1
    )
    if build.units is None and (not fits or choosing or (most or MOST) >= MOST):
        return None
    if build.units == "no":
        return None
    if not fits:
        raise OptionError("`units` yes: give `train_data`, `budget_macs` and several `members`, and no `budget_params`")
    if choosing:
        raise OptionError(f"`{choosing[0]}` has no effect with `units` yes, which tries no candidates: leave it out")
    thinned = sized(network, build.choice.members, most or MOST)
    if thinned is None and build.units is not None:
        raise OptionError(f"`units` yes: no members of this network fit {most:g}x: give more, or leave `units` out")
    return thinned


def sized(network: Checkpoint, members: int, most: float) -> Thinning | None:
    """Returns a trunk of half the layers, a third of the heads above it, and as few units as a limit requires.

    Returns None if members would lose all units, or if the network has two towers.

    Args:
        most: multiply-adds of the Hydra, as a multiple of the network's.
    """
    spec, tower = network.spec, network.spec.towers[0]
    trunk = tower.layers // 2
    layers, dropped = range(trunk, tower.layers), tower.heads // 3
    if len(spec.towers) > 1 or members > tower.mlp_width - 2:
        return None
    gone = {Head(tower.name, layer, head) for layer in layers for head in range(dropped)}
    thin = replace(network.layout, heads=without(network.heads, gone))
    table = network.slots()
    apart = {name for name in table if dropped and table[name].is_attention and (table[name].layer or 0) >= trunk}

    def cost(lost: int) -> int:
        """Returns the multiply-adds of members each of which lacks so many units in each layer above the trunk."""
        lost_units = [[Unit(tower.name, i, m + n) for i in layers for n in range(lost)] for m in range(members)]
        kept = [thin.without_units(spec, units) for units in lost_units]
        return plain_multiply_adds(spec, side_by_side(spec, kept, frozenset(table) - apart))

    allowed, slope = most * plain_multiply_adds(spec, network.layout), cost(1) - cost(2)
    units = max(ceil((1 + (cost(1) - allowed) / slope) * len(layers)), len(layers))
    fewest = len(layers) * (tower.mlp_width - 1)
    return Thinning(trunk, len(gone), units) if units <= fewest else None


def thinned_members(
    build: BuildOptions, thin: Thinning, id_data: Given, reading: Reading, *, network: Given, fused: Made
) -> list[Stage]:
    """Returns the commands that make members without some heads and units, and fuse them.

    Args:
        id_data: labelled, to score units on.
    """
    scores, numbers = Made("work/units.json"), range(build.choice.members)
    thinned, members = ([Made(f"work/{name}{m}.safetensors") for m in numbers] for name in ("units", "member"))
    limit, compute = min(reading.limit or SAMPLES, SAMPLES), replace(build.compute, dtype=None)
    score = ScoreHeads(
        model=network,
        method=Taylor(id_data, units=True),
        reading=replace(reading, limit=limit),
        compute=compute,
        output=scores,
    )
    units = Prune(
        network,
        method=ByScores(scores, Spread("layer", trunk=thin.trunk)),
        unit_cut=UnitCut(str(thin.units), members=build.choice.members),
        output=Made("work/units{member}.safetensors"),
    )
    spread = Spread("layer", trunk=thin.trunk)
    heads = [
        Prune(thinned[m], str(thin.heads), AtRandom(spread), seed=build.seed + m, output=members[m]) for m in numbers
    ]
    return [
        Stage(score, (scores,)),
        Stage(units, tuple(thinned)),
        *(Stage(prune, (member,)) for prune, member in zip(heads, members, strict=True)),
        Stage(Fuse(members, output=fused), (fused,)),
    ]


def plan(
    build: BuildOptions,
    limits: Limits,
    trunks: str,
    thin: Thinning | None = None,
    *,
    cuts: Sequence[tuple[int, int]] = (),
    chooses_score: bool = True,
    taught: bool = False,
    mixed: bool = False,
) -> list[Stage]:
    """Returns the commands of a build.

    The data are divided by the content of their samples: part 1 to search circuits, 2 to select members, 3 to
    calibrate, 4 to evaluate.

    Args:
        trunks: the trunk depths to try.
        thin: what members lose if they lose MLP units; nothing is searched or selected then.
        cuts: trunks, and heads that members lose above them, of members that are refitted where none trains.
        chooses_score: whether OOD data choose the OOD score.
        taught: whether the teachers are evaluated too, as one network.
        mixed: whether the mean of the teachers' weights is evaluated too.

    Raises:
        OptionError: the recipe does not exist.
    """
    if thin is not None:
        stages = thinned_members(
            build, thin, _id_data(build, 1), _reading(build), network=_network(build), fused=SELECTED
        )
    else:
        refitted = [] if build.data.train_data is not None else _refits(build, cuts)
        stages = [_search(build)] if _searches(build) else []
        stages += refitted
        stages.append(_selection(build, limits, trunks, [Made(name) for stage in refitted for name in stage.makes]))
    last = SELECTED
    if build.data.train_data is not None:
        # Members train together where they must keep sharing what a trunk or a budget makes them share.
        stages += _training(build, build.choice.members > 1 and (trunks != "0" or limits != Limits()))
        last = FUSED
    systems: dict[str, tuple[Made | Given, Made]] = {"network": (_network(build), NETWORK), "hydra": (last, HYDRA)}
    if thin is not None:
        stages.append(_as_long(build, stages[-1]))
        systems["trained"] = Made(stages[-1].makes[0]), TRAINED
    if taught:
        teachers = _teachers(build)
        if len(teachers) > 1:
            together = Made("work/teacher.safetensors")
            stages.append(Stage(Fuse(teachers, separate="all", output=together), (together,)))
        systems["teacher"] = together if len(teachers) > 1 else teachers[0], TEACHER
        if mixed:
            mean = Made("work/soup.safetensors")
            stages.append(Stage(Fuse(teachers, soup=True, output=mean), (mean,)))
            systems["soup"] = mean, SOUP
    ood_data = _ood_data(build, 2) if chooses_score else []
    calibrations = [_calibration(build, *pair, ood_data) for pair in systems.values()]
    return [*stages, *calibrations, _evaluation(build, {name: made for name, (_, made) in systems.items()})]


def _searches(build: BuildOptions) -> bool:
    return bool(build.data.ood_data) and build.search != NO_CIRCUITS


def _reading(build: BuildOptions) -> Reading:
    classes = build.reading.classes
    return build.reading if classes is None else replace(build.reading, classes=Given("CLASSES", str(classes)))


def _network(build: BuildOptions) -> Given:
    return Given("MODEL", build.model)


def _id_data(build: BuildOptions, part: int) -> Given:
    count = 3 if build.data.eval_data else 4
    if part > count:
        return Given("EVAL_DATA", parse_data_spec(build.data.eval_data or ""))
    return Given("ID_DATA", parse_data_spec(build.data.id_data), Part(part, part, count, build.seed))


def _ood_data(build: BuildOptions, part: int) -> list[Given]:
    """Returns a part of every OOD set: members and OOD scores are chosen by part 2, so 3 is the part to evaluate on."""
    count = 2 if build.data.eval_ood_data else 3
    for_evaluation = part > count
    name, texts = ("EVAL_OOD", build.data.eval_ood_data) if for_evaluation else ("OOD", build.data.ood_data)
    part_of_set = None if for_evaluation else Part(part, part, count, build.seed)
    return [Given(f"{name}_{i}", parse_data_spec(text, grouped=True), part_of_set) for i, text in enumerate(texts, 1)]


def _search(build: BuildOptions) -> Stage:
    most, limit = build.search_samples, build.reading.limit
    step = ExtractCircuit(
        _network(build),
        _id_data(build, 1),
        _ood_data(build, 1),
        budget="50%",
        objective=",".join(CIRCUITS),
        search=Rows(MODES).named(build.search or "exact")(),
        reading=replace(_reading(build), limit=min((size for size in (most, limit) if size), default=None)),
        compute=build.compute,
        output=Made("work/circuit-{objective}.json"),
        resume=True,
    )
    return Stage(step, tuple(CIRCUITS.values()))


def refit_cuts(network: Checkpoint) -> list[tuple[int, int]]:
    """Returns trunks of members that are refitted, and the heads that each loses above: a sixth, or a third of them.

    The trunks have no layer, and half and two thirds of them.
    """
    depth, heads = max(tower.layers for tower in network.spec.towers), member_heads(network.heads, 0)
    trunks = sorted({0, depth // 2, 2 * depth // 3})
    above = {trunk: sum(head.layer >= trunk for head in heads) for trunk in trunks}
    return sorted({(trunk, max(count // part, 1)) for trunk, count in above.items() for part in (6, 3)})


def _refits(build: BuildOptions, cuts: Sequence[tuple[int, int]]) -> list[Stage]:
    """Returns the commands that draw members above trunks and refit them, on the part of the data for circuits."""
    reading = replace(_reading(build), limit=min(build.reading.limit or ENOUGH, ENOUGH))
    stages = []
    for trunk, heads in cuts:
        name = f"work/refit-trunk{trunk}-{heads}-{{member}}.safetensors"
        step = Prune(
            _network(build),
            str(heads),
            AtRandom(Spread(trunk=trunk or None)),
            unit_cut=UnitCut(members=build.choice.members if build.choice.members > 1 else None),
            refitting=RefitOptions(_id_data(build, 1)),
            seed=build.seed,
            reading=reading,
            compute=replace(build.compute, dtype=None),
            output=Made(name),
        )
        stages.append(Stage(step, tuple(Made(name.format(member=m)) for m in range(build.choice.members))))
    return stages


def _selection(build: BuildOptions, limits: Limits, trunks: str, members: Sequence[Made] = ()) -> Stage:
    draws = build.choice.draws
    sources = Candidates(list(members), random=build.choice.random or 0)
    if _searches(build):
        sources = replace(sources, circuit=list(CIRCUITS.values()))
    if _searches(build) and draws:
        sources = replace(sources, pools="25%,50%", draws=draws)
    step = Select(
        model=_network(build),
        candidates=sources,
        budgets=build.choice.budgets,
        objective=build.choice.objective,
        members=str(build.choice.members),
        max_accuracy_drop=build.choice.max_accuracy_drop,
        limits=limits,
        trunks="" if trunks == "0" else trunks,
        seed=build.seed,
        id_data=_id_data(build, 2),
        ood_data=_ood_data(build, 2) or None,
        reading=_reading(build),
        compute=build.compute,
        output=Made("work/selection.json"),
        hydra=SELECTED,
        resume=True,
    )
    return Stage(step, ("work/selection.json", SELECTED))


def _training(build: BuildOptions, together: bool) -> list[Stage]:
    """Returns the commands that train members: each with its own seed and then fused, or all together."""
    apart, recipe = build.choice.members > 1 and not together, build.learning.recipe
    name = "work/selected-member{member}.safetensors"
    trained = [Made(name.format(member=n)) for n in range(build.choice.members)] if apart else [FUSED]
    step = Finetune(
        [SELECTED],
        train_data=Given("TRAIN_DATA", parse_data_spec(build.data.train_data or "")),
        hyperparameters=Hyperparameters(
            Given("RECIPE", recipe) if recipe and recipe.endswith(".toml") else recipe, list(build.learning.settings)
        ),
        apart=apart,
        joint=together,
        seeds=Seeds(build.seed),
        sources=TrainingSources(outlier_data=_outliers(build), teacher=_teachers(build)),
        reading=replace(_reading(build), limit=build.train_samples or build.reading.limit, classes=None),
        execution=Execution(build.compute.device, build.precision, output=Made(name) if apart else FUSED, resume=True),
    )
    stages = [Stage(step, tuple(trained))]
    return [*stages, Stage(Fuse(trained, output=FUSED), (FUSED,))] if apart else stages


def _teachers(build: BuildOptions) -> list[Given]:
    return [Given(f"TEACHER_{number}", text) for number, text in enumerate(build.learning.teacher, 1)]


def _as_long(build: BuildOptions, joint: Stage) -> Stage:
    """Returns the command that trains the network alone as members train together."""
    assert isinstance(joint.step, Finetune)
    output = Made("work/trained.safetensors")
    execution = replace(joint.step.execution, output=output)
    return Stage(replace(joint.step, models=[_network(build)], joint=False, execution=execution), (output,))


def _outliers(build: BuildOptions) -> Sequence[Given]:
    """Returns the OOD samples of search and selection if the recipe gives them a weight.

    Members never train on the last of several sets that they are measured on too: it decides the verdict.
    """
    recipe = Hyperparameters(build.learning.recipe, build.learning.settings).changed_recipe()
    kept = len(build.data.ood_data) > 1 and not build.data.eval_ood_data
    parts = [_ood_data(build, 1), _ood_data(build, 2)] if recipe.outlier_weight else []
    return [source for part in parts for source in (part[:-1] if kept else part)]


def _calibration(build: BuildOptions, model: Made | Given, output: Made, ood_data: Sequence[Given]) -> Stage:
    step = Calibrate(
        model,
        id_data=_id_data(build, 3),
        ood_data=ood_data or None,
        reading=_reading(build),
        compute=build.compute,
        output=output,
        resume=True,
    )
    return Stage(step, (output,))


def _evaluation(build: BuildOptions, systems: dict[str, Made]) -> Stage:
    step = Evaluate(
        systems,
        sets=Sets(id_data=_id_data(build, 4), ood_data=_ood_data(build, 3)),
        procedure=Procedure(bootstrap=1000, compare="hydra" if len(systems) > 2 else None),
        reading=_reading(build),
        compute=build.compute,
        outputs=Outputs(report=REPORT),
    )
    return Stage(step, (REPORT,))
