"""Running a search for `hydractl extract-circuit`: its state on disk, its progress, and what it says of each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydractl.cli import console
from hydractl.errors import OutputError

if TYPE_CHECKING:
    from hydractl.circuit.ranking import Ranking, Search
    from hydractl.circuit.state import Journal
    from hydractl.cli.material import Material
    from hydractl.model.hydra import Hydra
    from hydractl.scoring.ablation import Progress
    from hydractl.scoring.data import ScoringData
    from hydractl.scoring.objective import Objective


def search_and_write(
    material: Material,
    search: Search,
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
        found = _run(material.model, material.scoring_data(chosen["batch_size"], ranks), search, begun, journal, quiet)
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
    model: Hydra, data: ScoringData, search: Search, begun: list[Ranking], journal: Journal | None, quiet: bool
) -> list[Ranking]:
    """Runs the search, saving each step and saying what it is."""
    from hydractl.circuit.cost import round_progress, search_cost
    from hydractl.circuit.search import extract_circuits

    total = sum(search_cost(model.spec, model.heads, search, len(ranking.steps)) for ranking in begun)
    samples = (data.id_samples + data.ood_samples) / data.ranks.size
    said = {ranking.objective: len(ranking.steps) for ranking in begun}
    with console.progress("search", total, quiet) as advance:

        def on_round(network: Hydra, growing: Sequence[Ranking]) -> Progress:
            return round_progress(model, network, search, growing, samples, advance)

        def on_step(rankings: Sequence[Ranking], grown: Ranking) -> None:
            if journal is not None and data.ranks.leads:
                journal.save(rankings)
            for number in range(said[grown.objective], len(grown.steps)):
                console.note(_step_line(grown, number), quiet)
            said[grown.objective] = len(grown.steps)

        try:
            found = extract_circuits(model, data, search, begun, on_round, on_step)
        except KeyboardInterrupt:
            if journal is not None:
                console.note(f"{journal.path}: holds what was found; --resume goes on from it", not data.ranks.leads)
            raise
    for ranking in found:
        if account := _account(ranking, search):
            console.note(f"note: {account}", quiet)
    return found


def _account(ranking: Ranking, search: Search) -> str | None:
    """What an inexact search left to chance for an objective."""
    if ranking.shortcut is None:
        return None
    first, *later = ranking.shortcut.checked
    checked = f"exact scores: {first} in the first step, {sum(later)} in all others"
    return f"{ranking.objective}: {checked}{search.mode.account.format(slack=f'{ranking.slack:.4f}')}"


def _step_line(ranking: Ranking, number: int) -> str:
    step = ranking.steps[number]
    numbers = f"accuracy {step.measure.accuracy:.4f}  AUROC {step.measure.auroc:.4f}"
    return f"{ranking.objective}  {number + 1:3}  {step.head}  {numbers}"
