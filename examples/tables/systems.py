"""Every system on one table, on the digits, CIFAR-10 or SST-2: a Hydra of three beside other ensembles.

    python tables/systems.py [digits|cifar10|sst2] [--quick] [--set ...]     in examples/; digits need `make digits`

Each member of each system trains alike, three copies of the network as a Deep Ensemble, the first of which is the
network trained longer. Packed-Ensembles and MIMO train from scratch, for longer, and need torch-uncertainty. What lies
in the output folder is not made again, so an interrupted run goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common import HERE, THREE, circuits, made, print_table, read_settings

import hydractl


@dataclass(frozen=True)
class Settings:
    output: Path = Path("build/systems")
    model: str = "{made}/vit"
    first: tuple[str, ...] = ()  # settings by which it learns the task first; none for a network that knows it
    train: str = "{made}/data/digits:train"
    recipe: str = str(HERE.parent / "digits.toml")
    set: tuple[str, ...] = ("lr=3e-4", "steps=300")  # settings of the recipe
    val_split: int = 0  # training samples to validate on
    precision: str = "no"
    search_id: str = "{made}/data/digits:validation"  # chooses heads, temperatures and OOD scores
    # The first searches circuits, all choose OOD scores; none: heads go at random.
    search_ood: tuple[str, ...] = ("{made}/data/near_search", "{made}/data/far_search")
    search_limit: int = 1000
    budget: int = 4
    test_id: str = "{made}/data/digits:test"
    test_ood: tuple[str, ...] = ("near/digits6and7={made}/data/near_test", "far/photo2={made}/data/far_test")
    keep: float = 0.878  # share of the weights that OBA leaves, as pruning heads does; 0: without OBA
    scratch: tuple[str, ...] = ("packed", "mimo")
    scratch_with: tuple[str, ...] = ("epochs=250", "pad=1", "no-flip")


DIGITS = Settings()
CIFAR10 = Settings(
    output=Path("build/cifar10"),
    model="nateraw/vit-base-patch16-224-cifar10",
    train="uoft-cs/cifar10:train",
    recipe=str(HERE / "cifar10.toml"),
    set=(),
    search_id="uoft-cs/cifar10:test%1/10",
    search_ood=(),
    budget=48,
    test_id="uoft-cs/cifar10:test%2-10/10",
    test_ood=("near/cifar100=uoft-cs/cifar100:test", "far/svhn=ufldl-stanford/svhn:cropped_digits:test"),
    keep=0,
    scratch_with=(),
)
SST2 = Settings(
    output=Path("build/sst2"),
    model="google-bert/bert-base-uncased",
    first=("lr=8e-6", "new_classifier=normal"),
    train="stanfordnlp/sst2:train[500:]",
    recipe="sst2",
    set=(),
    val_split=3000,
    search_id="stanfordnlp/sst2:train[:500]",
    search_ood=(),
    budget=72,
    test_id="stanfordnlp/sst2:validation",
    test_ood=("near/imdb=stanfordnlp/imdb:test", "far/trec=CogComp/trec:test"),
    keep=0,
    scratch=(),
)
QUICK = replace(DIGITS, set=("steps=2", "batch=4"), search_limit=20, budget=2, scratch=())
QUICK_TEXTS = replace(
    QUICK,
    model="{made}/bert",
    train="{made}/texts:train",
    first=SST2.first,
    recipe="sst2",
    val_split=4,
    search_id="{made}/texts:validation%1/2",
    search_ood=(),
    test_id="{made}/texts:validation%2/2",
    test_ood=("far/owls={made}/far.csv",),
    keep=0,
)
TABLES = {
    "digits": (DIGITS, QUICK),
    "cifar10": (CIFAR10, replace(QUICK, search_ood=(), keep=0)),
    "sst2": (SST2, QUICK_TEXTS),
}


def trained(s: Settings, name: str, model: Any, seed: int = 0, **options: Any) -> Path:
    """Returns one network or ensemble, trained as all are."""
    return made(
        s.output / f"{name}.safetensors", hydractl.finetune, model, train_data=s.train, recipe=s.recipe,
        val_split=s.val_split or None, precision=s.precision, seed=seed, resume=True, **{"settings": s.set, **options},
    )  # fmt: skip


def pruned(s: Settings, network: Any) -> list[Path]:
    """Returns three members without heads: by the circuits of three objectives, or at random."""
    ways: list[dict[str, Any]] = [{"method": "random", "seed": seed} for seed in THREE]
    if s.search_ood:
        searched = {"id_data": s.search_id, "ood_data": s.search_ood[0], "limit": s.search_limit, "budget": s.budget}
        ways = [{"method": "circuit", "circuit": one} for one in circuits(s.output, network, **searched)]
    files = [s.output / f"pruned{number}.safetensors" for number in THREE]
    return [made(file, hydractl.prune, network, budget=s.budget, **way) for file, way in zip(files, ways, strict=True)]


def from_elsewhere(s: Settings, network: Any) -> Iterator[tuple[str, str]]:
    """Yields what other programs train, as saved predictions."""
    data = ["--train", s.train, "--id", s.test_id, "--ood", *s.test_ood]
    if s.keep and not (s.output / "oba" / "predictions.json").exists():
        import oba

        steps = [f"--{one}" for one in s.set if one.startswith("steps=")]
        oba.main([str(network), str(s.output / "oba"), "--keep", str(s.keep), *steps, *data])
    for method in s.scratch:
        if not (s.output / method / "predictions.json").exists():
            import from_scratch

            from_scratch.main([method, str(s.output), *data, *(f"--{one}" for one in s.scratch_with)])
    for name in (*(["oba"] if s.keep else []), *s.scratch):
        yield name, f"predictions:{s.output / name}"


def main(s: Settings) -> None:
    network: Any = trained(s, "network", s.model, settings=(*s.set, *s.first)) if s.first else s.model
    copies = [trained(s, f"copy{seed}", network, seed) for seed in THREE]
    members = [trained(s, f"member{seed}", one, 3 + seed) for seed, one in enumerate(pruned(s, network))]
    fused = {
        "single": network,
        "tuned": copies[0],
        "hydra": made(s.output / "hydra.safetensors", hydractl.fuse, members),
        "deep-ensemble": made(s.output / "deep-ensemble.safetensors", hydractl.fuse, copies, separate="all"),
    }
    calibration = {"id_data": s.search_id, "limit": s.search_limit}
    systems = {
        **fused,
        "calibrated": made(s.output / "calibrated.safetensors", hydractl.calibrate, network, **calibration),
        "mc-dropout": f"{network},mc-dropout=10,p=0.1",
        "pruned": members[-1],
        **dict(from_elsewhere(s, network)),
    }
    print_table(systems, s.output, id_data=s.test_id, ood_data=s.test_ood)
    if s.search_ood:  # the same networks by the OOD scores that calibration stores in their files
        own = {
            name: made(
                s.output / "own" / f"{name}.safetensors",
                hydractl.calibrate,
                model,
                ood_data=s.search_ood,
                **calibration,
            )
            for name, model in fused.items()
        }
        print_table(own, s.output, "own", id_data=s.test_id, ood_data=s.test_ood, compare="deep-ensemble")


if __name__ == "__main__":
    main(read_settings(__doc__, TABLES))
