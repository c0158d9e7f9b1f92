"""Chooses heads and MLP units to drop for a budget: by a circuit, by scores, or at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple

from hydractl.checkpoint.arithmetic import multiply_adds, saved_without
from hydractl.checkpoint.heads import (
    Head,
    Piece,
    Unit,
    in_candidate_order,
    layer_budgets,
    member_heads,
    number_of_heads,
)
from hydractl.checkpoint.layout import member_units
from hydractl.errors import OptionError

if TYPE_CHECKING:
    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.circuit.objective import ScoringData
    from hydractl.model.hydra import Hydra

Scope = Literal["global", "layer"]


def heads_leaving(budget: int | str, checkpoint: Checkpoint) -> int:
    """Returns the number of heads in a budget.

    Raises:
        OptionError: neither a number nor a share, or more than there are.
    """
    return _leaving("budget", budget, len(member_heads(checkpoint.heads, 0)))


def units_leaving(budget: int | str, checkpoint: Checkpoint) -> int:
    """Returns the number of MLP units in a budget.

    Raises:
        OptionError: neither a number nor a share, or more than there are.
    """
    return _leaving("units", budget, len(member_units(checkpoint.layout, checkpoint.spec, 0)))


def _leaving(option: str, budget: int | str, most: int) -> int:
    count = number_of_heads(budget, most)
    if count is None:
        raise OptionError(f"`{option}` {budget}: expected 0 to {most}, or a share as in 33%")
    return count


def by_ranking(ranking: Sequence[Head], budget: int, pool: int | None = None, seed: int = 0) -> list[Head]:
    """Returns the first `budget` heads of a circuit, or as many drawn at random from its first `pool` ([HE] B.5).

    Raises:
        OptionError: the ranking is shorter than the budget or the pool, or the pool smaller than the budget.
    """
    if pool is not None and pool < budget:
        raise OptionError(f"`pool` {pool} is smaller than `budget` {budget}: draw from more heads, or drop fewer")
    needed = budget if pool is None else pool
    if len(ranking) < needed:
        raise OptionError(
            f"the circuit ranks {len(ranking)} heads, but {needed} are needed: extract it with a larger budget"
        )
    if pool is None:
        return list(ranking[:budget])
    return in_candidate_order(Random(seed).sample(list(ranking[:pool]), budget))


def by_scores(scores: Mapping[Piece, float], budget: int, scope: Scope = "global") -> list[Piece]:
    """Returns the `budget` heads or units with the lowest scores, the first in candidate order among equals.

    Args:
        scores: higher = keep, of every head or unit that may be dropped.
        scope: one ranking over the whole model, or one per layer with the budget spread evenly over layers.
    """
    groups = _shares(list(scores), budget, scope)
    return [piece for pieces, share in groups for piece in sorted(pieces, key=scores.__getitem__)[:share]]


class _Priced(NamedTuple):
    piece: Head | Unit
    price: float  # its score per multiply-add
    saved: int


def by_price(
    checkpoint: Checkpoint, heads: Mapping[Head, float], units: Mapping[Unit, float], share: float, *, comparable: bool
) -> tuple[list[Head], list[Unit]]:
    """Returns the heads and MLP units with the lowest scores per multiply-add that leave a network a share of its own.

    The first in candidate order goes first among equals. Each is needed: the budget is exceeded with any one of them.

    Args:
        heads, units: scores of those that may be dropped, higher = keep.
        comparable: False divides scores by the mean score per multiply-add of their kind.

    Raises:
        OptionError: more is left without all of them.
    """
    total = multiply_adds(checkpoint.spec, checkpoint.layout)
    pieces = [*_priced(checkpoint, heads, comparable), *_priced(checkpoint, units, comparable)]
    over, gone = total - int(share * total), list[_Priced]()
    for priced in sorted(pieces, key=lambda priced: priced.price):
        if over > 0:
            gone.append(priced)
            over -= priced.saved
    if over > 0:
        least = share + over / total
        raise OptionError(f"`budget_macs` {share:g}x: {least:.3f}x are left without heads and MLP units: allow more")
    confirmed: list[Head | Unit] = []
    for priced in reversed(gone):
        if over + priced.saved <= 0:
            over += priced.saved
        else:
            confirmed.append(priced.piece)
    dropped = confirmed[::-1]
    return [each for each in dropped if isinstance(each, Head)], [each for each in dropped if isinstance(each, Unit)]


def _priced(checkpoint: Checkpoint, scores: Mapping[Piece, float], comparable: bool) -> list[_Priced]:
    """Returns heads or units with their prices."""
    saved: dict[str, int] = {}
    for piece in scores:
        if piece.tower not in saved:
            saved[piece.tower] = saved_without(checkpoint.spec, checkpoint.layout, piece)
    counting = [piece for piece in in_candidate_order(scores) if saved[piece.tower]]
    entries = [_Priced(piece, scores[piece] / saved[piece.tower], saved[piece.tower]) for piece in counting]
    mean = 1.0 if comparable else sum(entry.price for entry in entries) / max(len(entries), 1)
    return [entry._replace(price=entry.price / (mean or 1.0)) for entry in entries]


def dealt(scores: Mapping[Unit, float], dropped: Sequence[Unit], members: int) -> list[list[Unit]]:
    """Returns the units that each of several members drops, as many of each layer as one member would.

    All members keep the best half of what a member keeps; the others are dealt out by score, without overlap while
    they last.

    Args:
        scores: higher = keep, of every unit that may be dropped.
        dropped: those that one member would drop.
    """
    gone = set(dropped)
    by_member: list[list[Unit]] = [[] for _ in range(members)]
    layers: dict[tuple[str, int], list[Unit]] = {}
    for unit in sorted(in_candidate_order(scores), key=lambda unit: -scores[unit]):
        layers.setdefault(unit[:2], []).append(unit)
    for units in layers.values():
        keep = sum(unit not in gone for unit in units)
        common = keep // 2
        rest = units[common:]
        for member in range(members):
            hand = rest[member::members]
            extra = [*hand, *(unit for i, unit in enumerate(rest) if i % members != member)][: keep - common]
            kept = {*units[:common], *extra}
            by_member[member] += [unit for unit in units if unit not in kept]
    return by_member


def at_random(heads: Sequence[Head], budget: int, seed: int, scope: Scope = "global") -> list[Head]:
    """Draws `budget` of the heads uniformly, the same ones for the same seed."""
    random = Random(seed)
    groups = _shares(heads, budget, scope)
    return [head for group, share in groups for head in in_candidate_order(random.sample(group, share))]


def by_taylor(
    model: Hydra, data: ScoringData, heads: Sequence[Head], budget: int, scope: Scope = "layer"
) -> list[Head]:
    """Returns the heads with the lowest Taylor scores, first dropped first.

    In scope `layer`, scores are computed anew on the network that the layers before have left ([HE] D.1.1).

    Args:
        model: of one member, with all `heads`.
        heads: those to choose from.
        scope: an even share of each layer, scored without what lower layers have lost already; or the lowest scores
            of the whole network, all scored at once.

    Raises:
        DataError: samples without labels.
        OptionError: the budget is larger than the number of heads.
    """
    from hydractl.circuit.saliency import taylor_scores
    from hydractl.model.hydra import without_heads

    if scope == "global":
        return by_scores(taylor_scores(model, data, heads), budget, "global")
    dropped: list[Head] = []
    for candidates, share in _shares(heads, budget, "layer"):
        if share:
            scores = taylor_scores(without_heads(model, frozenset(dropped)), data, candidates)
            dropped += by_scores(scores, share)
    return dropped


def _shares(pieces: Sequence[Piece], budget: int, scope: Scope) -> list[tuple[list[Piece], int]]:
    """Returns groups in candidate order, the whole model or its layers, and how many each gives up."""
    if not 0 <= budget <= len(pieces):
        units = bool(pieces) and isinstance(pieces[0], Unit)
        name, what = ("units", "MLP units") if units else ("budget", "heads")
        raise OptionError(f"`{name}` {budget}: the model has {len(pieces)} {what} to drop: ask for fewer")
    order = in_candidate_order(pieces)
    if scope == "global":
        return [(order, budget)]
    shares = layer_budgets(order, budget).items()
    return [([piece for piece in order if piece[:2] == layer], share) for layer, share in shares]
