"""Ensembles trained from one dense network, which a Hydra is compared with.

Members share the network's weights, and each has a small change of its own to some of them (`Adapter`), which is
trained, stored and run as what it is. A row of `METHODS` is a way to make one; its fields are its options.

Source: [HE] C for what they are compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, get_args

from hydractl.bounds import WIDTH
from hydractl.errors import OptionError
from hydractl.options import Option, option

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from hydractl.checkpoint.contents import Checkpoint
    from hydractl.checkpoint.layout import Kept, KeptUnits
    from hydractl.checkpoint.spec import Adapter
    from hydractl.checkpoint.tensors import LazyTensor
    from hydractl.training.recipe import Recipe

Fold = Annotated[
    bool, Option("Give each member its own copy of all weights at the end, as unrelated networks have.", rare=True)
]


class Start(NamedTuple):
    """An adapter of every layer, and a function that draws its tensors `[M,...]` from their names and shapes.

    Without an adapter, members keep some `units` each.
    """

    adapter: Adapter | None = None
    draw: Callable[[str, tuple[int, ...]], Tensor] | None = None
    units: KeptUnits | None = None


@dataclass(frozen=True)
class LoraEnsemble:
    """LoRA-Ensemble: low-rank deltas B A of the maps that the recipe names; B starts at zero.

    Source: Muehlematter et al. 2024, arXiv 2405.14438.
    """

    name: ClassVar[str] = "lora-ensemble"
    help: ClassVar[str] = (
        "each member adds low-rank deltas to the attention of one frozen network and has a classifier of its own"
    )
    copied: ClassVar[tuple[str, ...]] = ("classifier",)  # the groups of tensors that are copied for each member
    # The groups that train, among those that the recipe trains; empty for all of them.
    trains: ClassVar[tuple[str, ...]] = ("adapter", "classifier")
    rank: int = option(4, "Rank of each member's deltas.", minimum=1, maximum=WIDTH, rare=True)
    alpha: float | None = option(
        None, "Multiply deltas by alpha / rank. Default: by 1.", minimum=0, maximum=WIDTH, rare=True
    )
    fold: Fold = False

    def start(self, checkpoint: Checkpoint, members: int, recipe: Recipe, generator: Generator) -> Start:
        """Returns the deltas before training."""
        import torch

        from hydractl.checkpoint.spec import Adapter

        def draw(name: str, shape: tuple[int, ...]) -> Tensor:
            if name.endswith(".lora_b"):
                return torch.zeros(shape, dtype=torch.float64)
            return torch.randn(shape, generator=generator, dtype=torch.float64) / max(shape[-1], 1) ** 0.5

        scale = 1.0 if self.alpha is None else self.alpha / self.rank
        return Start(Adapter("low-rank", recipe.lora_parts, size=self.rank, scale=scale), draw)


@dataclass(frozen=True)
class BatchEnsemble:
    """BatchEnsemble: factors of every linear map, drawn around one, which hardly change a network's function.

    Source: Wen et al. 2020, arXiv 2002.06715.
    """

    name: ClassVar[str] = "batch-ensemble"
    help: ClassVar[str] = "each member scales rows and columns of shared weights, and all train together"
    copied: ClassVar[tuple[str, ...]] = ()
    trains: ClassVar[tuple[str, ...]] = ()
    fold: Fold = False

    def start(self, checkpoint: Checkpoint, members: int, recipe: Recipe, generator: Generator) -> Start:
        """Returns the factors before training."""
        import torch

        from hydractl.checkpoint.slots import is_adapted, slots
        from hydractl.checkpoint.spec import AdaptedPart, Adapter

        def draw(name: str, shape: tuple[int, ...]) -> Tensor:
            return 1 + recipe.factor_width * torch.randn(shape, generator=generator, dtype=torch.float64)

        table = slots(checkpoint.spec).items()
        parts = tuple(
            part
            for part in get_args(AdaptedPart)
            if any(is_adapted(Adapter("rank-one", (part,)), name, slot) for name, slot in table)
        )
        return Start(Adapter("rank-one", parts), draw)


@dataclass(frozen=True)
class MaskEnsemble:
    """MaskEnsembles: every member keeps as many features of each MLP, different ones in each layer.

    Source: Durasov et al. 2021, arXiv 2012.08334.
    """

    name: ClassVar[str] = "mask-ensemble"
    help: ClassVar[str] = "each member keeps some of the MLPs' features, always the same, and all train together"
    copied: ClassVar[tuple[str, ...]] = ()
    trains: ClassVar[tuple[str, ...]] = ()
    mask_scale: float = option(
        1.5,
        "A larger scale leaves members fewer features in common; at 1 they keep every feature.",
        minimum=1,
        maximum=100,
        rare=True,
    )
    fold: ClassVar[bool] = False

    def start(self, checkpoint: Checkpoint, members: int, recipe: Recipe, generator: Generator) -> Start:
        """Returns the units that each member keeps."""
        from hydractl.checkpoint.layout import every_unit
        from hydractl.training.network import first_trained

        (tower,), first = checkpoint.spec.towers, first_trained(checkpoint.spec, recipe.freeze_below)
        layers: list[Kept] = []
        for layer, (kept,) in enumerate(every_unit(checkpoint.layout, checkpoint.spec, tower.name)):
            drawn = masks(len(kept), members, self.mask_scale, generator).tolist() if layer >= first else None
            layers.append(
                (kept,) * members if drawn is None else tuple(tuple(kept[i] for i in units) for units in drawn)
            )
        return Start(units={tower.name: tuple(layers)})


METHODS = (LoraEnsemble, BatchEnsemble, MaskEnsemble)
Method = LoraEnsemble | BatchEnsemble | MaskEnsemble


@dataclass(frozen=True)
class Ensemble:
    """The ensemble to make of one dense network: how, and of how many members."""

    method: Method
    members: int

    def to_json(self) -> dict[str, Any]:
        """Returns it as provenance has it, where every ensemble has the options of all."""
        unused = {"rank": 4, "alpha": None, "mask_scale": 1.5, "fold": False}
        return {"kind": self.method.name, "members": self.members, **unused, **asdict(self.method)}


def choose_ensemble(
    method: Method | None, members: int | None, joint: bool = False, apart: bool = False
) -> Ensemble | None:
    """Returns the ensemble to make of one network, if the options ask for one."""
    if joint and apart:
        raise OptionError("`joint` trains the members of a Hydra together, `apart` each on its own: choose one")
    if method is None:
        if members is not None:
            raise OptionError(f"`members` {members} has no effect without `method`: leave it out, or choose a `method`")
        return None
    if joint or apart:
        taken = "joint" if joint else "apart"
        raise OptionError(f"`{taken}` trains the members that a Hydra has, `method` makes new ones: choose one")
    if members is None:
        raise OptionError(f"`method` {method.name} needs the number of members: give it, for example `members` 3")
    return Ensemble(method, members)


def spread(checkpoint: Checkpoint, ensemble: Ensemble, recipe: Recipe, seed: int) -> Checkpoint:
    """Returns the checkpoint as M members that share all but what the method gives to each.

    Raises:
        OptionError: it has several members already, or no classifier, or the ensemble has fewer than two members.
    """
    import torch

    from hydractl.checkpoint.layout import stored_shapes, tidy
    from hydractl.checkpoint.slots import ADAPTER, slots
    from hydractl.checkpoint.tensors import in_memory
    from hydractl.training.network import first_trained
    from hydractl.training.trainset import MEMBERS, derived_seed

    _require_one_network(checkpoint, ensemble)
    generator = torch.Generator().manual_seed(derived_seed(seed, MEMBERS))
    method, members = ensemble.method, ensemble.members
    start = method.start(checkpoint, members, recipe, generator)
    first = first_trained(checkpoint.spec, recipe.freeze_below)
    spec = replace(checkpoint.spec, adapter=None if start.adapter is None else replace(start.adapter, first=first))
    table = slots(spec)
    copied = {name for name, slot in table.items() if slot.group in (ADAPTER, *method.copied)}
    layout = replace(checkpoint.layout.pick(spec, [0] * members), shared=frozenset(table) - copied)
    if start.units is not None:
        layout = replace(layout, units=tidy(start.units, spec))
    tensors, shapes = dict(checkpoint.tensors), stored_shapes(spec, layout)
    for name in table:
        if name not in copied:
            continue
        if name in checkpoint.tensors:
            tensors[name] = _copies(checkpoint.tensors[name], shapes[name])
        else:
            assert start.draw is not None
            weight = checkpoint.tensors[f"{name.rpartition('.')[0]}.weight"]
            tensors[name] = in_memory(start.draw(name, shapes[name]).to(weight.dtype))
    return checkpoint.with_layout(layout, spec, tensors)


def _require_one_network(checkpoint: Checkpoint, ensemble: Ensemble) -> None:
    name = ensemble.method.name
    if checkpoint.members > 1:
        raise OptionError(f"{checkpoint.name}: has {checkpoint.members} members: {name} starts from one network")
    if ensemble.members < 2:
        raise OptionError(f"`members` {ensemble.members}: expected 2 or more")
    from hydractl.tasks.all_tasks import find_task

    refusal = f"{checkpoint.name}: is a zero-shot model: {name} needs a classifier"
    find_task(checkpoint.spec.task).require_classifier(refusal)


def _copies(tensor: LazyTensor, shape: tuple[int, ...]) -> LazyTensor:
    import torch

    from hydractl.checkpoint.tensors import LazyTensor

    # An output bias has an axis of one member already.
    return LazyTensor(shape, tensor.dtype, lambda: torch.stack([tensor.load().reshape(shape[1:])] * shape[0]))


def features_kept(features: int, members: int, scale: float) -> int:
    """Returns how many features a member keeps so that all members together are expected to need every one."""
    expected = round(features / (scale * (1 - (1 - 1 / scale) ** members)))
    return min(features, max(expected, ceil(features / members)))


def masks(features: int, members: int, scale: float, generator: Generator) -> Tensor:
    """Returns the features that each member keeps, `[M,k]` int32, ascending; some member keeps each of them.

    As published, members draw from `scale` times as many places as they keep features, and a place that nobody drew
    is dropped. Draws are repeated until as many places are left as there are features.
    """
    import torch

    kept = features_kept(features, members, scale)
    places = max(features, round(kept * scale))
    while True:  # with thousands of features one draw in fifty fits
        drawn = torch.stack([torch.randperm(places, generator=generator)[:kept] for _ in range(members)])
        used, numbers = drawn.unique(return_inverse=True)
        if len(used) == features:
            return numbers.sort(1).values.to(torch.int32)
