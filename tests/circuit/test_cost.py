"""What a progress bar expects of a search is what the search does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hydractl.checkpoint.heads import Head
from hydractl.circuit import cost, pace
from hydractl.circuit.cost import round_cost, search_cost, seconds_of
from hydractl.circuit.data import ScoringData
from hydractl.circuit.modes import Exact, HeadMap, Mode, Screened, Shortlist
from hydractl.circuit.objective import Measure
from hydractl.circuit.ranking import Ranking, Search, Step
from hydractl.circuit.replay_cost import base_cost, candidate_costs, tokens_of
from hydractl.data.batching import Batch
from hydractl.model.hydra import Hydra
from tests.circuit.conftest import build_case


def test_the_cost_left_of_each_search(tmp_path: Path) -> None:
    model = build_case("vit", tmp_path).model
    heads = tuple(Head("vision", layer, head) for layer in range(3) for head in range(4))
    costs = candidate_costs(model.spec, model.heads, heads)
    whole = sum(costs.values())

    def rounds(mode: Mode) -> list[float]:
        search = Search(heads, 4, mode)
        return [search_cost(model.spec, model.heads, search, done) for done in range(4)]

    def once(done: int) -> float:
        return round_cost(model.spec, model.heads, Search(heads, 4, Exact()), done)

    assert once(0) == pytest.approx(whole)
    assert rounds(Exact()) == pytest.approx([sum(map(once, range(done, 4))) for done in range(4)])
    assert rounds(Exact(heads_per_step=3))[0] == pytest.approx(once(0) + once(3))
    assert rounds(Screened())[0] == pytest.approx(rounds(Exact())[0] + whole)
    listed = once(1) * 3 / 11 + once(2) * 3 / 10 + once(3) * 3 / 9
    assert rounds(Shortlist(shortlist=3)) == pytest.approx(
        [whole + listed, listed, listed - once(1) * 3 / 11, once(3) * 3 / 9]
    )
    # Layer 0 gives up two heads, 1 and 2 one each: each head is measured once, in a network a little smaller.
    layered = rounds(HeadMap())[0]
    assert whole * 8 / 12 < layered < whole


def test_a_search_takes_its_candidates_and_the_network_itself_in_every_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = build_case("vit", tmp_path)
    model, data, tower = case.model, case.data(), case.model.spec.towers[0]
    base = base_cost(tower, [4, 4, 4], tokens_of(tower))

    def replayed(model: Hydra, data: ScoringData, batches: Sequence[Batch], heads: Sequence[Head]) -> float:
        """A second for a multiply-add of an ID sample, and two for one of an OOD sample."""
        work = base + sum(candidate_costs(model.spec, model.heads, heads).values())
        return work if batches is data.id else 2 * work

    monkeypatch.setattr(cost, "replay_seconds", replayed)
    search = Search(tuple(Head("vision", layer, head) for layer in range(3) for head in range(4)), 4, Exact())
    step = Step(Head("vision", 0, 0), Measure(1, 2, 1, 2, 0.5))
    left = search_cost(model.spec, model.heads, search, 0) + search_cost(model.spec, model.heads, search, 1)
    seconds = seconds_of(model, data, search, [Ranking("acc"), Ranking("ood", steps=(step,))])
    assert seconds == pytest.approx((left + (4 + 3) * base) * (data.id_samples + 2 * data.ood_samples))


class Slow(list[Batch]):
    """Batches that take a second a sample to read the first time, and a minute more to open."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        super().__init__(batches)
        self.read: set[int] = set()
        self.clock = 0.0

    def __getitem__(self, index: int) -> Batch:  # type: ignore[override]
        batch = super().__getitem__(index)
        if index not in self.read:
            self.clock += len(batch.positions) + (0 if self.read else 60)
            self.read.add(index)
        return batch


def test_reading_is_timed_on_batches_that_nothing_has_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = build_case("vit", tmp_path).data(batch_size=3)
    inside, outside = Slow(whole.id), Slow(whole.ood)
    data = replace(whole, id=inside, ood=outside)
    monkeypatch.setattr(pace, "perf_counter", lambda: inside.clock + outside.clock)
    assert pace.reading_seconds(data, torch.device("cpu")) == whole.id_samples + whole.ood_samples
    assert pace.reading_seconds(replace(data, id=Slow(whole.id[:1]), ood=()), torch.device("cpu")) == 0.0


def test_texts_count_by_their_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch takes a second; the middle one of three has 4 tokens, and texts have 6 on average."""
    case = build_case("bert", tmp_path)
    shapes = [(2, 9), (2, 4), (1, 4)]
    batches = [Batch({"input_ids": torch.ones(shape).long()}, None, torch.arange(shape[0])) for shape in shapes]
    ticks = iter(range(100))
    monkeypatch.setattr(pace, "perf_counter", lambda: next(ticks))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert pace.replay_seconds(case.model, case.data(), batches, ()) == pytest.approx(6 / 4 / 2)
