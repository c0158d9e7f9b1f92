"""Principal components equal those of a singular value decomposition."""

from __future__ import annotations

import numpy as np

from hydractl.report.heads import project


def test_projection_is_on_the_principal_components_of_both_sets() -> None:
    generator = np.random.default_rng(0)
    inside, outside = generator.normal(size=(30, 5)), generator.normal(2.0, 1.0, size=(20, 5))
    found = project("head", inside, outside)
    both = np.concatenate([inside, outside])
    centred = both - both.mean(0)
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    expected = centred @ axes[:2].T
    points = np.concatenate([found.inside, found.outside])
    signs = np.sign((points * expected).sum(0))
    np.testing.assert_allclose(points, expected * signs, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.shares, (values**2 / (values**2).sum())[:2], rtol=0, atol=1e-12)
    assert (len(found.inside), len(found.outside)) == (30, 20)


def test_a_head_of_width_one_lies_on_a_line() -> None:
    found = project("head", np.array([[0.0], [2.0]]), np.array([[4.0]]))
    np.testing.assert_allclose(np.abs(found.inside - found.outside), [[4, 0], [2, 0]], rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.shares, [1, 0], rtol=0, atol=1e-12)
