"""Scores of how far from the training distribution a sample looks: higher = more OOD, for all of them.

Some read the logits of the whole ensemble. Others read features and are fitted on ID samples: a detector for each
member on its own features, since a direction in one member's feature space means nothing in another's. The ensemble's
score is the mean over its detectors, so that an ensemble of copies scores as the network does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.metrics.checks import FloatArray, Logits
    from hydractl.metrics.feature_scores import MemberSamples
    from hydractl.metrics.prediction_table import PredictionTable


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of an ensemble of M members to n samples."""

    table: PredictionTable  # the per-sample quantities of its logits
    member_logits: Logits  # `[M,n,C]`, before the temperature
    temperature: float = 1.0
    features: Logits | None = None  # `[M,n,D']`, what each member's classifier reads; None where nothing asks for them


BASELINE = "msp"  # what other scores are compared with
#: From an ensemble's answers to a score for each sample, `[n]`.
Scorer = Callable[[Answers], "FloatArray"]


@dataclass(frozen=True)
class OodScore:
    """One way to tell OOD from ID samples; it has either `of_answers` or `fit`."""

    name: str  # its name in options and reports
    help: str  # a description, to stand after the name
    source: str  # who published it
    of_answers: Scorer | None = None  # the score, if logits are all it takes
    # The name of the function in `hydractl.metrics.feature_scores` that fits it, if it takes features.
    fit: str | None = None

    @property
    def needs_features(self) -> bool:
        """True if it reads features, and is fitted on labelled ID samples."""
        return self.fit is not None


def generalised_entropy(answers: Answers) -> FloatArray:
    """Returns the generalised entropy of the mean probabilities, `[n]`."""
    import numpy as np
    import torch

    from hydractl.metrics.probabilities import mean_probabilities
    from hydractl.model.ood_head import generalised_entropy as entropy_of

    p = mean_probabilities(answers.member_logits, answers.temperature)
    return np.asarray(entropy_of(torch.from_numpy(p)).numpy())


OOD_SCORES = (
    OodScore(
        "msp",
        "minus the maximum softmax probability of the members' mean",
        "Hendrycks & Gimpel 2017",
        lambda answers: -answers.table.msp,
    ),
    OodScore(
        "entropy",
        "entropy of the members' mean probability, nats",
        "Lakshminarayanan et al. 2017",
        lambda answers: answers.table.entropy,
    ),
    OodScore(
        "mutual-information",
        "entropy of the mean less mean entropy of the members, nats; 0 for one member",
        "Depeweg et al. 2018",
        lambda answers: answers.table.mutual_information,
    ),
    OodScore(
        "max-logit",
        "minus the largest logit of the members' mean logits, before the temperature",
        "Hendrycks et al. 2022",
        lambda answers: -answers.table.max_logit,
    ),
    OodScore(
        "energy",
        "free energy -T logsumexp(z / T) of the members' mean logits",
        "Liu et al. 2020",
        lambda answers: answers.table.energy,
    ),
    OodScore(
        "gen",
        "generalised entropy of the members' mean probability over the 100 likeliest classes, exponent 0.1",
        "Liu et al. 2023",
        generalised_entropy,
    ),
    OodScore(
        "react",
        "free energy of the logits of features clipped at their 90th percentile, mean over members",
        "Sun et al. 2021",
        fit="fit_react",
    ),
    OodScore(
        "mahalanobis",
        "squared Mahalanobis distance of the features to the nearest class mean, mean over members",
        "Lee et al. 2018",
        fit="fit_mahalanobis",
    ),
    OodScore(
        "relative-mahalanobis",
        "Mahalanobis distance less that to all calibration samples as one class, mean over members",
        "Ren et al. 2021",
        fit="fit_relative_mahalanobis",
    ),
    OodScore(
        "vim",
        "length of the features outside their principal space, as a logit, plus the free energy, mean over members",
        "Wang et al. 2022",
        fit="fit_vim",
    ),
    OodScore(
        "knn",
        "squared distance of unit-length features to the 50th nearest calibration sample, mean over members",
        "Sun et al. 2022",
        fit="fit_knn",
    ),
    OodScore(
        "combined",
        "free energy plus Mahalanobis distance, each standardised on calibration samples, mean over members",
        "this project",
        fit="fit_combined",
    ),
)


#: The scores that a search can measure networks by.
SEARCH_SCORES = (BASELINE, *(score.name for score in OOD_SCORES if score.fit))


def find_ood_score(name: str) -> OodScore:
    """Returns the score of that name; raises OptionError if there is none."""
    for score in OOD_SCORES:
        if score.name == name:
            return score
    raise OptionError(f"`ood_score` {name}: expected {', '.join(score.name for score in OOD_SCORES)}")


def fit_scorer(score: OodScore, members: Iterable[MemberSamples]) -> Scorer:
    """Returns a score of features as a score of an ensemble's answers: the mean over the members' detectors.

    Args:
        members: the calibration samples as each of the M members sees them, taken one after the other.

    Raises:
        DataError: the samples are too few for this score, or lack what it needs.
    """
    from hydractl.metrics import feature_scores

    assert score.fit is not None
    fit = getattr(feature_scores, score.fit)
    state = feature_scores.stacked(fit(samples) for samples in members)
    return lambda answers: feature_scores.score_chunks(score.name, state, answers.features, answers.member_logits)
