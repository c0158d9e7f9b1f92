"""Members that lose heads and MLP units above a trunk, fused, beside their network trained as long; results/units.md.

    python tables/units.py [vit|vit-tiny] [--quick] [--set ...]     in examples/; the data must be there

Three members keep the best units in common and divide the others, and each loses heads of its own. `published` has no
trunk and whole MLPs. `near_imagenet.py` makes the near sets of `fit_ood` and `test_ood` from images of ImageNet. What
lies in the output folder is not made again, so an interrupted run goes on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common import HERE, THREE, made, made_each, print_table, read_settings

import hydractl


@dataclass(frozen=True)
class Settings:
    output: Path = Path("build/vit-units")
    network: str = "checkpoints/cifar10-vit"  # trained; its Deep Ensemble is three copies that train on
    pretrained: str = ""  # in its place a folder of timm, which is fine-tuned three times; these are the ensemble
    size: int = 96  # pixels of a side for the pre-trained; 0 for its own, and for texts
    first: tuple[str, ...] = ("lr=1e-4", "epochs=3")  # settings of its fine-tuning
    train: str = "uoft-cs/cifar10:train"
    recipe: str = str(HERE / "cifar10.toml")
    set: tuple[str, ...] = ("lr=3e-4", "batch=128", "label_smoothing=0", "steps=700")  # of every training after that
    joint: tuple[str, ...] = ()  # and of members that train fused
    precision: str = "no"
    save_every: int = 100
    score_id: str = "uoft-cs/cifar10:train%1/50"  # scores units
    fit_id: str = "uoft-cs/cifar10:test%2/5"  # fits temperatures and OOD scores
    fit_ood: str = "build/near/choose.parquet"
    test_id: str = "uoft-cs/cifar10:test%3-5/5"
    test_ood: tuple[str, ...] = (
        "near/imagenet=build/near/near.parquet", "near/cifar100=uoft-cs/cifar100:test",
        "far/svhn=ufldl-stanford/svhn:cropped_digits:test",
    )  # fmt: skip
    trunk: int = 3  # layers
    heads: int = 6  # that each member loses above the trunk, layer by layer
    units: int = 1253  # and MLP units
    published: int = 12  # heads that each member of `published` loses
    seed: int = 0  # of the members' heads, and of their order of training
    systems: tuple[str, ...] = (
        "network", "tuned", "taught", "soup", "units", "units-apart", "units-taught", "published", "deep-ensemble",
    )  # fmt: skip


VIT = Settings()
VIT_TINY = Settings(
    output=Path("build/vit-tiny"),
    pretrained="vit_tiny_patch16_224",
    recipe=str(HERE / "vit-tiny.toml"),
    set=("steps=1172",),
    joint=("lr=2e-4",),
    precision="bf16",
    trunk=6,
    units=2460,
    systems=(*VIT.systems, "units-pretrained", "units-soup"),
)
QUICK = replace(
    VIT,
    network="{made}/vit",
    size=32,
    first=("steps=2", "batch=4"),
    train="{made}/data/digits:train",
    set=("steps=2", "batch=4"),
    score_id="{made}/data/digits:train%1/50",
    fit_id="{made}/data/digits:validation%1/18",  # too few to tell guesses of two steps from answers
    fit_ood="{made}/data/near_search",
    test_id="{made}/data/digits:test",
    test_ood=("near/digits6and7={made}/data/near_test",),
    trunk=1,
    heads=1,
    units=12,
    published=2,
)
TABLES = {
    "vit": (VIT, QUICK),
    "vit-tiny": (VIT_TINY, replace(QUICK, pretrained="{made}/timm", systems=VIT_TINY.systems)),
}


class Systems:
    """Every system of the table, made when it is asked for; files it needs are made first."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.output = settings, settings.output

    def file(self, name: str) -> Path:
        return self.output / f"{name}.safetensors"

    def trained(self, name: str, model: Any, settings: tuple[str, ...] = (), **options: Any) -> Path:
        return made(self.file(name), hydractl.finetune, model, **self.training(settings), **options)

    def training(self, more: tuple[str, ...]) -> dict[str, Any]:
        s = self.settings
        return {
            "train_data": s.train, "recipe": s.recipe, "settings": (*s.set, *more), "precision": s.precision,
            "save_every": s.save_every, "resume": True,
        }  # fmt: skip

    def network(self, seed: int = 0) -> Path:
        """Returns the network, or one of several that were fine-tuned."""
        s = self.settings
        if not s.pretrained:
            return made(self.file("network"), hydractl.prune, s.network, method="random", budget=0)
        return self.fine_tuned(f"network{seed}", self.resized(), seed)

    def fine_tuned(self, name: str, model: Any, seed: int, **options: Any) -> Path:
        """Returns a pre-trained network, or a Hydra of it, that has learnt the classes."""
        training = self.training(())
        training["settings"] = self.settings.first
        return made(self.file(name), hydractl.finetune, model, seed=seed, new_classifier="zeros", **training, **options)

    def resized(self) -> Path:
        """Returns a folder with the pre-trained network, for images of another size."""
        if not self.settings.size:
            return Path(self.settings.pretrained)
        folder = self.output / f"pretrained{self.settings.size}"
        if not (folder / "config.json").exists():
            resize(Path(self.settings.pretrained), self.settings.size, folder)
        return folder

    def tuned(self, seed: int = 0) -> Path:
        return self.trained(f"tuned{seed}", self.network(), seed=seed)

    def taught(self) -> Path:
        return self.trained("taught", self.network(), teacher=self.deep_ensemble())

    def deep_ensemble(self) -> Path:
        one = self.network if self.settings.pretrained else self.tuned
        return made(self.file("deep-ensemble"), hydractl.fuse, [one(seed) for seed in THREE], separate="all")

    def soup(self) -> Path:
        """Returns the mean of the ensemble's networks."""
        return made(self.file("soup"), hydractl.fuse, [self.deep_ensemble()], soup=True)

    def without_units(self, name: str, network: Any, **how: Any) -> Path:
        """Returns the fused members before training; `how` says how their units are scored."""
        s, folder = self.settings, self.output / name
        thin = made_each(
            folder / "thin{member}.safetensors", "member", THREE, hydractl.prune, network, budget=0, units=s.units,
            members=3, trunk=s.trunk, **how,
        )  # fmt: skip
        return self.without_heads(name, thin, budget=s.heads, trunk=s.trunk)

    def without_heads(self, name: str, networks: list[Path], **options: Any) -> Path:
        """Returns the fused members, each of which loses heads of its own."""
        folder, first = self.output / name, 3 * self.settings.seed
        members = [
            made(
                folder / f"{member}.safetensors", hydractl.prune, network, method="random", scope="layer",
                seed=first + member, **options,
            )
            for member, network in enumerate(networks)
        ]  # fmt: skip
        return made(self.file(f"untrained-{name}"), hydractl.fuse, members)

    def untrained(self) -> Path:
        return self.without_units("units", self.network(), method="taylor", id_data=self.settings.score_id)

    def jointly(self, name: str, hydra: Path, **options: Any) -> Path:
        return self.trained(name, hydra, self.settings.joint, joint=True, seed=self.settings.seed, **options)

    def units(self) -> Path:
        return self.jointly("units", self.untrained())

    def units_taught(self) -> Path:
        return self.jointly("units-taught", self.untrained(), teacher=self.deep_ensemble())

    def units_apart(self) -> Path:
        """Returns members that each trained with a seed of its own, above a trunk that stays as it is."""
        s = self.settings
        members = made_each(
            self.output / "units" / "apart{member}.safetensors", "member", THREE, hydractl.finetune, self.untrained(),
            apart=True, freeze_below=s.trunk, seed=3 * s.seed, **self.training(s.joint),
        )  # fmt: skip
        return made(self.file("units-apart"), hydractl.fuse, members)

    def units_soup(self) -> Path:
        """Returns such a Hydra of the mean of the ensemble's networks."""
        scored = {"method": "taylor", "id_data": self.settings.score_id}
        return self.jointly("units-soup", self.without_units("soup", self.soup(), **scored))

    def units_pretrained(self) -> Path:
        """Returns such a Hydra of the pre-trained network, trained as each network of the ensemble."""
        untrained = self.without_units("pretrained", self.resized(), method="magnitude")
        return self.fine_tuned("units-pretrained", untrained, self.settings.seed, joint=True)

    def published(self) -> Path:
        untrained = self.without_heads("published", [self.network()] * 3, budget=self.settings.published)
        return self.jointly("published", untrained)


def resize(pretrained: Path, size: int, output: Path) -> None:
    """Writes a vision transformer of timm for images of another size, as a timm folder."""
    import timm
    from safetensors.torch import load_file, save_file
    from timm.models.vision_transformer import checkpoint_filter_fn

    config = json.loads((pretrained / "config.json").read_text())
    arguments = {**config.get("model_args", {}), "img_size": size}
    network = timm.create_model(config["architecture"], num_classes=config["num_classes"], **arguments)
    weights = {name: tensor.float() for name, tensor in load_file(pretrained / "model.safetensors").items()}
    network.load_state_dict(checkpoint_filter_fn(weights, network))  # resamples the positions
    # A crop of 1 shows the network the whole image.
    preprocessing = {**config["pretrained_cfg"], "input_size": [3, size, size], "crop_pct": 1.0}
    output.mkdir(parents=True, exist_ok=True)
    save_file(network.state_dict(), output / "model.safetensors", {"format": "pt"})
    changed = {**config, "model_args": arguments, "pretrained_cfg": preprocessing}
    (output / "config.json").write_text(json.dumps(changed))


def main(s: Settings) -> None:
    systems = Systems(s)
    calibrated = {
        name: made(
            systems.file(f"{name}-calibrated"), hydractl.calibrate, getattr(systems, name.replace("-", "_"))(),
            id_data=s.fit_id, ood_data=s.fit_ood, dtype="float32",
        )
        for name in s.systems
    }  # fmt: skip
    compare = "deep-ensemble" if "deep-ensemble" in calibrated else None
    print_table(calibrated, s.output, id_data=s.test_id, ood_data=s.test_ood, compare=compare, dtype="float32")


if __name__ == "__main__":
    main(read_settings(__doc__, TABLES))
