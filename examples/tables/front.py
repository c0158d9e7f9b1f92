"""Hydras that nothing trained, by what their members lose and what they cost; results/refit.md.

    python tables/front.py [--quick]     in examples/; the data must be there

Three members keep half of the MLP units above a trunk, or two thirds, or lose heads too; plain or refitted, with the
network as a fourth member or without. `ensemble` names the networks of a Deep Ensemble to compare with. Leaves
table.json, from which `results/front.py` draws the picture. An interrupted run goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from common import made_each, print_table, read_settings

import hydractl
from hydractl.families.load import read_checkpoint


@dataclass(frozen=True)
class Settings:
    output: Path = Path("build/front")
    network: str = "checkpoints/cifar10-vit"
    ensemble: tuple[str, ...] = ()
    score_id: str = "uoft-cs/cifar10:test%1/5"  # ranks units by their deviation, and refits; needs no labels
    fit_id: str = "uoft-cs/cifar10:test%2/5"  # fits temperatures
    test_id: str = "uoft-cs/cifar10:test%3-5/5"
    test_ood: tuple[str, ...] = (
        "near/cifar100=uoft-cs/cifar100:test", "far/svhn=ufldl-stanford/svhn:cropped_digits:test",
    )  # fmt: skip
    limit: int = 1000  # samples to rank and refit by
    trunks: tuple[int, ...] = (5, 4, 3)  # layers that members share
    shares: tuple[float, ...] = (0.5, 0.33)  # of the MLP units above the trunk that a member loses
    heads: int = 4  # that members lose in the last rows, above the second of the trunks


SETTINGS = Settings()
QUICK = replace(
    SETTINGS,
    network="{made}/vit",
    ensemble=("{made}/vit", "{made}/vit"),
    score_id="{made}/data/digits:train%1/50",
    fit_id="{made}/data/digits:validation",
    test_id="{made}/data/digits:test",
    test_ood=("near/digits6and7={made}/data/near_test",),
    limit=30,
    trunks=(2, 1),
    shares=(0.5,),
    heads=1,
)


def members(s: Settings, name: str, *, trunk: int, share: float, heads: int = 0, refits: bool = False) -> list[Path]:
    """Returns the files of three members above a trunk of so many layers."""
    tower, *_ = read_checkpoint(s.network).spec.towers
    lost = {"units": int(share * (tower.layers - trunk) * tower.mlp_width), "budget": heads, "trunk": trunk}
    data = {"id_data": s.score_id, "limit": s.limit} | ({"refit": s.score_id} if refits else {})
    options = {"method": "deviation", "scope": "layer", "members": 3} | lost | data
    files = s.output / f"{name}-{{member}}.safetensors"
    return made_each(files, "member", range(3), hydractl.prune, s.network, **options)


def calibrated(s: Settings, name: str, networks: Sequence[object]) -> Path:
    """Returns the file of networks fused and calibrated."""
    file = s.output / f"{name}.safetensors"
    if not file.exists():
        system = hydractl.fuse(networks, separate="all").checkpoint if len(networks) > 1 else networks[0]
        hydractl.calibrate(system, id_data=s.fit_id, output=file)
    return file


def main(s: Settings) -> None:
    systems = {"network": calibrated(s, "network", [s.network])}
    rows = [(trunk, share, 0) for trunk in s.trunks for share in s.shares] + [(s.trunks[1], s.shares[0], s.heads)]
    for trunk, share, heads in rows:
        for form in ("", "-refitted"):
            name = f"trunk{trunk}-units{share:.0%}{f'-heads{heads}' * bool(heads)}{form}".replace("%", "")
            kept = members(s, f"members/{name}", trunk=trunk, share=share, heads=heads, refits=bool(form))
            systems[name] = calibrated(s, name, kept)
            if not heads:
                beside = f"{name}-network"
                systems[beside] = calibrated(s, beside, [s.network, *kept])
    if s.ensemble:
        systems["ensemble"] = calibrated(s, "ensemble", s.ensemble)
    print_table(systems, s.output, id_data=s.test_id, ood_data=s.test_ood, ood_score="msp")


if __name__ == "__main__":
    main(read_settings(__doc__, {"cifar10": (SETTINGS, QUICK)}))
