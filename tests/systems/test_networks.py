from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertForSequenceClassification, ViTForImageClassification

import hydractl
from hydractl.data.batching import Batch
from hydractl.inference import member_answers
from hydractl.systems.networks import SeededDropout, with_dropout
from hydractl.systems.system import Dropout
from tests.cli.conftest import save_bert, save_vit

RATES = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
PASSES = 3


def seeded(seed: int) -> SeededDropout:
    return SeededDropout(torch.Generator().manual_seed(seed))


def ours(folder: Path, inputs: dict[str, Tensor]) -> Tensor:
    model = with_dropout(hydractl.load(folder, dtype=torch.float64), Dropout(PASSES), "m")
    batch = Batch(inputs, None, torch.arange(4))
    with seeded(7):
        return torch.cat([member_answers(model, batch).member_logits for _ in range(PASSES)])


@torch.no_grad()
def theirs(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    model.double().train()
    with seeded(7):
        return torch.stack([model(**inputs).logits for _ in range(PASSES)])


@pytest.mark.parametrize("kind", ["vision", "text"])
def test_equals_transformers_own(kind: str, tmp_path: Path) -> None:
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
    if kind == "vision":
        folder, model = save_vit(tmp_path / "vit", **RATES), ViTForImageClassification
        inputs = {"pixel_values": torch.randn(4, 3, 8, 8, dtype=torch.float64)}
    else:
        folder, model = save_bert(tmp_path / "bert"), BertForSequenceClassification  # its own rate is 0.1 throughout
        inputs = {"input_ids": torch.randint(2, 10, (4, 5)) * mask, "attention_mask": mask}
    expected = theirs(model.from_pretrained(folder, attn_implementation="eager"), inputs)
    # Their attention to images takes its softmax in float32 whatever the model's type.
    tolerance = 1e-8 if kind == "vision" else 1e-10
    torch.testing.assert_close(ours(folder, inputs), expected, rtol=0, atol=tolerance)
    assert not torch.equal(expected[0], expected[1])


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_mean_over_masks_is_the_input(rate: float) -> None:
    x = torch.full((100, 1000), 3.0, dtype=torch.float64)
    with seeded(0):
        dropped = F.dropout(x, rate)
        assert torch.equal(F.dropout(x, rate, training=False), x)
    assert dropped.unique().tolist() == [0.0, pytest.approx(3.0 / (1 - rate))]
    deviation = 3 * (rate / (1 - rate) / x.numel()) ** 0.5
    assert abs(dropped.mean().item() - 3) < 5 * deviation
