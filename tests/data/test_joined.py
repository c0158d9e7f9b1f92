"""Several data sets as one: the inputs of each, in order, whatever they are kept in."""

from __future__ import annotations

import numpy as np
import pytest

from hydractl.data.samples import Chained, join
from tests.training.conftest import image_samples, text_samples


def test_images_are_those_of_each_set_in_order() -> None:
    sets = [image_samples(3), image_samples(1, seed=1), image_samples(2, seed=2)]
    joined = join(sets)
    assert len(joined) == 6 and joined.labels is None
    expected = [np.asarray(image) for samples in sets for image in samples.inputs]
    assert all(np.array_equal(joined.inputs[i], image) for i, image in enumerate(expected))
    assert all(np.array_equal(one, image) for one, image in zip(joined.inputs[1:5], expected[1:5], strict=True))
    assert np.array_equal(joined.inputs[-1], expected[-1])
    assert joined.content_hashes().tolist() == [h for samples in sets for h in samples.content_hashes().tolist()]


def test_there_is_nothing_behind_the_last() -> None:
    with pytest.raises(IndexError):
        Chained([[1, 2], [3]], [2, 3])[3]


def test_texts_stay_a_list() -> None:
    joined = join([text_samples(2), text_samples(3, seed=1)])
    assert joined.inputs == [*text_samples(2).inputs, *text_samples(3, seed=1).inputs]
