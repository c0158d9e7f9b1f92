"""Commands that compute nothing: `inspect` any file, put reports into one, list what comes with hydractl."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hydractl.artifacts import file_of_ours
from hydractl.inputs.models import ModelLike, as_checkpoint
from hydractl.inputs.result import Finding, Outputs, Reported
from hydractl.options import Without, function, option, required
from hydractl.run_options import output_option
from hydractl.text import aligned
from hydractl.watch import Watcher, tell

if TYPE_CHECKING:
    from hydractl.evaluation.sets import Suite
    from hydractl.families import Family
    from hydractl.training.recipe import Recipe

VERIFIED = (
    "Each was verified against the forward pass of its own library (transformers, timm, open_clip), "
    "in float64 to 1e-10: dense, pruned, fused, searched, exported back."
)


@dataclass(frozen=True)
class Inspect:
    """Show what a model, or any other file of hydractl, holds.

    Example: hydractl inspect hydra.safetensors

    For a model, prints a map with a row per layer and a column per member: a square is a head kept, a dot one dropped.
    ONNX files of export are shown too. Circuits, head scores, selections, reports, builds and recipes (.toml) are
    recognised by their content.

    >>> hydractl.inspect("hydra").value["members"]
    2

    Raises:
        ArtifactError: the artifact cannot be read.
        CheckpointError: the model cannot be read.
    """

    model: ModelLike = field(
        metadata=required(
            "A model, circuit, score file, selection, report, build or recipe.", "Model", "MODEL|FILE", positional=True
        )
    )

    def run(self, watch: Watcher) -> Finding[Mapping[str, Any]]:
        file = file_of_ours(str(self.model)) if isinstance(self.model, str | Path) else None
        if file is None:
            from hydractl.reports.summary import summarize, summarize_onnx, summary_lines
            from hydractl.systems.onnx_file import is_onnx, open_onnx

            onnx = is_onnx(self.model)
            summary = summarize_onnx(open_onnx(self.model)) if onnx else summarize(as_checkpoint(self.model))
            return Finding(summary, summary, list(summary_lines(summary)))
        from hydractl.reports.describe import describe_artifact

        described = describe_artifact(file)
        content = asdict(described)
        return Finding(content, content, list(described.lines()))


inspect = function(Inspect)


@dataclass(frozen=True)
class Report:
    """Put the systems of several reports into one table.

    Example: hydractl report dense.json hydra.json -o comparison

    Prints the table without computing anything again. Only reports that define their numbers alike can be joined; a
    note names those of different data. Curves are drawn for reports that hold them: report.json of --report FOLDER.

    >>> evaluated = [hydractl.evaluate(name, id_data="data/pets", json=f"{name}.json") for name in ("vit", "m1")]
    >>> sorted(hydractl.report(["vit.json", "m1.json"]).models)
    ['m1', 'vit']

    Raises:
        ArtifactError: a file is no report, or two reports define their numbers differently.
        OutputError: an output exists and `force` is not set, or the disk refuses it.
    """

    files: Sequence[str | Path] = field(
        metadata=required(
            "Reports of `hydractl evaluate`, or their folders; - is stdin.", "Model", "REPORT...", positional=True
        )
    )
    output: str | Path | None = output_option("Write a page, figures and tables.", "FOLDER")
    outputs: Annotated[Outputs, Without("report")] = Outputs()

    def run(self, watch: Watcher) -> Reported:
        from hydractl.reports.page import join_reports, read_report

        outputs = replace(self.outputs, report=self.output)
        outputs.check()
        sources = [self.files] if isinstance(self.files, str | Path) else self.files
        files = [str(file_of_ours(str(file)) or file) for file in sources]
        joined, notes = join_reports({file: read_report(file) for file in files})
        tell(watch, notes)
        return outputs.write(joined, watch)


report = function(Report)


@dataclass(frozen=True)
class ListFamilies:
    """List the architectures that can be read.

    Prints how each was verified, and which are refused and why.

    Example: hydractl list families

    >>> hydractl.list_families().to_json()["refused"]["albert"]
    'its layers share one set of weights, so a head is dropped in all of them or in none'
    """

    def run(self, watch: Watcher) -> Finding[Sequence[Family]]:
        from hydractl.checkpoint.spec import TOWERS_OF
        from hydractl.families import FAMILIES, REASONS, REFUSED

        listed = [
            {
                "name": family.name,
                "title": family.title,
                "task": family.task,
                "tasks": [task for task, towers in TOWERS_OF.items() if towers == TOWERS_OF[family.task]],
                "reads": _reads(family),
                "verified_against": family.library,
            }
            for family in FAMILIES
        ]
        about = {family.name: f"{family.task:<20}  {', '.join(_reads(family))}" for family in FAMILIES}
        notes = [
            "",
            VERIFIED,
            "Each with a classifier chooses a class or labels, or gives numbers or a probability, as config.json says.",
            "",
            "not read:",
            *(f"  {reason}: {', '.join(names.split())}" for reason, names in REASONS.items()),
        ]
        return Finding(FAMILIES, {"families": listed, "refused": REFUSED}, [*aligned(about.items(), left=2), *notes])


@dataclass(frozen=True)
class ListRecipes:
    """List the published fine-tuning recipes, or print one.

    Prints one recipe as TOML, ready to be changed and passed to finetune.

    Example: hydractl list recipes sst2 > mine.toml

    >>> hydractl.list_recipes().value["sst2"].epochs
    7.0
    >>> hydractl.list_recipes("sst2").to_json()["optimizer"]
    'adamw'

    Raises:
        OptionError: neither a published recipe nor a readable file.
    """

    recipe: str | Path | None = option(
        None, "A published recipe, or a TOML file. Default: list all.", "Model", "RECIPE", positional=True
    )

    def run(self, watch: Watcher) -> Finding[Mapping[str, Recipe]]:
        from hydractl.training.recipe import RECIPES, find_recipe, recipe_json, to_toml

        if self.recipe is not None:
            recipe = find_recipe(self.recipe)
            content = recipe_json(recipe)
            return Finding({str(self.recipe): recipe}, content, to_toml(recipe).splitlines())
        about = {name: _summary(recipe) for name, recipe in RECIPES.items()}
        content = {"recipes": {name: recipe_json(recipe) for name, recipe in RECIPES.items()}}
        return Finding(RECIPES, content, list(aligned(about.items(), left=2)))


@dataclass(frozen=True)
class ListSuites:
    """List the suites of tasks to evaluate on, or print one.

    Prints one suite as TOML, ready to be changed and passed to evaluate.

    Example: hydractl list suites sst2 > mine.toml

    >>> "sst2" in hydractl.list_suites().value
    True
    >>> list(hydractl.list_suites("sst2").to_json()["tasks"])
    ['sst2']

    Raises:
        OptionError: neither a built-in suite nor a readable file.
    """

    suite: str | Path | None = option(
        None, "A built-in suite, or a TOML file. Default: list all.", "Model", "SUITE", positional=True
    )

    def run(self, watch: Watcher) -> Finding[Mapping[str, Suite]]:
        import tomli_w

        from hydractl.evaluation.sets import SUITES, find_suite

        if self.suite is not None:
            suite = find_suite(self.suite)
            content = _suite_json(suite)
            return Finding({suite.name: suite}, content, tomli_w.dumps(content).splitlines())
        about = {name: suite.about for name, suite in SUITES.items()}
        content = {"suites": {name: _suite_json(suite) for name, suite in SUITES.items()}}
        return Finding(SUITES, content, list(aligned(about.items(), left=2)))


list_families, list_recipes, list_suites = function(ListFamilies), function(ListRecipes), function(ListSuites)


def _reads(family: Family) -> list[str]:
    return list(family.architectures) if family.library == "transformers" else [f"{family.title} folders"]


def _summary(recipe: Recipe) -> str:
    length = f"{recipe.steps} steps" if recipe.steps else f"{recipe.epochs:g} epochs"
    rates = ", ".join(f"{lr:g}" for lr in recipe.lr)
    return f"{recipe.optimizer}, lr {rates}, {recipe.schedule}, {length}, {recipe.batch} samples a step"


def _suite_json(suite: Suite) -> dict[str, Any]:
    return {"about": suite.about, "tasks": {name: {**task.options} for name, task in suite.tasks.items()}}
