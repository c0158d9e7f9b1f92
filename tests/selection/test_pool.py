from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hydractl.checkpoint.arithmetic import multiply_adds
from hydractl.checkpoint.heads import member_heads
from hydractl.errors import OptionError
from hydractl.families.load import read_checkpoint
from hydractl.inputs.members import existing_members
from hydractl.selection.candidates import DENSE, Candidate, CandidateSet
from hydractl.selection.pool import Criteria, gather
from hydractl.surgery.slicing import with_dtype
from tests.conftest import build_reference


def test_the_layout_of_members_is_that_of_their_fused_network(tmp_path: Path) -> None:
    network = read_checkpoint(build_reference("bert").save(tmp_path))
    heads = member_heads(network.heads, 0)
    last = [head for head in heads if head.layer > 0]
    some = [DENSE, Candidate("a", frozenset(last[:2])), Candidate("b", frozenset({last[0], last[-1]}))]
    candidates = gather(network, [CandidateSet(0, tuple(some))])
    for chosen in ([0], [1, 2], [0, 1, 2]):
        whole = candidates.fused(chosen)
        assert candidates.layout(chosen) == whole.layout
        assert candidates.parameters(chosen) == sum(tensor.load().numel() for tensor in whole.tensors.values())
        assert candidates.cost(chosen) == multiply_adds(whole.spec, whole.layout)


def test_both_limits_hold(tmp_path: Path) -> None:
    network = read_checkpoint(build_reference("bert").save(tmp_path))
    one = Candidate("a", frozenset(member_heads(network.heads, 0)[:1]))
    candidates = gather(network, [CandidateSet(0, (DENSE, one))])
    ratio = candidates.parameters([0, 1]) / candidates.parameters([0])
    assert 1 < ratio < candidates.cost([0, 1]) / candidates.cost([0])
    assert Criteria((1, 2), parameters=ratio).allows(candidates, [0, 1])
    assert not Criteria((1, 2), parameters=0.999 * ratio).allows(candidates, [0, 1])
    assert not Criteria((1, 2), multiply_adds=ratio, parameters=ratio).allows(candidates, [0, 1])


def test_files_are_measured_only_on_inputs_and_in_numbers_like_the_networks(tmp_path: Path) -> None:
    build_reference("vit").save(tmp_path)
    network = read_checkpoint(tmp_path)
    odd = replace(network, preprocessing={"preprocessor_config.json": {"image_mean": [0.1] * 3}})
    for member, message in ((odd, "prepares inputs"), (with_dtype(network, torch.float16), "float16, .* `budget` 0")):
        with pytest.raises(OptionError, match=message):
            existing_members([member], network)
    assert existing_members([network], network) == [network]
