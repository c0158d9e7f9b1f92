"""What candidates say of the samples that members are selected on, and where that is kept meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hydractl.data.ranks import Ranks
    from hydractl.selection.answers import SelectionData
    from hydractl.selection.greedy import Answers
    from hydractl.selection.run import Pool
    from hydractl.selection.store import Store
    from hydractl.selection.turns import Journal
    from hydractl.steps.material import Material
    from hydractl.watch import Watcher

#: Options of `select` that a joint search does not go by: whoever asked too little of them need not search again.
BOUNDS = ("max_cost", "max_parameters")


def journal_beside(selection: Path | None, material: Material, options: Mapping[str, Any]) -> Journal | None:
    """Where a joint search keeps what it has found: beside the file that it makes."""
    from hydractl.checkpoint.contents import identity
    from hydractl.selection.turns import Journal

    if selection is None:
        return None
    searched = {name: value for name, value in options.items() if name not in BOUNDS}
    conditions = {"model": identity(material.checkpoint), **material.data_identity(), **searched}
    return Journal(selection.with_name(f"{selection.name}.search.state"), conditions)


def store_beside(
    selection: Path | None,
    material: Material,
    candidates: Pool,
    options: Mapping[str, Any],
    resume: bool,
    force: bool,
) -> Store | None:
    """Where logits are kept while the selection runs: beside the file that it makes."""
    from hydractl.checkpoint.contents import identity
    from hydractl.checkpoint.heads import in_candidate_order
    from hydractl.selection.store import Store

    if selection is None:
        return None
    conditions = {
        "model": identity(material.checkpoint),
        **material.data_identity(),
        "candidates": [list(map(list, in_candidate_order(one.dropped))) for one in candidates.dropped],
        "files": [identity(member) for member in candidates.files],
        **{name: options[name] for name in ("batch_size", "dtype", "template")},
    }
    return Store(selection.with_name(f"{selection.name}.state"), conditions, resume, force)


def selection_data(material: Material, batch_size: int, ranks: Ranks) -> SelectionData:
    """The samples that candidates answer."""
    from hydractl.selection.answers import SelectionData

    share = 1 + len(material.ood)
    return SelectionData(
        material.batches(material.id, batch_size, share),
        {name: material.batches(samples, batch_size, share) for name, samples in material.ood.items()},
        {"": len(material.id), **{name: len(samples) for name, samples in material.ood.items()}},
        len(material.model.labels or ()) or material.model.spec.classes or 0,
        ranks,
    )


def answers_of(
    material: Material,
    candidates: Pool,
    data: SelectionData,
    batch_size: int,
    store: Store | None,
    watch: Watcher,
) -> Answers:
    """What all candidates say of all samples.

    Args:
        batch_size: of class prompts.
    """
    from hydractl.circuit.data import prompt_batches
    from hydractl.inference import load_checkpoint
    from hydractl.selection.answers import Answering, answer
    from hydractl.selection.forward import Candidates, Members
    from hydractl.surgery.fusion import fuse

    model = material.model
    dropped = [candidate.dropped for candidate in candidates.dropped]
    networks: list[Answering] = [Candidates(model, dropped, prompt_batches(model.class_prompts, batch_size))]
    if candidates.files:
        whole = candidates.files[0] if len(candidates.files) == 1 else fuse(candidates.files, ["all"])
        networks.append(Members(load_checkpoint(whole, material.device, next(model.parameters()).dtype)))
    with watch.progress("select", sum(data.sizes.values()) / data.ranks.size) as advance:
        return answer(networks, data, material.device, model.temperature, store, advance)
