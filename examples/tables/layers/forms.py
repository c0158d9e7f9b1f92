"""Forms of an OOD score over all layers: what is read, how Gaussians are fitted, how distances become one score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from features import Features
from sklearn.covariance import ledoit_wolf

FOLDS = 5
Array = np.ndarray


@dataclass(frozen=True)
class Form:
    """What the features are and how Gaussians are fitted to them."""

    tokens: str = "mean"  # or "first"
    unit: bool = True
    classes: str = "last"  # where class means stand: "last", "none" or "all"
    shrink: bool = True
    half: bool = False  # whether the statistics are kept in float16


class Gaussian(NamedTuple):
    """The means of classes, or one, `[K,D]`, and a factor `[D,D]` of the precision."""

    means: Array
    whiten: Array

    def distances(self, x: Array) -> Array:
        """Returns the squared distances `[N]` to the nearest mean."""
        away, means = x @ self.whiten, self.means @ self.whiten
        squares = (away**2).sum(1)[:, None] - 2 * away @ means.T + (means**2).sum(1)
        nearest: Array = squares.min(1)
        return nearest


def fit_gaussian(x: Array, labels: Array | None, form: Form) -> Gaussian:
    """Fits to features `[N,D]`; with labels, a mean for each class and the covariance within classes."""
    groups = np.zeros(len(x), int) if labels is None else np.unique(labels, return_inverse=True)[1]
    means = np.stack([x[groups == group].mean(0) for group in range(groups.max() + 1)])
    rest = x - means[groups]
    covariance = ledoit_wolf(rest, assume_centered=True)[0] if form.shrink else rest.T @ rest / len(rest)
    if form.shrink:
        constant = 1e-12 * np.eye(len(covariance))  # for a class token before the first layer, which never varies
        whiten = np.linalg.inv(np.linalg.cholesky(covariance + constant)).T
    else:  # with pytorch-ood's ridge; the embeddings' output of an image has no more dimensions than a patch
        values, vectors = np.linalg.eigh(covariance + 1e-6 / len(x) * np.eye(len(covariance)))
        whiten = vectors / np.sqrt(values.clip(1e-12 * values.max()))
    if form.half:
        means, whiten = (kept.astype(np.float16).astype(float) for kept in (means, whiten))
    return Gaussian(means, whiten)


def columns(features: Features, form: Form) -> list[Array]:
    """Returns what each Gaussian reads, `[N,D]` each: the embeddings' output, the layers', and the pooled feature."""
    hidden = features[form.tokens].astype(float)
    read = [*hidden.transpose(1, 0, 2), features["pooled"].astype(float)]
    return [x / np.linalg.norm(x, axis=1, keepdims=True) for x in read] if form.unit else read


def with_classes(form: Form, layer: int, count: int) -> bool:
    """Returns whether a layer's Gaussian has class means."""
    return form.classes == "all" or (form.classes == "last" and layer == count - 1)


def gaussians(read: list[Array], labels: Array, form: Form) -> list[Gaussian]:
    """Fits one to each of the columns."""
    count = len(read)
    return [fit_gaussian(x, labels if with_classes(form, k, count) else None, form) for k, x in enumerate(read)]


def distances(fitted: list[Gaussian], read: list[Array]) -> Array:
    """Returns the squared distances by layer, `[N,L+2]`."""
    return np.stack([gaussian.distances(x) for gaussian, x in zip(fitted, read, strict=True)], 1)


class Distances(NamedTuple):
    """Squared distances `[N,L+2]` of samples that the fit does not know."""

    held: Array  # the fit's own, each by the folds without it
    inside: Array
    outside: Mapping[str, Array]


def measure(fit: Features, inside: Features, outside: Mapping[str, Features], form: Form) -> Distances:
    """Fits a form, and measures everything."""
    read, labels = columns(fit, form), fit["labels"]
    folds = np.random.default_rng(0).permutation(len(labels)) % FOLDS
    held = np.empty((len(labels), len(read)))
    for fold in range(FOLDS):
        kept = folds != fold
        part = gaussians([x[kept] for x in read], labels[kept], form)
        held[~kept] = distances(part, [x[~kept] for x in read])
    fitted = gaussians(read, labels, form)
    others = {name: distances(fitted, columns(one, form)) for name, one in outside.items()}
    return Distances(held, distances(fitted, columns(inside, form)), others)


class Rule(NamedTuple):
    """How distances by layer become one score: which layers, and what is added up."""

    take: Callable[[int], list[int]]  # of the count of columns: the embeddings' output, L layers, the pooled feature
    each: str = "standard"  # "plain" distances, their "log", or logs in "standard" deviations of held-out samples


def layers(count: int) -> list[int]:
    return list(range(1, count))


#: The forms that are compared, by the names of the rows.
FORMS: dict[str, tuple[Form, Rule]] = {
    "baseline": (Form(), Rule(layers)),
    "sum of logarithms": (Form(), Rule(layers, "log")),
    "plain sum": (Form(), Rule(layers, "plain")),
    "not of unit length": (Form(unit=False), Rule(layers)),
    "not of unit length, sum of logarithms": (Form(unit=False), Rule(layers, "log")),
    "not of unit length, plain sum": (Form(unit=False), Rule(layers, "plain")),
    "embeddings' output too": (Form(), Rule(lambda count: list(range(count)))),
    "without the last hidden state": (Form(), Rule(lambda count: [*range(1, count - 2), count - 1])),
    "no pooled feature": (Form(), Rule(lambda count: list(range(1, count - 1)))),
    "every second layer": (Form(), Rule(lambda count: [*range(1, count - 1, 2), count - 1])),
    "one Gaussian everywhere": (Form(classes="none"), Rule(layers)),
    "one Gaussian everywhere, sum of logarithms": (Form(classes="none"), Rule(layers, "log")),
    "one Gaussian everywhere, plain sum": (Form(classes="none"), Rule(layers, "plain")),
    "one Gaussian everywhere, not of unit length, sum of logarithms":
        (Form(classes="none", unit=False), Rule(layers, "log")),
    "one Gaussian everywhere, not of unit length, plain sum": (Form(classes="none", unit=False), Rule(layers, "plain")),
    "class means everywhere": (Form(classes="all"), Rule(layers)),
    "class means everywhere, plain sum": (Form(classes="all"), Rule(layers, "plain")),
    "class means everywhere, not of unit length, plain sum":
        (Form(classes="all", unit=False), Rule(layers, "plain")),
    "first token": (Form(tokens="first"), Rule(layers)),
    "no shrinkage": (Form(shrink=False), Rule(layers)),
    "kept in float16": (Form(half=True), Rule(layers)),
    "largest layer": (Form(), Rule(layers, "largest")),
    "every second layer, one Gaussian everywhere":
        (Form(classes="none"), Rule(lambda count: [*range(1, count - 1, 2), count - 1])),
    "last layer (Mahalanobis++)": (Form(), Rule(lambda count: [count - 1])),
    "last layer (Mahalanobis)": (Form(unit=False), Rule(lambda count: [count - 1])),
    "last layer, one Gaussian": (Form(classes="none"), Rule(lambda count: [count - 1])),
}  # fmt: skip


Scores = tuple[Array, Array, Mapping[str, Array]]


def scores(found: Distances, rule: Rule) -> Scores:
    """Returns the scores of the held-out samples of the fit, of the ID samples and of each OOD set."""
    take = rule.take(found.held.shape[1])
    logs = np.log(found.held[:, take])
    middle, spread = logs.mean(0), logs.std(0)

    def score(by_layer: Array) -> Array:
        taken = by_layer[:, take]
        if rule.each == "plain":
            return taken.sum(1)
        if rule.each == "log":
            return np.log(taken).sum(1)
        standard = (np.log(taken) - middle) / spread
        return standard.max(1) if rule.each == "largest" else standard.sum(1)

    return score(found.held), score(found.inside), {name: score(one) for name, one in found.outside.items()}


class Weighted(NamedTuple):
    """How all layers, the last one and an answer's score are added up, each in deviations of held-out samples."""

    all: Rule | None = None
    last: float = 1.0
    answer: str = ""  # at a quarter


EVERY = Rule(lambda count: [*range(1, count - 2), count - 1])  # all but the last hidden state, which becomes the pooled
#: The last layer beside all others, by the names of the rows; classes in the last one are those that are predicted.
WEIGHTED: dict[str, Weighted] = {
    "last layer": Weighted(),
    "all layers": Weighted(EVERY, 0),
    **{f"all layers, last at {weight}": Weighted(EVERY, weight) for weight in (0.25, 0.5, 0.7, 1.0)},
    **{f"all layers, last at 0.5, a quarter of {name}": Weighted(EVERY, 0.5, name) for name in ("energy", "entropy")},
    "every second layer, last at 0.5":
        Weighted(Rule(lambda count: [*range(1, count - 2, 2), count - 1]), 0.5),
}  # fmt: skip


def weighted(fit: Features, inside: Features, outside: Mapping[str, Features]) -> dict[str, Scores]:
    """Returns the scores of every row of `WEIGHTED`, as `scores` returns them."""
    predicted = fit | {"labels": fit["logits"].argmax(1)}
    layers = measure(fit, inside, outside, Form(classes="none"))
    last = scores(measure(predicted, inside, outside, Form(unit=False)), Rule(lambda count: [count - 1]))
    answers = [answer_scores(features) for features in (fit, inside, *outside.values())]

    def added(form: Weighted) -> Scores:
        parts = [(form.last, _parts(last))]
        if form.all is not None:
            parts.append((1, _parts(scores(layers, form.all))))
        if form.answer:
            parts.append((0.25, [one[form.answer] for one in answers]))
        held, measured, *others = (
            sum(weight * (each[at] - each[0].mean()) / each[0].std() for weight, each in parts)
            for at in range(2 + len(outside))
        )
        return held, measured, dict(zip(outside, others, strict=True))

    return {name: added(form) for name, form in WEIGHTED.items()}


def _parts(found: Scores) -> list[Array]:
    return [found[0], found[1], *found[2].values()]


def answer_scores(features: Features) -> dict[str, Array]:
    """Returns the scores that logits alone give."""
    logits = features["logits"].astype(float)
    top = logits.max(1, keepdims=True)
    total = np.log(np.exp(logits - top).sum(1)) + top[:, 0]
    logs = logits - total[:, None]
    return {"MSP": -np.exp(logs.max(1)), "energy": -total, "entropy": -(np.exp(logs) * logs).sum(1)}


def typicalities(held: Array, found: Array) -> Array:
    """Returns by layer the share of held-out samples at least as far away, `[N,L+2]`."""
    above = [len(held) - np.searchsorted(np.sort(own), one) for own, one in zip(held.T, found.T, strict=True)]
    return (np.stack(above, 1) + 1) / (len(held) + 1)


def early_or_late(p: Array) -> Array:
    """Returns how much odder the first third of layers is than the last, `[N]`: above 0 says quality, below content."""
    logs = np.log(p[:, 1:])  # without the embeddings' output
    third = max(1, logs.shape[1] // 3)
    difference: Array = logs[:, -third:].mean(1) - logs[:, :third].mean(1)
    return difference
