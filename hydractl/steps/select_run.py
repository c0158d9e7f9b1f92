"""The network and the samples that a selection measures, and the state that it keeps on disk meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hydractl.checkpoint.contents import identity
from hydractl.checkpoint.heads import Head, in_candidate_order
from hydractl.circuit.objective import Measure, ScoringData
from hydractl.data.ranks import Ranks
from hydractl.errors import DataError
from hydractl.inference import load_checkpoint
from hydractl.ood.table import BASELINE
from hydractl.selection.answers import Answering, Store, answer
from hydractl.selection.candidates import CandidateSet
from hydractl.selection.forward import CandidateNetworks, MemberNetworks
from hydractl.selection.greedy import CandidateLogits, quality
from hydractl.selection.joint import Ask, JointSearch, TurnsJournal, search_jointly
from hydractl.selection.pool import CandidatePool, Criteria
from hydractl.steps.material import Material
from hydractl.surgery.fusion import fuse
from hydractl.watch import Advance, Watcher

#: Options of `select` that a joint search does not depend on: with others its turns are used again.
BOUNDS = ("budget_macs", "budget_params", "units")


@dataclass(eq=False)
class SelectionRun:
    """The network, the samples that candidates answer, and the state on disk.

    Attributes:
        watch: of the process that leads.
        selection: the file beside which the state lies; None for no state.
        options: those that the result depends on.
        kept: the states on disk, which go when the selection is written.
    """

    material: Material
    batch_size: int
    ranks: Ranks
    watch: Watcher
    selection: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    ood_score: str = BASELINE
    resume: bool = False
    force: bool = False
    kept: list[Store | TurnsJournal] = field(default_factory=list)

    @cached_property
    def data(self) -> ScoringData:
        """The samples."""
        return self.material.scoring_data(self.batch_size, self.ranks, share=1 + len(self.material.ood))

    @property
    def samples(self) -> float:
        """The number of samples that this process answers."""
        return self.material.samples / self.ranks.size

    @property
    def conditions(self) -> dict[str, Any]:
        """The model and the samples that every state depends on."""
        return {"model": identity(self.material.checkpoint), **self.material.data_identity()}

    def store(self, pool: CandidatePool) -> Store | None:
        """Returns the folder of the logits: beside the selection; None on ranks that do not lead."""
        if self.selection is None or not self.ranks.leads:
            return None
        conditions = {
            **self.conditions,
            "candidates": [list(map(list, in_candidate_order(one.dropped))) for one in pool.dropped],
            "files": [identity(member) for member in pool.files],
            **{name: self.options.get(name) for name in ("batch_size", "dtype", "template", "ood_score")},
        }
        folder = self.selection.with_name(f"{self.selection.name}.state")
        store = Store(folder, conditions, self.resume, self.force)
        self.kept.append(store)
        return store

    def answers(self, pool: CandidatePool) -> CandidateLogits:
        """Returns the logits of all candidates on all samples."""
        networks: list[Answering] = [self._candidates([candidate.dropped for candidate in pool.dropped])]
        material, store = self.material, self.store(pool)
        if pool.files:
            whole = pool.files[0] if len(pool.files) == 1 else fuse(pool.files, ["all"])
            dtype = next(material.model.parameters()).dtype
            networks.append(MemberNetworks(load_checkpoint(whole, material.device, dtype)))
        with self.watch.progress("select", self.samples) as advance:
            temperature = material.model.temperature
            try:
                return answer(
                    networks,
                    self.data,
                    material.device,
                    temperature=temperature,
                    store=store,
                    ood_score=self.ood_score,
                    on_batch=advance,
                )
            except DataError:
                self.remove_state()  # the next attempt will ask for something else: nothing may be in its way
                raise

    def joint_sets(self, searches: Mapping[int, JointSearch], criteria: Criteria) -> list[CandidateSet]:
        """Returns the members that the search over each trunk finds, a set for each of its budgets."""
        turns: list[Sequence[Head]] = [()] * len(searches)
        journal = None
        if self.selection is not None:
            searched = {name: value for name, value in self.options.items() if name not in BOUNDS}
            place = self.selection.with_name(f"{self.selection.name}.search.state")
            journal = TurnsJournal(place, {**self.conditions, **searched})
            turns = list(journal.begin(turns, self.resume, self.force))
            self.kept.append(journal)
            self.watch.note(f"note: {place} holds what is found, and `resume` continues from it")
        measured = sum(search.measured(some) for search, some in zip(searches.values(), turns, strict=True))
        found: list[CandidateSet] = []
        with self.watch.progress("search", measured * self.samples) as advance:
            ask = self._ask(advance)
            goal = criteria.goal(quality(ask([frozenset()]), [0]))
            for number, (trunk, search) in enumerate(searches.items()):

                def on_turn(heads: Sequence[Head], together: Measure, number: int = number) -> None:
                    turns[number] = tuple(heads)
                    if journal is not None and self.ranks.leads:
                        journal.save(turns)
                    self.watch.note(_line(heads, together, criteria.members[0]))

                whole = search_jointly(search, goal, ask, turns[number], on_turn=on_turn)
                found += [search.candidate_set(whole, budget, trunk) for budget in search.budgets]
        return found

    def remove_state(self) -> None:
        """Removes what lies on disk, once the selection is written."""
        for kept in self.kept:
            kept.remove()

    def _ask(self, advance: Advance) -> Ask:
        """Returns a function for the logits of networks without some heads; `advance` counts networks times samples."""

        def ask(dropped: Sequence[frozenset[Head]]) -> CandidateLogits:
            return answer(
                [self._candidates(dropped)],
                self.data,
                self.material.device,
                temperature=self.material.model.temperature,
                ood_score=self.ood_score,
                on_batch=lambda count: advance(len(dropped) * count),
            )

        return ask

    def _candidates(self, dropped: Sequence[frozenset[Head]]) -> CandidateNetworks:
        return CandidateNetworks(self.material.model, dropped, self.data.prompts)


def _line(turns: Sequence[Head], quality: Measure, members: int) -> str:
    """Returns the finding of a turn as a line of text."""
    detected = "" if quality.auroc is None else f"  AUROC {quality.auroc:.4f}"
    member, head = (len(turns) - 1) % members + 1, turns[-1]
    return f"member {member}  {head}  accuracy {quality.accuracy:.4f}{detected}  NLL {quality.nll:.4f}"
