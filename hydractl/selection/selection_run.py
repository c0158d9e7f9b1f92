"""The network and the samples that a selection measures, and the state that it keeps on disk meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hydractl.checkpoint.contents import identity
from hydractl.checkpoint.heads import Head, in_candidate_order
from hydractl.circuit.objective import Material, ScoringData
from hydractl.data.ranks import Ranks
from hydractl.errors import DataError
from hydractl.inference import load_checkpoint
from hydractl.selection.answers import Answering, Store, answer
from hydractl.selection.forward import CandidateNetworks, MemberNetworks
from hydractl.selection.greedy import CandidateLogits
from hydractl.selection.pool import CandidatePool
from hydractl.surgery.fusion import fuse
from hydractl.tasks.numbers import require_varied
from hydractl.watch import Watcher


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
    resume: bool = False
    force: bool = False
    kept: list[Store] = field(default_factory=list)

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
            "candidates": [list(map(list, in_candidate_order(candidate.dropped))) for candidate in pool.dropped],
            "files": [identity(member) for member in pool.files],
            **{name: self.options.get(name) for name in ("batch_size", "dtype", "template")},
        }
        folder = self.selection.with_name(f"{self.selection.name}.state")
        store = Store(folder, conditions, self.resume, self.force)
        self.kept.append(store)
        return store

    def answers(self, pool: CandidatePool) -> CandidateLogits:
        """Returns the logits of all candidates on all samples.

        Raises:
            DataError: data that cannot be read, or numbers that are all alike, before any state is begun.
        """
        require_varied(self.data.variance)
        networks: list[Answering] = [self._candidates([candidate.dropped for candidate in pool.dropped])]
        material, store = self.material, self.store(pool)
        if pool.files:
            joined = pool.files[0] if len(pool.files) == 1 else fuse(pool.files, ["all"])
            dtype = next(material.model.parameters()).dtype
            networks.append(MemberNetworks(load_checkpoint(joined, material.device, dtype)))
        with self.watch.progress("select", self.samples) as advance:
            temperature = material.model.temperature
            try:
                return answer(
                    networks,
                    self.data,
                    material.device,
                    task=material.model.task,
                    temperature=temperature,
                    store=store,
                    on_batch=advance,
                )
            except DataError:
                self.remove_state()  # the next attempt will ask for something else: nothing may be in its way
                raise

    def remove_state(self) -> None:
        """Removes what lies on disk, once the selection is written."""
        for kept in self.kept:
            kept.remove()

    def _candidates(self, dropped: Sequence[frozenset[Head]]) -> CandidateNetworks:
        return CandidateNetworks(self.material.model, dropped, self.data.prompts)
