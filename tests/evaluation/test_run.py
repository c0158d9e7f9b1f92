"""Of many calibration samples the features of an even spread are kept, whatever the order of batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from hydractl.errors import DataError
from hydractl.evaluation import run
from hydractl.evaluation.systems import AnsweredBatch


def batches(count: int, size: int = 4) -> Iterator[AnsweredBatch]:
    """Samples in random order, whose numbers all are their place in the set."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    for positions in order.split(size):
        at = positions[None, :, None].double()
        yield AnsweredBatch(at.expand(2, -1, 3), positions % 3, positions, at.expand(2, -1, 5))


@pytest.mark.parametrize(
    ("count", "kept"), [(9, range(9)), (10, range(10)), (25, [2, 4, 7, 9, 12, 14, 17, 19, 22, 24])]
)
def test_features_of_an_even_spread(count: int, kept: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MOST_FEATURES", 10)
    told: list[int] = []
    held = run.collect(batches(count), told.append, count)
    assert sum(told) == count
    np.testing.assert_array_equal(held.member_logits[0, :, 0], np.arange(count))
    np.testing.assert_array_equal(held.labels, np.arange(count) % 3)
    np.testing.assert_array_equal(held.kept, kept)
    assert held.features is not None and held.features.shape == (2, len(kept), 5)
    np.testing.assert_array_equal(held.features[1, :, 4], kept)


def test_nothing_to_calibrate_on() -> None:
    with pytest.raises(DataError, match="holds no samples"):
        run.collect(iter(()), lambda _: None, 0)
    unlabelled = AnsweredBatch(torch.zeros(1, 2, 3), None, torch.arange(2))
    with pytest.raises(DataError, match="has no labels"):
        run.collect(iter([unlabelled]), lambda _: None, 2)
