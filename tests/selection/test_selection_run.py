from itertools import accumulate
from pathlib import Path
from random import Random

import pytest
import torch
from torch.testing import assert_close

import hydractl
from hydractl.checkpoint.heads import Head, member_heads
from hydractl.model.fast.optimize import FastLayer
from hydractl.model.hydra import Hydra
from hydractl.selection.selection_run import CandidateNetworks
from tests.circuit.naive import Naive
from tests.conftest import build_reference
from tests.references import family_variants


def drawn(model: Hydra, count: int) -> list[frozenset[Head]]:
    """Nested sets as of a circuit, some at random, none, and all heads of a layer."""
    random, heads = Random(0), member_heads(model.heads, 0)
    order = random.sample(heads, len(heads))
    nested = [frozenset(part) for part in accumulate(([head] for head in order[:count]), lambda a, b: [*a, *b])]
    layer = frozenset(head for head in heads if (head.tower, head.layer) == (heads[0].tower, 1))
    return [frozenset(), *nested, *(frozenset(random.sample(heads, 3)) for _ in range(3)), layer]


@pytest.mark.parametrize("family", family_variants())
def test_each_candidate_answers_as_their_forward_with_its_heads_off(family: str, tmp_path: Path) -> None:
    reference = build_reference(family)
    model = hydractl.load(reference.save(tmp_path), dtype=torch.float64)
    dropped = drawn(model, 4)
    prompts = []
    inputs = dict(reference.inputs)
    if model.spec.task == "zero-shot":
        text = {name: inputs.pop(name) for name in ("input_ids", "attention_mask") if name in inputs}
        prompts = [{name: tensor[:2] for name, tensor in text.items()}, {n: t[2:] for n, t in text.items()}]
    answers = CandidateNetworks(model, dropped, prompts).logits(inputs)
    naive = Naive(reference, model)
    for own, gone in zip(answers, dropped, strict=True):
        with naive.without(gone):
            assert_close(own, reference.logits(), rtol=0, atol=1e-10)


def test_a_prefix_that_candidates_share_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = build_reference("vit")
    model = hydractl.load(reference.save(tmp_path), dtype=torch.float64)
    dropped = drawn(model, 6)
    candidates = CandidateNetworks(model, dropped)
    completed, complete = [], FastLayer.complete
    monkeypatch.setattr(FastLayer, "complete", lambda *arguments: completed.append(1) or complete(*arguments))
    candidates.logits(reference.inputs)
    kept = {
        tuple(tuple(h for h in range(4) if Head("vision", layer, h) not in gone) for layer in range(depth + 1))
        for gone in dropped
        for depth in range(3)
    }
    assert len(completed) == len(kept) < 3 * len(dropped)
