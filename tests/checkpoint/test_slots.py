"""Parameters of the published networks, counted by the tensor-name table."""

from __future__ import annotations

from hydractl.checkpoint.heads import KeptHeads
from hydractl.checkpoint.slots import all_heads, parameter_count, slots, stored_shape
from hydractl.families.vit import VitConfig

SPEC = VitConfig(num_labels=1000).spec()


def parameters(heads: KeptHeads, separate: tuple[str, ...] = ()) -> int:
    return parameter_count(
        {name: stored_shape(slot, SPEC, heads, slot.group not in separate) for name, slot in slots(SPEC).items()}
    )


def keeping(count: int, members: int) -> KeptHeads:
    return {"vision": (tuple(tuple(range(m, m + count)) for m in range(members)),) * 12}


def test_vit_b_16_as_published() -> None:
    assert parameters(all_heads(SPEC)) == 86_567_656
    assert parameters(keeping(8, 1)) == 77_121_256
    assert parameters(keeping(8, 3), separate=("attention", "classifier")) == 116_463_288
    assert parameters(keeping(12, 3), separate=tuple({slot.group for slot in slots(SPEC).values()})) == 3 * 86_567_656
