"""Says in a word in which layers an input is odd: its form shows in early layers, its content in late ones."""

from collections.abc import Sequence
from typing import Literal

Where = Literal["early", "late", "throughout"]
USUAL = 0.05
TIMES = 2  # how many times as many odd layers one half must have


def where_odd(profile: Sequence[float], below: float = USUAL) -> Where:
    """Returns where most odd layers lie: in one half, if it has twice as many as the other.

    Args:
        profile: typicality by layer, the first layer first, 0..1.
        below: the typicality from which a layer counts as usual.

    >>> where_odd([0.01, 0.02, 0.5, 0.6]), where_odd([0.01, 0.5, 0.03, 0.6])
    ('early', 'throughout')
    """
    half = len(profile) // 2
    early, late = (sum(share < below for share in part) for part in (profile[:half], profile[len(profile) - half :]))
    if early >= TIMES * late and early:
        return "early"
    return "late" if late >= TIMES * early and late else "throughout"
