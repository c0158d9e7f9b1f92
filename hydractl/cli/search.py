"""Running a search for `hydractl extract-circuit`: its state on disk, its progress, and what it says of each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.cli import console
from hydractl.errors import OutputError

if TYPE_CHECKING:
    from hydractl.circuit.objective import Objective
    from hydractl.circuit.ranking import Plan, Ranking
    from hydractl.circuit.round import Progress, SearchData
    from hydractl.circuit.state import Journal
    from hydractl.cli.material import Material
    from hydractl.model.hydra import Hydra


def search_and_write(
    material: Material,
    plan: Plan,
    chosen: Mapping[str, Any],
    outputs: Mapping[Objective, Path],
    state: Path | None,
    resume: bool,
    force: bool,
    quiet: bool,
) -> None:
    """Searches and writes the circuit of each objective, then lets go of the state they were found with.

    Args:
        chosen: the options that determine the result, `batch_size` among them.
        state: where the search notes each step; None where it cannot.

    Raises:
        ArtifactError: the state is damaged, or of a search under other conditions.
        DataError: a logit is not finite, or ID samples have no labels.
        OptionError: a screened search of a model in half precision.
        OutputError: an output exists, or an interrupted search that is neither gone on with nor given up.
    """
    from hydractl.circuit.artifact import circuit_json
    from hydractl.circuit.state import Journal
    from hydractl.data.ranks import join_ranks

    origin = material.origin(chosen)
    conditions = {"model": origin["model"]["sha256"], **material.data_identity(), **chosen}
    journal = Journal(state, conditions) if state else None
    with join_ranks(material.device) as ranks:
        quiet = quiet or not ranks.leads
        begun = _begin(journal, outputs, resume, force, quiet)
        found = _run(material.model, material.search_data(chosen["batch_size"], ranks), plan, begun, journal, quiet)
        if not ranks.leads:
            return
        for ranking in found:
            console.write_json(outputs[ranking.objective], circuit_json(ranking, origin), force)
        if journal is not None:
            journal.remove()
            print("\n".join(str(path) for path in outputs.values()))


def _begin(
    journal: Journal | None, outputs: Mapping[Objective, Path], resume: bool, force: bool, quiet: bool
) -> list[Ranking]:
    """The rankings to grow: those of an interrupted search, or empty ones."""
    from hydractl.checkpoint.atomic import refuse_existing
    from hydractl.circuit.ranking import Ranking

    if journal is not None:
        for path in outputs.values():
            refuse_existing(path, force)
        interrupted = journal.path.exists()
        if interrupted and resume:
            return journal.read()
        if interrupted and not force:
            raise OutputError(f"{journal.path}: an interrupted search: go on with --resume, or start over with --force")
        if resume:
            # A Makefile passes --resume always: the first time there is nothing yet.
            console.note(f"note: {journal.path} is not there: starting afresh", quiet)
    return [Ranking(objective) for objective in outputs]


def _run(
    model: Hydra, data: SearchData, plan: Plan, begun: list[Ranking], journal: Journal | None, quiet: bool
) -> list[Ranking]:
    """Runs the search, saving each step and saying what it is."""
    from hydractl.circuit.cost import candidate_costs, round_cost, search_cost
    from hydractl.circuit.search import extract_circuits

    total = sum(search_cost(model.spec, model.heads, plan, len(ranking.steps)) for ranking in begun)
    samples = (data.id_samples + data.ood_samples) / data.ranks.size
    said = {ranking.objective: len(ranking.steps) for ranking in begun}
    with console.progress("search", total, quiet) as advance:

        def on_round(network: Hydra, growing: Sequence[Ranking]) -> Progress:
            done = len(growing[0].steps)
            costs = candidate_costs(network.spec, network.heads, plan.left(growing[0].dropped))
            once = len(growing) * round_cost(model.spec, model.heads, plan, done)
            share = once / sum(costs.values()) / samples
            return lambda group, count: advance(share * count * sum(costs[head] for head in group))

        def on_step(rankings: Sequence[Ranking], grown: Ranking) -> None:
            if journal is not None and data.ranks.leads:
                journal.save(rankings)
            for number in range(said[grown.objective], len(grown.steps)):
                console.note(_step_line(grown, number), quiet)
            said[grown.objective] = len(grown.steps)

        try:
            found = extract_circuits(model, data, plan, begun, on_round, on_step)
        except KeyboardInterrupt:
            if journal is not None:
                console.note(f"{journal.path}: holds what was found; --resume goes on from it", not data.ranks.leads)
            raise
    for ranking in found:
        for line in _account(ranking):
            console.note(line, quiet)
    return found


def _account(ranking: Ranking) -> list[str]:
    """What an inexact search left to chance for an objective."""
    if ranking.shortcut is None or ranking.baseline is None:
        return []
    slack = f"{ranking.shortcut.slack / ranking.baseline.span(ranking.objective):.4f}"
    first, *later = ranking.shortcut.checked
    name, checked = f"note: {ranking.objective}", f"exact scores: {first} in the first step, {sum(later)} in all others"
    if ranking.shortcut.kind == "gap":
        return [f"{name}: {checked}; the best of the first shortlist was {slack} below the best of all"]
    return [f"{name}: {checked}, of heads within {slack} of the best, a margin that the first step suggests"]


def _step_line(ranking: Ranking, number: int) -> str:
    step = ranking.steps[number]
    numbers = f"accuracy {step.measure.accuracy:.4f}  AUROC {step.measure.auroc:.4f}"
    return f"{ranking.objective}  {number + 1:3}  {step.head}  {numbers}"
