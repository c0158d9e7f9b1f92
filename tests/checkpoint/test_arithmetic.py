from collections.abc import Sequence
from pathlib import Path

from hydractl.checkpoint.arithmetic import multiply_adds
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.layout import Layout
from hydractl.checkpoint.slots import GROUPS, slots
from hydractl.families.load import read_checkpoint
from hydractl.systems.cost import counted_multiply_adds
from tests.references import Reference, family_variants


def test_equals_a_counted_forward_pass(family_reference: Reference, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(family_reference.save(tmp_path))
    # One kind of units with each of these; families take turns, so that all pairs are counted.
    turn = family_variants().index(family_reference.name)
    separations = [(), ("attention", "mlp"), ("norm", "classifier"), ("embeddings",), GROUPS]
    for number, separate in enumerate(separations, turn):
        check(checkpoint, separate, number % 3)


def check(checkpoint: Checkpoint, separate: Sequence[str], kind: int) -> None:
    spec = checkpoint.spec
    heads = {
        tower: tuple((layer[0][:1], layer[0], layer[0][1:]) if separate else layer for layer in layers)
        for tower, layers in checkpoint.heads.items()
    }
    own = {"attention", *separate} if separate else set()
    # The leading layer stays one for all where embeddings do.
    shared = frozenset(
        name
        for name, slot in slots(spec).items()
        if slot.group not in own or (slot.layer == 0 and "embeddings" not in own)
    )
    if separate and "embeddings" not in own:
        heads = {tower: (tuple([layers[0][1]] * 3), *layers[1:]) for tower, layers in heads.items()}
    members = len(next(iter(heads.values()))[0])
    kept = (None, ((0, 2, 5),) * members, tuple(tuple(range(m, 9)) for m in range(members)))[kind]
    # Members lack units of the last layer.
    units = {} if kept is None else {t.name: (*(None,) * (t.layers - 1), kept) for t in spec.towers}
    layout = Layout(heads, shared, units)
    assert multiply_adds(spec, layout) == counted_multiply_adds(spec, layout)
