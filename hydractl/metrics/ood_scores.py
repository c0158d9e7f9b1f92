"""Scores of how far from the training distribution a sample looks: higher = more OOD, for all of them.

Some read the logits of the whole ensemble. Others read features and are fitted on ID samples: a detector for each
member on its own features, since a direction in one member's feature space means nothing in another's. The ensemble's
score is the mean over its detectors, so that an ensemble of copies scores as the network does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydractl.errors import DataError, OptionError

if TYPE_CHECKING:
    from hydractl.metrics.checks import FloatArray, IntArray, Logits
    from hydractl.metrics.table import PredictionTable


@dataclass(frozen=True, eq=False)
class Answers:
    """What an ensemble of M members says of n samples.

    Attributes:
        table: the per-sample quantities of its logits.
        member_logits: `[M,n,C]`, before the temperature.
        features: `[M,n,D']`, what each member's classifier reads; None where nothing asks for them.
    """

    table: PredictionTable
    member_logits: Logits
    temperature: float = 1.0
    features: Logits | None = None


@dataclass(frozen=True, eq=False)
class MemberSamples:
    """Labelled ID samples as one member sees them, in float64.

    Attributes:
        features: `[N,D']`.
        logits: `[N,C]`.
        labels: `[N]` in 0..C-1.
        affine: the weights `[C,D']` and biases `[C]` of its classifier, None where they are not known.
    """

    features: FloatArray
    logits: FloatArray
    labels: IntArray
    affine: tuple[FloatArray, FloatArray] | None = None

    def classifier(self) -> tuple[FloatArray, FloatArray]:
        """The weights `[C,D']` and biases `[C]` by which the member makes logits of features.

        Raises:
            DataError: they are not known.
        """
        if self.affine is None:
            raise DataError(
                "these predictions were saved without the classifier that the OOD score needs: add "
                "classifier.safetensors with its `weight` and `bias`, or choose another score"
            )
        return self.affine


#: From an ensemble's answers to a score for each sample, `[n]`.
Scorer = Callable[[Answers], "FloatArray"]
#: From one member's features `[n,D']` and logits `[n,C]`, both float64, to a score for each sample, `[n]`.
Detector = Callable[["FloatArray", "FloatArray"], "FloatArray"]


@dataclass(frozen=True)
class OodScore:
    """One way to tell OOD from ID samples; it has either `of_answers` or `fit`.

    Attributes:
        name: what options and reports call it.
        help: what it is, to stand after its name.
        source: who published it.
        of_answers: the score, where logits are all it takes.
        fit: makes a member's detector of ID samples, where it takes features.
        packages: those it takes that come with an extra.
    """

    name: str
    help: str
    source: str
    of_answers: Scorer | None = None
    fit: Callable[[MemberSamples], Detector] | None = None
    packages: tuple[str, ...] = ()

    @property
    def needs_features(self) -> bool:
        """Whether it takes features, and labelled ID samples to be fitted on."""
        return self.fit is not None


def _gen(answers: Answers) -> FloatArray:
    from hydractl.metrics.gen import generalised_entropy

    return generalised_entropy(answers)


def _mahalanobis(samples: MemberSamples) -> Detector:
    from hydractl.metrics.mahalanobis import fit_mahalanobis

    return fit_mahalanobis(samples)


def _vim(samples: MemberSamples) -> Detector:
    from hydractl.metrics.vim import fit_vim

    return fit_vim(samples)


def _knn(samples: MemberSamples) -> Detector:
    from hydractl.metrics.knn import fit_knn

    return fit_knn(samples)


def _react(samples: MemberSamples) -> Detector:
    from hydractl.metrics.react import fit_react

    return fit_react(samples)


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
        _gen,
    ),
    OodScore(
        "react",
        "free energy of the logits of features clipped at their 90th percentile, mean over members",
        "Sun et al. 2021",
        fit=_react,
    ),
    OodScore(
        "mahalanobis",
        "squared Mahalanobis distance of the features to the nearest class mean, mean over members",
        "Lee et al. 2018",
        fit=_mahalanobis,
    ),
    OodScore(
        "vim",
        "length of the features outside their principal space, as a logit, plus the free energy, mean over members",
        "Wang et al. 2022",
        fit=_vim,
    ),
    OodScore(
        "knn",
        "squared distance of unit-length features to the 50th nearest calibration sample, mean over members",
        "Sun et al. 2022",
        fit=_knn,
        packages=("sklearn",),
    ),
)


def find_ood_score(name: str) -> OodScore:
    """The score of that name.

    Raises:
        OptionError: there is none.
    """
    for score in OOD_SCORES:
        if score.name == name:
            return score
    raise OptionError(f"`ood_score` {name}: expected {', '.join(score.name for score in OOD_SCORES)}")


def fit_scorer(score: OodScore, members: Iterable[MemberSamples]) -> Scorer:
    """A score of features as a score of an ensemble's answers: the mean over the members' detectors.

    Args:
        score: one that needs features.
        members: the calibration samples as each of the M members sees them, taken one after the other.

    Raises:
        DataError: the samples are too few for this score, or lack what it needs.
    """
    import numpy as np

    from hydractl.metrics.probabilities import mean_over_members

    fit = score.fit
    assert fit is not None
    detectors = [fit(samples) for samples in members]

    def of_answers(answers: Answers) -> FloatArray:
        assert answers.features is not None
        read = zip(detectors, answers.features, answers.member_logits, strict=True)
        return mean_over_members(
            np.stack([detect(x.astype(np.float64), z.astype(np.float64)) for detect, x, z in read])
        )

    return of_answers
