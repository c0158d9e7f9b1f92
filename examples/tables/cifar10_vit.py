"""A ViT for CIFAR-10 trained from nothing, three times from one beginning, and the Hydra that `build` makes of it.

    python tables/cifar10_vit.py [--quick] [--train ...]     in examples/

The networks share their first steps, at a constant rate, and differ in the seed with which the rate falls to 0. The
first lies in checkpoints/cifar10-vit, all three are the Deep Ensemble of results/cifar10-vit.md. `--network
checkpoints/cifar10-vit` builds a Hydra of that instead, as in results/cifar10-build.md. An interrupted run goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from common import HERE, THREE, made, read_settings

import hydractl


@dataclass(frozen=True)
class Settings:
    output: Path = Path("build/cifar10-vit")
    network: str = ""  # one that is trained already; trained here unless given
    untrained: str = "cifar10"  # the network of vit_model.py to begin with
    train: str = "uoft-cs/cifar10:train%1-49/50"  # the rest is for validation
    beginning: tuple[str, ...] = ("steps=3500",)  # settings of cifar10-vit.toml
    end: tuple[str, ...] = ("steps=600", "schedule=linear", "warmup=0")
    member: tuple[str, ...] = ("steps=128",)  # of cifar10.toml, for members
    choose_id: str = "uoft-cs/cifar10:test%1-3/10"  # selects members, fits temperatures
    test_id: str = "uoft-cs/cifar10:test%4-10/10"
    test_ood: tuple[str, ...] = (
        "near/cifar100=uoft-cs/cifar100:test", "far/svhn=ufldl-stanford/svhn:cropped_digits:test",
    )  # fmt: skip
    budget_macs: str = ""  # "1.3x" makes a Hydra at that cost
    members: int = 3


CIFAR10 = Settings()
QUICK = replace(
    CIFAR10,
    untrained="digits",
    train="{made}/data/digits:train",
    beginning=("steps=100", "batch=32", "warmup=0", "flip=false", "pad_crop=0"),  # so that it does not guess
    end=("steps=2", "batch=4", "schedule=linear", "warmup=0"),
    member=("steps=2", "batch=4"),
    choose_id="{made}/data/digits:validation",
    test_id="{made}/data/digits:test",
    test_ood=("near/digits6and7={made}/data/near_test",),
)


def networks(s: Settings, untrained: Path) -> list[Path]:
    """Returns three networks that share their beginning."""
    training = {"train_data": s.train, "recipe": HERE / "cifar10-vit.toml", "resume": True}
    begun = made(s.output / "begun.safetensors", hydractl.finetune, untrained, settings=s.beginning, **training)
    files = [s.output / f"network{seed}.safetensors" for seed in THREE]
    return [
        made(file, hydractl.finetune, begun, settings=s.end, seed=seed, **training) for seed, file in enumerate(files)
    ]


def main(s: Settings) -> None:
    import vit_model  # `common` tells Python where it lies

    network = s.network
    if not network:
        folder = s.output / "untrained"
        vit_model.main(vit_model.NETWORKS[s.untrained], folder)
        network = str(networks(s, folder)[0])
    built = hydractl.build(
        network, id_data=s.choose_id, eval_data=s.test_id, eval_ood_data=s.test_ood, train_data=s.train,
        recipe=str(HERE / "cifar10.toml"), settings=s.member, budget_macs=s.budget_macs or None, members=s.members,
        dtype="float32", output=s.output / "built",
    )  # fmt: skip
    print("\n".join([*hydractl.report(s.output / "built" / "report" / "report.json").lines(), *built.lines()]))


if __name__ == "__main__":
    main(read_settings(__doc__, {"cifar10": (CIFAR10, QUICK)}))
