from pathlib import Path

from hydractl.checkpoint.arithmetic import multiply_adds
from hydractl.checkpoint.heads import member_heads
from hydractl.families.load import read_checkpoint
from hydractl.selection.candidates import DENSE, Candidate, CandidateSet
from hydractl.selection.pool import Criteria, gather
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
