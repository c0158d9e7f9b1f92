"""Products by another library are torch's own up to rounding, in whatever shape they come."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from hydractl.checkpoint.heads import member_heads
from hydractl.circuit import products
from hydractl.circuit.replay import Replay
from hydractl.model.without import without_heads
from tests.circuit.conftest import build_case


@pytest.mark.parametrize("shape", [(1, 4, 9, 16), (3, 1, 1, 16), (2, 16), (1, 0, 9, 16)])
@pytest.mark.parametrize("biased", [False, True])
def test_equals_linear(shape: tuple[int, ...], biased: bool) -> None:
    x, weight, bias = torch.randn(shape), torch.randn(24, 16), torch.randn(24) if biased else None
    for given in (x, x.transpose(0, 1).contiguous().transpose(0, 1)):
        assert_close(products.product(given, weight, bias), F.linear(x, weight, bias), rtol=0, atol=1e-5)


def test_only_float32_goes_by_it() -> None:
    for dtype in (torch.float64, torch.bfloat16):
        x, weight = torch.randn(5, 16, dtype=dtype), torch.randn(24, 16, dtype=dtype)
        assert torch.equal(products.product(x, weight, None), F.linear(x, weight))


@pytest.mark.parametrize("name", ["vit", "bert", "clip"])
def test_float32_replays_agree_with_float64_whichever_library(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = build_case(name, tmp_path)
    # One layer has lost every head.
    gone = {head for head in member_heads(case.model.heads, 0) if head.layer == 1}
    wide = without_heads(case.model, gone)
    heads = member_heads(wide.heads, 0)[::2]
    expected = logits(Replay(wide, heads, case.data().prompts), case.id_inputs)
    narrow = without_heads(case.model, gone).float()
    inputs = {key: t.float() if t.is_floating_point() else t for key, t in case.id_inputs.items()}
    for library in (True, False):
        monkeypatch.setattr(products, "ONEDNN", library)
        found = logits(Replay(narrow, heads, case.data().prompts), inputs)
        assert_close(found, [part.float() for part in expected], rtol=0, atol=2e-5)


def logits(network: Replay, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    with torch.inference_mode():
        return [one for _, group in network.logits(inputs) for one in group]


def test_a_replay_leaves_the_model_as_it_is(tmp_path: Path) -> None:
    model = build_case("vit", tmp_path).model
    before = [type(module) for module in model.modules()]
    Replay(model, member_heads(model.heads, 0))
    assert [type(module) for module in model.modules()] == before
