"""Statistics that fits share: shrunk covariances, distances and lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Shrunk(NamedTuple):
    """A covariance (1 - s) S + s m I: that of N samples, S `[D,D]`, drawn to its mean variance m by a share s."""

    sample: NDArray[np.float64]
    share: float
    mean: float

    def matrix(self, scale: float = 1.0) -> NDArray[np.float64]:
        """Returns it, with S times a scale."""
        import numpy as np

        scaled = (1 - self.share) * scale * self.sample
        scaled[np.diag_indices_from(scaled)] += self.share * self.mean
        return scaled


def shrunk_covariance(centred: NDArray[np.float64]) -> Shrunk:
    """Returns the shrunk covariance of rows `[N,D]` with mean 0.

    The share s goes to 0 as samples grow. Without it, fits on some of the samples would be near singular as soon as
    these are about as many as the features, and distances of other samples far too long.

    Source: Ledoit & Wolf 2004, "A well-conditioned estimator for large-dimensional covariance matrices", section 3.
    """
    import numpy as np

    count, width = centred.shape
    covariance = centred.T @ centred / count
    mean = float(np.trace(covariance)) / width
    spread = np.square(covariance).sum() - width * mean**2  # |S - m I|^2
    lengths = np.square(centred).sum(axis=1)
    error = (lengths @ lengths / count - np.square(covariance).sum()) / count
    return Shrunk(covariance, float(min(error / spread, 1.0)) if spread > 0 else 1.0, mean)


def whitening(centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns V `[D,D]`, where V V^T is the inverse of the shrunk covariance of rows `[N,D]`."""
    return inverse_root(shrunk_covariance(centred).matrix())


def inverse_root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns V `[D,D]`, where V V^T is the inverse of a covariance; where nothing varies, the pseudo-inverse."""
    import numpy as np
    from scipy.linalg import cholesky, solve_triangular

    width = len(covariance)
    smallest = covariance.diagonal().max() * width * np.finfo(np.float64).eps
    try:
        lower = cholesky(covariance, lower=True)
    except np.linalg.LinAlgError:
        lower = np.zeros((1, 1))
    if np.square(lower.diagonal()).min() > smallest:
        return np.ascontiguousarray(solve_triangular(lower, np.eye(width), lower=True).T)
    variances, directions = np.linalg.eigh(covariance)
    varying = variances > max(variances[-1] * width * np.finfo(np.float64).eps, 0)
    return np.asarray(directions * np.where(varying, 1 / np.sqrt(np.where(varying, variances, 1)), 0))


def left_out_distances(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the squared distance `[N]` of each row `[N,D]` to the Gaussian of all others, by one factorisation.

    Leaving out row i changes S by a matrix of rank one; the share and the mean variance are those of all rows.

    Source: Sherman & Morrison 1950.
    """
    import numpy as np

    count = len(rows)
    centred = rows - rows.mean(axis=0)
    covariance = shrunk_covariance(centred)
    more = count / (count - 1)
    lengths = np.square(centred @ inverse_root(covariance.matrix(more))).sum(axis=-1)
    return np.asarray(more**2 * lengths / (1 - (1 - covariance.share) * more / (count - 1) * lengths))


def unit_length(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns vectors `[...,D]` at length 1; one of zeros stays."""
    import numpy as np

    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), np.finfo(np.float64).tiny))
