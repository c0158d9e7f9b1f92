"""The commands of a build, in order, each with its part of the data; also where members lose units above a trunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from types import MappingProxyType

from hydractl.checkpoint.arithmetic import plain_multiply_adds
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Unit, member_heads, without
from hydractl.checkpoint.layout import side_by_side
from hydractl.circuit.score_methods import Deviation, Taylor
from hydractl.data.reading import Part, Reading, parse_data_spec
from hydractl.errors import OptionError
from hydractl.evaluation.settings import Procedure, Sets, Settings
from hydractl.inputs.members import Limits
from hydractl.inputs.refitting import ENOUGH, RefitOptions
from hydractl.inputs.result import Outputs
from hydractl.ood.ood_scores import BASELINE
from hydractl.options import declared, flat
from hydractl.pipeline.build_options import NO_CIRCUITS, BuildOptions
from hydractl.pipeline.stages import Given, Made, Stage
from hydractl.selection.candidates import counts
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

#: Multiples of the network's multiply-adds that untrained Hydras are tried at.
LEVELS = (1.1, 1.3, 1.9, 2.7)
#: How far from a half the share of units that stay may be, and up to where depths of the trunk are equally good.
FAR, NEAR = 0.35, 0.12
MOST = 2.0  # from this multiple of the network's multiply-adds on, members need not lose units
SAMPLES = 1000  # that units are scored on
#: Options of a build that choose among candidates, of which this plan has none.
CHOOSING = ("budgets", "draws", "random", "trunks", "search", "search_samples")
HYDRA, NETWORK, TRAINED, TEACHER, SOUP = (
    Made(f"{name}.safetensors") for name in ("hydra", "network", "trained", "teacher", "soup")
)
SELECTED, FUSED = Made("work/selected.safetensors"), Made("work/fused.safetensors")
CIRCUITS = {objective: Made(f"work/circuit-{objective}.json") for objective in ("acc", "ood", "avg")}
REPORT, FRONT, SCORES = Made("report"), Made("front"), Made("work/units.json")


@dataclass(frozen=True)
class Family:
    """Members that lose heads and MLP units above a trunk."""

    trunk: int  # the layers below, which stay whole
    heads: int  # that each loses; members draw them
    units: int  # that it loses; members share the best half of the others and divide the rest
    refit: bool = False  # whether the maps that stay are fitted again
    network: bool = False  # whether the network is a member beside them

    @property
    def name(self) -> str:
        """Its name in files, by the parts that its members lose."""
        return f"trunk{self.trunk}-heads{self.heads}-units{self.units}{'-refit' * self.refit}"


def thinning(build: BuildOptions, network: Checkpoint, limits: Limits) -> Family | None:
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
        raise OptionError(f"`units` yes: no members of this network fit {most:g}x: allow more, or leave `units` out")
    return thinned


def sized(network: Checkpoint, members: int, most: float, family: Family | None = None) -> Family | None:
    """Returns a family that loses as few units as a limit requires.

    Returns None if members would lose all units, or if the network has two towers or norms its units together.

    Args:
        most: multiply-adds of the Hydra, as a multiple of the network's.
        family: Default: a trunk of half the layers, and a third of the heads gone above.
    """
    tower = network.spec.towers[0]
    if len(network.spec.towers) > 1 or tower.unit_norm or members > tower.mlp_width - 2:
        return None
    if family is None:
        trunk = tower.layers // 2
        family = Family(trunk, (tower.layers - trunk) * (tower.heads // 3), 0)
    layers, costs = tower.layers - family.trunk, [cost(network, family, members, lost) for lost in (1, 2)]
    allowed = most * plain_multiply_adds(network.spec, network.layout)
    units = max(ceil((1 + (costs[0] - allowed) / (costs[0] - costs[1])) * layers), layers)
    return replace(family, units=units) if units <= layers * (tower.mlp_width - 1) else None


def cost(network: Checkpoint, family: Family, members: int, lost: int = 0) -> int:
    """Returns the multiply-adds of a family's members, each of which lacks so many units in each layer above."""
    spec, table, whole = network.spec, network.slots(), network.layout
    free = [head for head in member_heads(network.heads, 0) if head.layer >= family.trunk]
    gone = {*sorted(free, key=lambda head: (head.head, head.layer))[: family.heads]}
    thin = replace(whole, heads=without(network.heads, gone))
    apart = {name for name in table if gone and table[name].is_attention and (table[name].layer or 0) >= family.trunk}
    layers = [(tower.name, layer) for tower in spec.towers for layer in range(family.trunk, tower.layers)]
    lacking = [[Unit(*layer, m + n) for layer in layers for n in range(lost)] for m in range(members)]
    kept = [thin.without_units(spec, units) for units in lacking] + [whole] * family.network
    return plain_multiply_adds(spec, side_by_side(spec, kept, frozenset(table) - apart))


def families(build: BuildOptions, network: Checkpoint, limits: Limits, tries: int) -> dict[str, list[Family]]:
    """Returns the families to try without training, by what their Hydras may cost: none for a single member.

    At each cost the depths of the trunk, with and without the network, decide how many MLP units go; those that leave
    about half of them come first, and few of these are refitted too. Others lose heads alone, and are refitted.

    Args:
        tries: how many at each cost lose units.
    """
    members, limit = build.choice.members, limits.budget_macs
    if members < 2 or build.data.train_data is not None:
        return {}
    depth = max(tower.layers for tower in network.spec.towers)
    depths = counts("trunks", build.choice.trunks or "", depth) or {depth * part // 6 for part in range(6)}
    trunks = sorted({trunk for trunk in depths if trunk < depth}, reverse=True)
    heads = {trunk: sum(head.layer >= trunk for head in member_heads(network.heads, 0)) // 3 for trunk in trunks}
    whole, width = plain_multiply_adds(network.spec, network.layout), network.spec.towers[0].mlp_width

    def far(family: Family) -> float:
        """Returns how far from a half the share of units that stay above the trunk is."""
        return abs(0.5 - family.units / (width * (depth - family.trunk)))

    shapes = [Family(trunk, 0, 0, network=beside) for beside in (False, True) for trunk in trunks]
    cuts = [replace(shape, heads=heads[shape.trunk], refit=True) for shape in shapes if heads[shape.trunk]]
    tried, below = dict[str, list[Family]](), 0.0
    for most in sorted({*(level for level in LEVELS if level < (limit or level + 1)), *([limit] if limit else [])}):
        sizes = (sized(network, members, most, shape) for shape in shapes)
        fitting = [family for family in sizes if family is not None and far(family) < FAR]
        rows = sorted(fitting, key=lambda family: (max(far(family), NEAR), -family.trunk))[:tries]
        if limits.budget_params is None:  # what is refitted is stored for each member
            rows += [replace(family, refit=True) for family in rows[: tries // 3]]
            costs = {cut: cost(network, cut, members) / whole for cut in cuts}
            rows += [cut for cut in cuts if below < costs[cut] <= most][: max(tries // 3, tries - len(rows))]
        below = most
        if rows:
            tried[f"{most:g}x"] = rows
    return tried


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
    reading = replace(reading, limit=min(reading.limit or SAMPLES, SAMPLES))
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

    The data are divided by the content of their samples: part 1 to search circuits, 2 to select members, 3 to
    calibrate, 4 to evaluate.

    Args:
        trunks: the trunk depths to try.
        thin: what members lose if they lose MLP units; nothing is searched or selected then.
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
        stages = [_search(build)] if _searches(build) else []
        drawn = _searches(build) or bool(build.choice.random) or not tried
        stages += [_selection(build, limits, trunks, "drawn" if tried else "selected")] if drawn else []
        stages += _untrained(build, limits, tried, [Made("work/drawn.safetensors")] if drawn else []) if tried else []
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
    evaluation = _evaluation(build, {name: made for name, (_, made) in systems.items()}, REPORT)
    if not tried:
        return [*stages, *calibrations, evaluation]
    others = {name: made for name, (_, made) in systems.items() if name != "hydra"}
    front = _front(build, list(tried), others, BASELINE if chooses_score else None)
    return [*stages, *calibrations, *front, evaluation]


def _front(build: BuildOptions, costs: Sequence[str], others: Mapping[str, Made], score: str | None) -> list[Stage]:
    """Returns the commands that calibrate the best untrained Hydra of each cost, and compare them with the others."""
    made = {f"hydra-{most}": Made(f"hydra-{most}.safetensors") for most in costs}
    calibrations = [_calibration(build, _best(most), made[f"hydra-{most}"], []) for most in costs]
    return [*calibrations, _evaluation(build, {"network": NETWORK, **made, **others}, FRONT, score)]


def _searches(build: BuildOptions) -> bool:
    return bool(build.data.ood_data) and build.search not in (None, NO_CIRCUITS)


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
        reading=replace(_reading(build), limit=min((size for size in (most, limit) if size), default=None)),
        compute=build.compute,
        output=Made("work/circuit-{objective}.json"),
        resume=True,
    )
    return Stage(step, tuple(CIRCUITS.values()))


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
    """Returns the command that makes the members of a family, refitted on the part of the data for circuits."""
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
        reading = replace(_reading(build), limit=min(build.reading.limit or ENOUGH, ENOUGH))
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


def _selection(build: BuildOptions, limits: Limits, trunks: str, name: str) -> Stage:
    draws, artifact, hydra = build.choice.draws, Made(f"work/{name}.json"), Made(f"work/{name}.safetensors")
    sources = Candidates(random=build.choice.random or 0)
    if _searches(build):
        sources = replace(sources, circuit=list(CIRCUITS.values()))
    if _searches(build) and draws:
        sources = replace(sources, pools="25%,50%", draws=draws)
    step = Select(
        model=_network(build),
        candidates=sources,
        budgets=build.choice.budgets,
        members=str(build.choice.members),
        limits=limits,
        trunks="" if trunks == "0" else trunks,
        seed=build.seed,
        id_data=_id_data(build, 2),
        reading=_reading(build),
        compute=build.compute,
        output=artifact,
        hydra=hydra,
        resume=True,
    )
    return Stage(step, (artifact, hydra))


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


def _evaluation(build: BuildOptions, systems: dict[str, Made], report: Made, score: str | None = None) -> Stage:
    step = Evaluate(
        systems,
        sets=Sets(id_data=_id_data(build, 4), ood_data=_ood_data(build, 3)),
        settings=Settings(ood_score=score if build.data.ood_data or build.data.eval_ood_data else None),
        procedure=Procedure(bootstrap=1000, compare="hydra" if "hydra" in systems and len(systems) > 2 else None),
        reading=_reading(build),
        compute=build.compute,
        outputs=Outputs(report=report),
    )
    return Stage(step, (report,))
