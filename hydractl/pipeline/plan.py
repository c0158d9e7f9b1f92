"""The commands of a build, in order, each with its part of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from hydractl.circuit.score_methods import Deviation, Taylor
from hydractl.data.reading import Part, Reading, parse_data_spec
from hydractl.evaluation.settings import Procedure, Sets, Settings
from hydractl.inputs.members import Limits
from hydractl.inputs.refitting import RefitOptions
from hydractl.inputs.result import Outputs
from hydractl.ood.ood_scores import BASELINE
from hydractl.pipeline.build_options import SCORED, BuildOptions
from hydractl.pipeline.stages import Given, Made, Stage
from hydractl.pipeline.thinning import Family
from hydractl.steps.calibrate import Calibrate
from hydractl.steps.evaluate import Evaluate
from hydractl.steps.finetune import Finetune
from hydractl.steps.fuse import Fuse
from hydractl.steps.prune import Prune
from hydractl.steps.score_heads import ScoreHeads
from hydractl.steps.select import Candidates, Select
from hydractl.surgery.prune_methods import AtRandom, ByScores, Spread, UnitCut
from hydractl.training.request import Execution, Hyperparameters, Seeds, TrainingSources

HYDRA, NETWORK, TRAINED, TEACHER, SOUP = (
    Made(f"{name}.safetensors") for name in ("hydra", "network", "trained", "teacher", "soup")
)
SELECTED, FUSED, ALONE = (Made(f"work/{name}.safetensors") for name in ("selected", "fused", "trained"))
REPORT, FRONT, SCORES = Made("report"), Made("front"), Made("work/units.json")


def thinned_members(
    build: BuildOptions, thin: Family, id_data: Given, reading: Reading, *, network: Given, fused: Made
) -> list[Stage]:
    """Returns the commands that make members without some heads and units, and fuse them.

    Args:
        id_data: labelled, to score units on.
    """
    numbers = range(build.choice.members)
    thinned, members = ([Made(f"work/{name}{m}.safetensors") for m in numbers] for name in ("units", "member"))
    units = Prune(
        network,
        method=ByScores(SCORES, Spread("layer", trunk=thin.trunk)),
        unit_cut=UnitCut(str(thin.units), members=build.choice.members),
        output=Made("work/units{member}.safetensors"),
    )
    spread = Spread("layer", trunk=thin.trunk)
    heads = [
        Prune(thinned[m], str(thin.heads), AtRandom(spread), seed=build.seed + m, output=members[m]) for m in numbers
    ]
    return [
        _unit_scores(build, Taylor(id_data, units=True), reading, network),
        Stage(units, tuple(thinned)),
        *(Stage(prune, (member,)) for prune, member in zip(heads, members, strict=True)),
        Stage(Fuse(members, output=fused), (fused,)),
    ]


def _unit_scores(build: BuildOptions, method: Taylor | Deviation, reading: Reading, network: Given) -> Stage:
    reading = replace(reading, limit=min(reading.limit or SCORED, SCORED))
    compute = replace(build.compute, dtype=None)
    return Stage(ScoreHeads(model=network, method=method, reading=reading, compute=compute, output=SCORES), (SCORES,))


def plan(
    build: BuildOptions,
    limits: Limits,
    trunks: str,
    thin: Family | None = None,
    *,
    tried: Mapping[str, Sequence[Family]] = MappingProxyType({}),
    chooses_score: bool = True,
    taught: bool = False,
    mixed: bool = False,
) -> list[Stage]:
    """Returns the commands of a build.

    The data are divided by the content of their samples: part 1 to score units and refit, 2 to select members, 3 to
    calibrate, 4 to evaluate.

    Args:
        trunks: the trunk depths to try.
        thin: what members lose if they lose MLP units; nothing is selected then.
        tried: the families to try without training, by cost.
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
        drawn = bool(build.choice.random) or not tried
        stages = [_selection(build, limits, trunks, refits=bool(tried))] if drawn else []
        stages += _untrained(build, limits, tried, [Made("work/drawn.safetensors")] if drawn else []) if tried else []
    last = SELECTED
    if build.data.train_data is not None:
        # Members train together where they must keep sharing what a trunk or a budget makes them share.
        stages += _training(build, build.choice.members > 1 and (trunks != "0" or limits != Limits()))
        last = FUSED
    systems: dict[str, tuple[Made | Given, Made]] = {"network": (_network(build), NETWORK), "hydra": (last, HYDRA)}
    if build.data.train_data is not None:
        systems["trained"] = ALONE, TRAINED
    if taught:
        made, more = _compared_teachers(build, mixed)
        stages += made
        systems |= more
    ood_data = _ood_data(build) if chooses_score else []
    calibrations = [_calibration(build, *pair, ood_data) for pair in systems.values()]
    evaluation = _evaluation(build, {name: made for name, (_, made) in systems.items()}, REPORT)
    if not tried:
        return [*stages, *calibrations, evaluation]
    others = {name: made for name, (_, made) in systems.items() if name != "hydra"}
    front = _front(build, list(tried), others, BASELINE if chooses_score else None)
    return [*stages, *calibrations, *front, evaluation]


def _compared_teachers(build: BuildOptions, mixed: bool) -> tuple[list[Stage], dict[str, tuple[Made | Given, Made]]]:
    """Returns the commands that make one network of several teachers, and what is calibrated and evaluated of them."""
    teachers, stages = _teachers(build), list[Stage]()
    systems: dict[str, tuple[Made | Given, Made]] = {"teacher": (teachers[0], TEACHER)}
    if len(teachers) > 1:
        together = Made("work/teacher.safetensors")
        stages.append(Stage(Fuse(teachers, separate="all", output=together), (together,)))
        systems["teacher"] = together, TEACHER
    if mixed:
        mean = Made("work/soup.safetensors")
        stages.append(Stage(Fuse(teachers, soup=True, output=mean), (mean,)))
        systems["soup"] = mean, SOUP
    return stages, systems


def _front(build: BuildOptions, costs: Sequence[str], others: Mapping[str, Made], score: str | None) -> list[Stage]:
    """Returns the commands that calibrate the best untrained Hydra of each cost, and compare them with the others."""
    made = {f"hydra-{most}": Made(f"hydra-{most}.safetensors") for most in costs}
    calibrations = [_calibration(build, _best(most), made[f"hydra-{most}"], []) for most in costs]
    return [*calibrations, _evaluation(build, {"network": NETWORK, **made, **others}, FRONT, score)]


def _reading(build: BuildOptions) -> Reading:
    classes = build.reading.classes
    return build.reading if classes is None else replace(build.reading, classes=Given("CLASSES", str(classes)))


def _network(build: BuildOptions) -> Given:
    return Given("MODEL", build.model)


def _id_data(build: BuildOptions, part: int, last: int | None = None) -> Given:
    count = 3 if build.data.eval_data else 4
    if part > count:
        return Given("EVAL_DATA", parse_data_spec(build.data.eval_data or ""))
    return Given("ID_DATA", parse_data_spec(build.data.id_data), Part(part, last or part, count, build.seed))


def _ood_data(build: BuildOptions) -> list[Given]:
    """Returns the OOD data to choose a score by and to learn from: two thirds of each set if the rest evaluates."""
    part = None if build.data.eval_ood_data else Part(1, 2, 3, build.seed)
    return _each("OOD", build.data.ood_data, part)


def _eval_ood_data(build: BuildOptions) -> list[Given]:
    if build.data.eval_ood_data:
        return _each("EVAL_OOD", build.data.eval_ood_data, None)
    return _each("OOD", build.data.ood_data, Part(3, 3, 3, build.seed))


def _each(name: str, texts: Sequence[str], part: Part | None) -> list[Given]:
    return [Given(f"{name}_{i}", parse_data_spec(text, grouped=True), part) for i, text in enumerate(texts, 1)]


def _best(most: str) -> Made:
    """Returns the file of the best Hydra that costs so much at most."""
    return Made(f"work/hydra-{most}.safetensors")


def _untrained(
    build: BuildOptions, limits: Limits, tried: Mapping[str, Sequence[Family]], others: Sequence[Made]
) -> list[Stage]:
    """Returns the commands that make families, and choose the best of each cost and of all.

    Args:
        others: Hydras made otherwise, to choose among as well.
    """
    every = [family for rows in tried.values() for family in rows]
    scores = Deviation(_id_data(build, 1), units=True)
    stages = [_unit_scores(build, scores, _reading(build), _network(build))] if any(f.units for f in every) else []
    for family in {family.name: family for family in every}.values():
        stages.append(_members(build, family))
    for family in dict.fromkeys(every):
        files = [*([_network(build)] if family.network else []), *map(Made, _member_files(build, family))]
        stages.append(Stage(Fuse(files, output=_fused(family)), (_fused(family),)))
    for most, rows in tried.items():
        stages.append(_choice(build, None, [_fused(family) for family in rows], _best(most)))
    return [*stages, _choice(build, limits, [*map(_best, tried), *others], SELECTED)]


def _member_files(build: BuildOptions, family: Family) -> list[str]:
    return [f"work/{family.name}-{number}.safetensors" for number in range(build.choice.members)]


def _fused(family: Family) -> Made:
    return Made(f"work/{family.name}{'-network' * family.network}.safetensors")


def _members(build: BuildOptions, family: Family) -> Stage:
    """Returns the command that makes the members of a family, refitted on the first part of the data."""
    spread = Spread("layer" if family.units else None, trunk=family.trunk or None)
    step = Prune(
        _network(build),
        str(family.heads) if family.heads else None,
        ByScores(SCORES, spread) if family.units else AtRandom(spread),
        unit_cut=UnitCut(str(family.units) if family.units else None, members=build.choice.members),
        seed=build.seed,
        compute=replace(build.compute, dtype=None),
        output=Made(f"work/{family.name}-{{member}}.safetensors"),
    )
    if family.refit:
        reading = replace(_reading(build), limit=min(build.reading.limit or SCORED, SCORED))
        step = replace(step, refitting=RefitOptions(_id_data(build, 1)), reading=reading)
    return Stage(step, tuple(_member_files(build, family)))


def _choice(build: BuildOptions, limits: Limits | None, hydras: Sequence[Made], best: Made) -> Stage:
    """Returns the command that chooses a Hydra by NLL at the temperature of each.

    Args:
        limits: of the Hydra that is built; None for the best of a cost.
    """
    artifact = Made(best.replace(".safetensors", ".json"))
    step = Select(
        model=_network(build),
        candidates=Candidates(list(hydras), without_dense=True),
        objective="calibrated",
        members="1",
        limits=limits or Limits(),
        id_data=_id_data(build, 2),
        reading=_reading(build),
        compute=build.compute,
        output=artifact,
        hydra=best,
        resume=True,
    )
    return Stage(step, (artifact, best))


def _selection(build: BuildOptions, limits: Limits, trunks: str, *, refits: bool) -> Stage:
    """Returns the command that selects members among draws.

    Args:
        refits: whether the first part of the data is for refits; else it selects too.
    """
    name = "drawn" if refits else "selected"
    artifact, hydra = Made(f"work/{name}.json"), Made(f"work/{name}.safetensors")
    step = Select(
        model=_network(build),
        candidates=Candidates(random=build.choice.random or 0),
        budgets=build.choice.budgets,
        members=str(build.choice.members),
        limits=limits,
        trunks="" if trunks == "0" else trunks,
        seed=build.seed,
        id_data=_id_data(build, 2 if refits else 1, 2),
        reading=_reading(build),
        compute=build.compute,
        output=artifact,
        hydra=hydra,
        resume=True,
    )
    return Stage(step, (artifact, hydra))


def _training(build: BuildOptions, together: bool) -> list[Stage]:
    """Returns the commands that train members, each with its own seed and then fused, or all together.

    The network trains as long by itself, for comparison.
    """
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
    fusion = [Stage(Fuse(trained, output=FUSED), (FUSED,))] if apart else []
    alone = replace(step, models=[_network(build)], apart=False, joint=False)
    alone = replace(alone, execution=replace(step.execution, output=ALONE))
    return [Stage(step, tuple(trained)), *fusion, Stage(alone, (ALONE,), share=1 / build.choice.members)]


def _teachers(build: BuildOptions) -> list[Given]:
    return [Given(f"TEACHER_{number}", text) for number, text in enumerate(build.learning.teacher, 1)]


def _outliers(build: BuildOptions) -> Sequence[Given]:
    """Returns the OOD samples that are not to evaluate on if the recipe gives them a weight.

    Members never train on the last of several sets that they are measured on too: it decides the verdict.
    """
    recipe = Hyperparameters(build.learning.recipe, build.learning.settings).changed_recipe()
    kept = len(build.data.ood_data) > 1 and not build.data.eval_ood_data
    sets = _ood_data(build) if recipe.outlier_weight else []
    return sets[:-1] if kept else sets


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


def _evaluation(build: BuildOptions, systems: dict[str, Made], report: Made, score: str | None = None) -> Stage:
    step = Evaluate(
        systems,
        sets=Sets(id_data=_id_data(build, 4), ood_data=_eval_ood_data(build)),
        settings=Settings(ood_score=score if build.data.ood_data or build.data.eval_ood_data else None),
        procedure=Procedure(bootstrap=1000, compare="hydra" if "hydra" in systems and len(systems) > 2 else None),
        reading=_reading(build),
        compute=build.compute,
        outputs=Outputs(report=report),
    )
    return Stage(step, (report,))
