"""Each candidate's logits are those of transformers' model with that head's output columns zeroed."""

from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from examples.benchmarks.circuit_search import base_cost, candidate_cost
from hydractl.checkpoint.heads import Head, member_heads
from hydractl.circuit import replay as replay_module
from hydractl.circuit.replay import Replay
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import Hydra, from_checkpoint, without_heads
from tests.circuit.naive import Naive
from tests.conftest import build_reference
from tests.references import Reference


def replayed(model: Hydra, reference: Reference) -> dict[Head | None, torch.Tensor]:
    candidates = member_heads(model.heads, 0)
    inputs, prompts = dict(reference.inputs), ()
    if model.spec.task == "zero-shot":
        inputs = {"pixel_values": inputs["pixel_values"]}
        prompts = tuple(
            {name: tensor[part] for name, tensor in reference.inputs.items() if name != "pixel_values"}
            for part in (slice(0, 2), slice(2, None))
        )
    found: dict[Head | None, torch.Tensor] = {}
    with torch.inference_mode():
        for group, logits in Replay(model, candidates, prompts).logits(inputs):
            found |= dict(zip(group or (None,), logits, strict=True))
    assert found.keys() == {None, *candidates}
    return found


def test_equals_zeroed_columns(reference: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = from_checkpoint(read_checkpoint(reference.save(tmp_path)))
    naive = Naive(reference, model)
    gone = {head for head in naive.heads if head.layer == 1 or head.head == 1}
    # Candidates one by one and all together, of the whole network and of a pruned one.
    for dropped in (set[Head](), gone):
        found = []
        for group_numbers in (1, 2**20):
            monkeypatch.setitem(replay_module.GROUP_NUMBERS, "cpu", group_numbers)
            found.append(replayed(without_heads(model, dropped), reference))
        for head in found[0]:
            with naive.without(dropped | ({head} if head else set())):
                expected = reference.logits()
            for logits in found:
                assert_close(logits[head], expected, rtol=0, atol=1e-10)


def test_counted_cost_is_what_torch_counts(tmp_path: Path) -> None:
    reference = build_reference("vit")
    model = from_checkpoint(read_checkpoint(reference.save(tmp_path)))
    tower, batch = model.spec.towers[0], len(reference.inputs["pixel_values"])
    counts, tokens = [tower.heads] * tower.layers, tower.embeddings.tokens
    patches = tower.embeddings.patches * tower.width * 3 * 4 * 4
    classify = tower.width * model.spec.classes
    for candidates in ([], [Head("vision", 0, 1)], [Head("vision", 2, 3), Head("vision", 1, 0)]):
        # Not every version of torch counts the fused kernels.
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.inference_mode():
            list(Replay(model, candidates).logits(reference.inputs))
        expected = patches + base_cost(tower, counts, tokens) + classify
        expected += sum(candidate_cost(tower, counts, tokens, head.layer) + classify for head in candidates)
        assert counter.get_total_flops() == 2 * batch * expected
