"""Searches go by each task's own measure, as scikit-learn and transformers' own forward give it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from scipy.special import expit, log_softmax, softmax
from sklearn.metrics import f1_score, log_loss, r2_score
from torch import Tensor

from hydractl.checkpoint.heads import member_heads
from hydractl.checkpoint.spec import SIGMOID
from hydractl.circuit.objective import ScoringData
from hydractl.circuit.ranking import Ranking, Search
from hydractl.circuit.search import ablate, extract_circuits
from hydractl.errors import DataError
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import Hydra, from_checkpoint, without_heads
from hydractl.tasks.numbers import Numbers
from hydractl.tasks.words import Words
from tests.circuit.conftest import ID, OOD, batches, samples
from tests.circuit.naive import Naive, algorithm_1, auroc
from tests.families.bert import text_model
from tests.families.token_classification import tagger
from tests.families.vit import image_model
from tests.references import CLASSES, Built, randomised


def f1(logits: np.ndarray, labels: np.ndarray) -> list[float]:
    rows = zip(labels, expit(logits) >= 0.5, strict=True)
    return [f1_score(own[None], found[None], average="samples", zero_division=1) for own, found in rows]


def shares(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return (1 - (logits - labels) ** 2 / labels.var(0)).mean(1)


def cosines(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return F.cosine_similarity(torch.from_numpy(found), torch.from_numpy(wanted)).numpy()


def by_sample(of: Callable[[np.ndarray, np.ndarray], Any], logits: Sequence[np.ndarray], labels: Any) -> list[Any]:
    return [of(*one) for one in zip(logits, labels, strict=True)]


@dataclass(frozen=True)
class Kind:
    """A task: a model of theirs, labels, and from logits and labels to qualities, losses and confidences by sample."""

    task: str
    build: Callable[[], Built]
    labels: Callable[[], Tensor]
    quality: Callable[[Any, Any], Any]
    loss: Callable[[Any, Any], Any]
    confidence: Callable[[Any], Any] | None = None


KINDS = (
    Kind(
        "multi-label-text-classification",
        partial(text_model, problem_type="multi_label_classification"),
        lambda: torch.randint(2, (ID, CLASSES)) * (torch.arange(ID) > 1)[:, None],  # two samples without labels
        f1,
        partial(by_sample, lambda logits, labels: log_loss(labels, expit(logits), labels=[0, 1])),
        lambda logits: np.maximum(expit(logits), expit(-logits)).prod(1),
    ),
    Kind(
        "image-regression",
        partial(image_model, problem_type="regression"),
        lambda: torch.randn(ID, CLASSES).double(),
        shares,
        lambda logits, labels: ((logits - labels) ** 2).mean(1),
    ),
    Kind(
        "text-probability",
        partial(text_model, num_labels=1, sentence_transformers={"activation_fn": SIGMOID}),
        lambda: torch.rand(ID, 1).double(),
        lambda logits, labels: shares(expit(logits), labels),
        lambda logits, labels: -(labels * np.log(expit(logits)) + (1 - labels) * np.log(expit(-logits))).mean(1),
    ),
    Kind(
        "token-classification",
        partial(tagger, text_model),
        lambda: torch.randint(CLASSES, (ID, 9)),
        partial(by_sample, lambda logits, labels: (logits.argmax(1) == labels).mean()),
        partial(by_sample, lambda logits, labels: -log_softmax(logits, 1)[range(len(labels)), labels].mean()),
        lambda logits: np.array([softmax(own, 1).max(1).min() for own in logits]),
    ),
    Kind(
        "text-embedding",
        lambda: (hf.BertModel(text_model()[0].config), text_model()[1]),
        lambda: torch.zeros(ID),  # those of the whole network take their place
        cosines,
        lambda found, wanted: 1 - cosines(found, wanted),
    ),
)


class NaiveTask(Naive):
    """Measured as the task is, with transformers' forward; qualities in millionths, as searches count them."""

    kind: Kind

    def answers(self, inputs: dict[str, Tensor]) -> Any:
        """Logits by sample, or those of each sample's words."""
        with torch.no_grad():
            output = self.model(**{name: x for name, x in inputs.items() if name != "words"})
        if "logits" not in output:
            mask = inputs["attention_mask"][..., None]
            return ((output.last_hidden_state * mask).sum(1) / mask.sum(1)).numpy()
        if "words" not in inputs:
            return output.logits.numpy()
        words = inputs["words"]
        return [row[words[words[:, 0] == at, 1]].numpy() for at, row in enumerate(output.logits)]

    def quality(self, inputs: dict[str, Tensor], labels: Any) -> float:
        return float(np.mean(np.rint(1e6 * np.asarray(self.kind.quality(self.answers(inputs), labels))) / 1e6))

    def measure(self, inputs: dict[str, Tensor], labels: Any, *ood: dict[str, Tensor]) -> tuple[float, float]:
        if self.kind.confidence is None:
            return self.quality(inputs, labels), 0.0
        inside, outside = (-self.kind.confidence(self.answers(one)) for one in (inputs, *ood))
        return self.quality(inputs, labels), auroc(inside, outside)


@dataclass
class Asked:
    """A model of a task and its samples, for our search and the naive one; `labels` are lists for words."""

    kind: Kind
    model: Hydra
    naive: NaiveTask
    inputs: dict[str, Tensor]
    labels: Any
    outside: dict[str, Tensor]
    given: Tensor  # the labels as batches have them

    def data(self, size: int = 100) -> ScoringData:
        outside = batches(self.outside, None, size) if self.kind.confidence else []
        variance = self.model.task.variance(self.given.numpy())
        ood = OOD if outside else 0
        return ScoringData(batches(self.inputs, self.given, size), ID, outside, ood, variance=variance)

    @property
    def objective(self) -> str:
        return "avg" if self.kind.confidence else "acc"

    def search(self, budget: int = 4, size: int = 100) -> Ranking:
        search = Search(tuple(member_heads(self.model.heads, 0)), budget)
        (found,) = extract_circuits(self.model, [self.data(size)], search, [Ranking(self.objective)])
        return found


def words_of(mask: Tensor) -> Tensor:
    """Every second token that counts begins a word, `[n,3]`."""
    return torch.tensor([
        (row, token, number)
        for row, length in enumerate(mask.sum(1).tolist())
        for number, token in enumerate(range(1, length, 2))
    ])  # fmt: skip


@pytest.fixture(params=KINDS, ids=lambda kind: kind.task)
def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Asked:
    kind: Kind = request.param
    torch.manual_seed(0)
    family = "vit" if kind.task.startswith("image") else "bert"
    reference = randomised(family, *kind.build())
    model = from_checkpoint(read_checkpoint(reference.save(tmp_path)))
    assert model.spec.task == kind.task
    inputs, outside, drawn = samples(family, ID), samples(family, OOD), kind.labels()
    naive = NaiveTask(reference, model)
    naive.kind = kind
    labels: Any = drawn.numpy()
    if isinstance(model.task, Words):
        inputs["words"], outside["words"] = (words_of(one["attention_mask"]) for one in (inputs, outside))
        rows = inputs["words"][:, 0]
        drawn = drawn[rows, inputs["words"][:, 1]]
        labels = [drawn[rows == at].numpy() for at in range(ID)]
    if model.task.taught_only:
        labels = naive.answers(inputs)
        drawn = torch.from_numpy(labels)
    return Asked(kind, model, naive, inputs, labels, outside, drawn)


def test_each_head_off_equals_their_forward(asked: Asked) -> None:
    pruned = {head for head in asked.naive.heads if head.layer == 1 and head.head > 1}
    for gone in (frozenset[Any](), frozenset(pruned)):
        network = without_heads(asked.model, gone)
        heads = [head for head in asked.naive.heads if head not in gone]
        for head, found in ablate(network, [asked.data(5)], heads).items():
            with asked.naive.without(gone | ({head} if head else set())):
                quality, detected = asked.naive.measure(asked.inputs, asked.labels, asked.outside)
                answers = asked.naive.answers(asked.inputs)
            assert found.accuracy == pytest.approx(quality, rel=0, abs=1e-12)
            assert found.nll == pytest.approx(np.mean(asked.kind.loss(answers, asked.labels)), rel=0, abs=1e-10)
            assert (found.auroc or 0.0) == pytest.approx(detected, rel=0, abs=1e-12)
    whole = ablate(asked.model, [asked.data()], [])[None]
    answers, labels = asked.naive.answers(asked.inputs), asked.labels
    if isinstance(asked.model.task, Numbers):
        values = expit(answers) if asked.model.task.sigmoid else answers
        assert whole.accuracy == pytest.approx(r2_score(labels, values), abs=1e-6)
    if asked.model.task.measured == "F1":
        chosen = expit(answers) >= 0.5
        assert whole.accuracy == pytest.approx(f1_score(labels, chosen, average="samples", zero_division=1), abs=1e-6)


def test_circuits_equal_algorithm_1(asked: Asked) -> None:
    found = asked.search()
    expected = algorithm_1(asked.naive, asked.objective, 4, (asked.inputs, asked.labels, asked.outside))
    assert [step.head for step in found.steps] == [head for head, *_ in expected]
    assert [step.measure.score(asked.objective) for step in found.steps] == pytest.approx(
        [score for _, score, *_ in expected], rel=0, abs=1e-12
    )
    again = [(step.head, step.measure.correct, step.measure.ordered) for step in asked.search(size=3).steps]
    assert again == [(step.head, step.measure.correct, step.measure.ordered) for step in found.steps]


@pytest.mark.parametrize("asked", [KINDS[3]], indirect=True)
def test_a_sentence_without_a_word_is_named(asked: Asked) -> None:
    asked.outside["words"] = asked.outside["words"][asked.outside["words"][:, 0] != 4]
    with pytest.raises(DataError, match="row 4: "):
        asked.search()
