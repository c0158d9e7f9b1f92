"""The commands of a build, in order, each with the part of the data that it may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hydractl.circuit.modes import MODES
from hydractl.data.reading import Reading
from hydractl.data.sources import Part, parse_data_spec
from hydractl.evaluation.settings import Procedure, Sets
from hydractl.inputs.members import Limits
from hydractl.inputs.result import Outputs
from hydractl.options import Rows
from hydractl.pipeline.build_options import NO_CIRCUITS, BuildOptions
from hydractl.pipeline.plan_units import Thinning, thinned_members
from hydractl.pipeline.stages import Given, Made, Stage
from hydractl.steps.calibrate import Calibrate
from hydractl.steps.evaluate import Evaluate
from hydractl.steps.extract_circuit import ExtractCircuit
from hydractl.steps.finetune import Finetune
from hydractl.steps.fuse import Fuse
from hydractl.steps.select import Candidates, Select
from hydractl.training.request import Execution, Hyperparameters, Seeds, TrainingSources

HYDRA, NETWORK, TRAINED, TEACHER, SOUP = (
    Made(f"{name}.safetensors") for name in ("hydra", "network", "trained", "teacher", "soup")
)
SELECTED, FUSED = Made("work/selected.safetensors"), Made("work/fused.safetensors")
CIRCUITS = {objective: Made(f"work/circuit-{objective}.json") for objective in ("acc", "ood", "avg")}
REPORT = Made("report")


def plan(
    build: BuildOptions,
    limits: Limits,
    trunks: str,
    thin: Thinning | None = None,
    *,
    one_class: bool = True,
    taught: bool = False,
    mixed: bool = False,
) -> list[Stage]:
    """Returns the commands of a build.

    The data are divided by the content of their samples: part 1 to search circuits, 2 to select members, 3 to
    calibrate, 4 to evaluate.

    Args:
        trunks: the trunk depths to try.
        thin: what members lose if they lose MLP units; nothing is searched or selected then.
        one_class: whether the network chooses one class, so that OOD data choose its OOD score.
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
        stages.append(_selection(build, limits, trunks))
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
    ood_data = _ood_data(build, 2) if one_class else []
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


def _selection(build: BuildOptions, limits: Limits, trunks: str) -> Stage:
    draws = build.choice.draws
    sources = Candidates(random=build.choice.random or 0)
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
        sources=TrainingSources(
            outlier_data=_outliers(build),
            teacher=_teachers(build),
        ),
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
