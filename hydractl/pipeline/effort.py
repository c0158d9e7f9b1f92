"""The numbers that the effort of a build stands for, and what its steps take, in passes of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import member_heads, number_of_heads
from hydractl.circuit.modes import MODES
from hydractl.circuit.ranking import Search
from hydractl.inputs.search_data import modality_of, open_material, open_ood_sets
from hydractl.options import Rows, flat, with_options
from hydractl.pipeline.build_options import EFFORTS, NO_CIRCUITS, BuildOptions
from hydractl.selection.candidates import counts
from hydractl.training.request import Hyperparameters, TrainingSources
from hydractl.watch import LOG, Watcher

B = TypeVar("B", bound=BuildOptions)
EPOCHS = 10  # that training takes at most where its length is not given
OBJECTIVES = 3  # that circuits are searched for
#: Passes that a step of training takes for a sample, and a replay with one head off.
TRAINED, REPLAYED = 3.0, 0.5


@dataclass(frozen=True)
class Sizes:
    """The samples that a build has."""

    inside: int  # ID samples of a step; each step has a part of them
    outside: Sequence[int]  # samples of each OOD set for a step
    measured: Sequence[int]  # samples of each set of the evaluation
    training: int = 0

    def in_a_step(self, limit: int | None) -> int:
        """Returns the samples of a step that has so many of each set at most."""
        return _limited((self.inside, *self.outside), limit)


def _limited(sets: Sequence[int], limit: int | None) -> int:
    return sum(size if limit is None else min(size, limit) for size in sets)


def settled(build: B, sizes: Sizes, thin: bool, watch: Watcher) -> B:
    """Returns the build with the numbers of its effort wherever an option gives none, and notes them.

    Args:
        thin: whether members lose MLP units, so that nothing is searched or selected.
    """
    effort = next(effort for effort in EFFORTS if effort.name == build.effort)
    searched = bool(sizes.outside) and not thin and build.search != NO_CIRCUITS
    names = [*(["search", "search_samples", "draws"] if searched else []), *([] if thin else ["random"])]
    options = flat(build)
    chosen = {name: getattr(effort, name) if options[name] is None else options[name] for name in names}
    parts = []
    if searched:
        parts.append(f"circuits by {chosen['search']} search on {chosen['search_samples']} samples")
    if chosen.get("random"):
        parts.append(f"{chosen['random']} random draws per budget")
    limit = build.reading.limit
    if limit is None and max(sizes.inside, *sizes.outside, *sizes.measured) > effort.limit:
        chosen["limit"] = limit = effort.limit
        if sizes.training and build.train_samples is None:
            chosen["train_samples"] = sizes.training  # the limit is of the other steps
    parts.append("all samples" if limit is None else f"at most {limit} samples of each set")
    if sizes.training:
        recipe = Hyperparameters(build.learning.recipe, build.learning.settings).changed_recipe()
        if not recipe.steps and not recipe.epochs:
            steps = min(effort.steps, max(EPOCHS * sizes.training // recipe.batch, 1))
            chosen["settings"] = [*build.learning.settings, f"steps={steps}"]
            parts.append(f"{steps} steps of training")
    watch.note(f"note: `effort` {build.effort}: {', '.join(parts)}")
    return with_options(build, chosen)


def sizes_of(build: BuildOptions, network: Checkpoint) -> Sizes:
    """Returns the samples that a build has.

    Raises:
        DataError: data cannot be read, or their labels are not the network's.
    """
    from hydractl.data.open import open_samples

    reading, ood_data = replace(build.reading, limit=None), [*build.data.ood_data] or None
    material = open_material(network, build.data.id_data, ood_data, reading=reading, compute=build.compute, watch=LOG)
    inside = len(material.id) // (3 if build.data.eval_data else 4)
    outside = [len(samples) // (2 if build.data.eval_ood_data else 3) for samples in material.ood.values()]
    modality, measured = modality_of(network, reading), [inside, *outside]
    if build.data.eval_data:
        measured[0] = len(open_samples(build.data.eval_data, modality, reading))
    if build.data.eval_ood_data:
        sets = open_ood_sets(build.data.eval_ood_data, build.data.eval_data or build.data.id_data, modality, reading)
        measured[1:] = map(len, sets.values())
    return Sizes(inside, outside, measured, _training_samples(build, network) if build.data.train_data else 0)


def _training_samples(build: BuildOptions, network: Checkpoint) -> int:
    """Returns the number of samples to train on; raises now what their labels would raise hours later."""
    from hydractl.training.conditions import Training
    from hydractl.training.trainer import fit_labels, sample_kind
    from hydractl.training.trainset import open_training_data

    recipe = Hyperparameters(build.learning.recipe, build.learning.settings).changed_recipe()
    reading = replace(build.reading, classes=None, limit=build.train_samples or build.reading.limit)
    outliers = build.data.ood_data if recipe.outlier_weight else ()
    sources = TrainingSources(outlier_data=outliers)
    data = open_training_data(sample_kind([network], recipe), build.data.train_data or "", sources, reading)
    if not (build.learning.teacher and recipe.teacher_weight == 1):
        fixed = recipe if recipe.steps or recipe.epochs else replace(recipe, steps=1)
        fit_labels(network, Training(data, fixed, match=build.reading.match_labels))
    return len(data.train)


def passes(build: BuildOptions, network: Checkpoint, sizes: Sizes, trunks: str) -> Mapping[str, float]:
    """Returns how many samples the network must be run on, by command of a plan; those that take none are left out.

    Args:
        build: with the numbers of its effort.
        trunks: the trunk depths to try.
    """
    heads, choice, limit = member_heads(network.heads, 0), build.choice, build.reading.limit
    chosen, drawn, counted = sizes.in_a_step(limit), choice.random or 0, dict[str, float]()
    if sizes.outside and build.search not in (None, NO_CIRCUITS):
        drawn += OBJECTIVES * (1 + 2 * (choice.draws or 0))
        most = number_of_heads("50%", len(heads)) or 0
        networks = Search(tuple(heads), most, Rows(MODES).named(build.search or "")()).networks(0)
        several = OBJECTIVES * networks - (OBJECTIVES - 1) * len(heads)  # they share the first round
        counted["extract-circuit"] = REPLAYED * several * sizes.in_a_step(build.search_samples)
    budgets = len(counts("budgets", choice.budgets, len(heads))) * len(trunks.split(","))
    counted["select"] = (1 + budgets * drawn) * chosen
    if sizes.training:
        from hydractl.training.network import step_count

        recipe = Hyperparameters(build.learning.recipe, build.learning.settings).changed_recipe()
        steps = step_count(recipe, sizes.training) * len(recipe.lr)
        counted["finetune"] = TRAINED * steps * recipe.batch * choice.members
    counted["calibrate"] = choice.members * chosen
    counted["evaluate"] = (1 + choice.members) * _limited(sizes.measured, limit)
    return counted
