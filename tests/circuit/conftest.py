"""Search data for the reference models: a few samples, batched as a search sees them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hydractl.circuit.objective import ScoringData
from hydractl.data.batching import Batch
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import Hydra, from_checkpoint
from tests.circuit.naive import Naive
from tests.conftest import build_reference
from tests.families.bert import WORDS
from tests.references import CLASSES, Reference

ID, OOD = 14, 11


@dataclass
class Case:
    """A reference model, ours of the same weights, and samples to search on."""

    reference: Reference
    model: Hydra
    id_inputs: dict[str, Tensor]
    labels: Tensor
    ood_inputs: dict[str, Tensor]
    prompts: dict[str, Tensor]

    def naive(self, kind: type[Naive] = Naive) -> Naive:
        return kind(self.reference, self.model, self.prompts)

    def data(self, batch_size: int = 100) -> ScoringData:
        prompts = (self.prompts,) if self.prompts else ()
        inside, outside = batches(self.id_inputs, self.labels, batch_size), batches(self.ood_inputs, None, batch_size)
        outside_samples = len(next(iter(self.ood_inputs.values())))
        return ScoringData(inside, len(self.labels), outside, outside_samples, prompts)


def batches(inputs: Mapping[str, Tensor], labels: Tensor | None, size: int) -> list[Batch]:
    """Batches from the last sample to the first; `words` among the inputs are no input of the network."""
    own = {name: tensor.flip(0) for name, tensor in inputs.items() if name != "words"}
    order = positions = torch.arange(len(next(iter(own.values())))).flip(0)
    words = inputs.get("words")
    if words is not None:
        words = words.clone()
        words[:, 0] = len(positions) - 1 - words[:, 0]
        order = words[:, 0].argsort(stable=True)
        words = words[order]
    return list(Batch(own, None if labels is None else labels[order], positions, words).parts(size))


def samples(name: str, count: int) -> dict[str, Tensor]:
    if name != "bert":
        return {"pixel_values": torch.randn(count, 3, 12, 12, dtype=torch.float64)}
    mask = (torch.arange(9) < torch.randint(3, 10, (count, 1))).long()
    return {"input_ids": torch.randint(1, WORDS["vocab_size"], (count, 9)), "attention_mask": mask}


def build_case(name: str, folder: Path) -> Case:
    reference = build_reference(name)
    model = from_checkpoint(read_checkpoint(reference.save(folder)))
    torch.manual_seed(1)
    id_inputs, ood_inputs = samples(name, ID), samples(name, OOD)
    labels = torch.randint(CLASSES, (ID,))
    prompts = {key: value for key, value in reference.inputs.items() if name == "clip" and key != "pixel_values"}
    return Case(reference, model, id_inputs, labels, ood_inputs, prompts)


@pytest.fixture
def vit(tmp_path: Path) -> Case:
    return build_case("vit", tmp_path)


@pytest.fixture(params=["vit", "bert", "clip"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return build_case(request.param, tmp_path)
