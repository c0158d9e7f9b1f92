"""Members that are searched for together, as `select` chooses among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hydractl.errors import ArtifactError, OptionError
from hydractl.schema import Origin
from hydractl.selection.candidates import Family, counts
from hydractl.selection.joint import Ask, JointSearch, possible, search_jointly

if TYPE_CHECKING:
    from hydractl.checkpoint.heads import Head
    from hydractl.selection.answers import SelectionData
    from hydractl.selection.greedy import Answers, Quality
    from hydractl.selection.run import Asked
    from hydractl.selection.turns import Journal
    from hydractl.steps.material import Material
    from hydractl.watch import Advance, Watcher


def joint_searches(
    heads: Sequence[Head], trunks: Sequence[int], budgets: str, members: str, asked: Asked
) -> dict[int, JointSearch]:
    """A search over each trunk whose layers above have heads enough.

    Args:
        heads: of the network.
        budgets: as for candidates, shares are of the heads above the trunk.

    Raises:
        OptionError: no single number of members, or no budget that so many members can drop.
    """
    low, high = asked.members
    if low != high:
        raise OptionError(f"`members` {members}: `search` joint looks for one number of members: name that")
    found, reason = {}, None
    for trunk in trunks:
        above = tuple(head for head in heads if head.layer >= trunk)
        try:
            own = possible(counts("budgets", budgets, len(heads), len(above)), len(above), low)
        except OptionError as error:
            reason = error
        else:
            found[trunk] = JointSearch(above, low, own, asked.objective)
    if reason is not None and not found:
        raise reason
    return found


@dataclass(frozen=True, eq=False)
class Questions:
    """The network and the samples that a joint search asks it about.

    Attributes:
        batch_size: of class prompts.
    """

    material: Material
    data: SelectionData
    batch_size: int

    def ask(self, advance: Advance) -> Ask:
        """What networks that lack some heads say; tells how many samples they have answered together."""
        from hydractl.circuit.data import prompt_batches
        from hydractl.selection.answers import answer
        from hydractl.selection.forward import Candidates

        model = self.material.model
        prompts = prompt_batches(model.class_prompts, self.batch_size)

        def answers(dropped: Sequence[frozenset[Head]]) -> Answers:
            networks = Candidates(model, dropped, prompts)
            device, size = self.material.device, len(dropped)
            return answer(
                [networks], self.data, device, model.temperature, on_batch=lambda count: advance(size * count)
            )

        return answers


def joint_families(
    searches: Mapping[int, JointSearch],
    questions: Questions,
    asked: Asked,
    journal: Journal | None,
    resume: bool,
    force: bool,
    watch: Watcher,
) -> list[Family]:
    """The members that every search finds, a family for each of its budgets.

    Args:
        journal: where the turns are kept, and where those of an interrupted run are.

    Raises:
        ArtifactError, OutputError: see `_begun`.
    """
    from hydractl.selection.greedy import quality

    turns = _begun(journal, searches, resume, force)
    measured = sum(search.measured(some) for search, some in zip(searches.values(), turns, strict=True))
    samples = sum(questions.data.sizes.values()) / questions.data.ranks.size
    families: list[Family] = []
    with watch.progress("search", measured * samples) as advance:
        ask = questions.ask(advance)
        least = asked.least_accuracy(quality(ask([frozenset()]), [0]))
        for number, (trunk, search) in enumerate(searches.items()):

            def on_turn(found: Sequence[Head], quality: Quality, number: int = number) -> None:
                turns[number] = tuple(found)
                if journal is not None and questions.data.ranks.leads:
                    journal.save(turns)
                watch.note(_line(found, quality, asked.members[0]))

            try:
                whole = search_jointly(replace(search, least_accuracy=least), ask, turns[number], on_turn)
            except KeyboardInterrupt:
                if journal is not None:
                    watch.note(f"{journal.path}: holds what was found; `resume` goes on from it")
                raise
            families += [search.family(whole, budget, trunk) for budget in search.budgets]
    return families


def _begun(
    journal: Journal | None, searches: Mapping[int, JointSearch], resume: bool, force: bool
) -> list[Sequence[Head]]:
    """The turns of an interrupted run, by search; none of them where there was none.

    Raises:
        ArtifactError: the interrupted run had other options or other samples, or its state is damaged.
        OutputError: there is one, and neither `resume` nor `force` is set.
    """
    nothing: list[Sequence[Head]] = [()] * len(searches)
    if journal is None:
        return nothing
    found = journal.begin(nothing, resume, force)
    if len(found) != len(searches) or not all(map(JointSearch.could_find, searches.values(), found)):
        origin = Origin(str(journal.path), ArtifactError, "start over with `force`")
        raise origin.refusal("holds heads that this search cannot have dropped")
    return list(found)


def _line(turns: Sequence[Head], quality: Quality, members: int) -> str:
    """What a turn found, in a line of text."""
    detected = "" if quality.auroc is None else f"  AUROC {float(quality.auroc):.4f}"
    member, head = (len(turns) - 1) % members + 1, turns[-1]
    return f"member {member}  {head}  accuracy {float(quality.accuracy):.4f}{detected}  NLL {quality.nll:.4f}"
