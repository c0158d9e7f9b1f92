"""Prunes as others do, before any training: Torch-Pruning's choice, and a mean-shift of what went; results/refit.md.

    python tables/refit_peers.py VIT --fit SOURCE --test SOURCE --output FOLDER

VIT is a folder of transformers. Each choice of heads or MLP units stands plain, with the mean of what went added to the
bias (as in Variance-Based Pruning), and refitted. Rows of Torch-Pruning need the package `torch-pruning`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from refit_study import Study, options
from torch import Tensor, nn
from transformers import ViTForImageClassification

import hydractl
from hydractl.checkpoint.contents import Checkpoint
from hydractl.checkpoint.heads import Head, Unit
from hydractl.checkpoint.layout import every_unit
from hydractl.checkpoint.tensors import LazyTensor
from hydractl.inference import load_to_compute
from hydractl.surgery.slicing import drop_heads, drop_units

CPU = torch.device("cpu")


def shifted(study: Study, pruned: Checkpoint) -> Checkpoint:
    """Returns a pruned network whose biases have what was lost in the mean over the tokens of the network's samples."""
    name, tensors = study.tower.name, dict(pruned.tensors)
    dense, thin = (load_to_compute(each, CPU, None).get_submodule(name) for each in (study.network, pruned))
    means: dict[str, Tensor] = {}
    maps = [(layer, part) for layer in range(study.tower.layers) for part in ("attention.o", "mlp.fc2")]

    def add(key: str, module: nn.Module, read: tuple[Tensor, ...]) -> None:
        means[key] = means.get(key, torch.zeros(())) + read[0].flatten(0, -2).sum(0)

    for layer, part in maps:
        dense.layers[layer].get_submodule(part).register_forward_pre_hook(partial(add, f"{layer}.{part}"))
    tokens = 0
    with torch.inference_mode():
        for batch in study.scoring:
            dense.forward_image(batch.inputs["pixel_values"])
            tokens += len(batch.positions) * study.tower.embeddings.tokens
    width = study.tower.head_width
    for layer, part in maps:
        heads, units = (
            pruned.heads[name][layer][0],
            every_unit(pruned.layout, pruned.spec, name)[layer][0],
        )
        kept = units if part == "mlp.fc2" else [head * width + place for head in heads for place in range(width)]
        mean = means[f"{layer}.{part}"] / tokens
        before, after = (tower.layers[layer].get_submodule(part).weight for tower in (dense, thin))
        key = f"{name}.layers.{layer}.{part}.bias"
        old = tensors[key]
        new = old.load().float() + (before @ mean - after @ mean[list(kept)]).view(old.shape)
        tensors[key] = LazyTensor(old.shape, old.kind, partial(Tensor.to, new.detach(), old.dtype))
    return replace(pruned, tensors=tensors)


def by_torch_pruning(study: Study, importance: str, heads: float, units: float) -> Checkpoint:
    """Returns our network without the heads and units that Torch-Pruning removes; it must answer as Torch-Pruning's."""
    import torch_pruning

    model = ViTForImageClassification.from_pretrained(study.given.network, dtype=torch.float32).eval()
    layers = model.vit.layers
    original = [
        (layer.attention.q_proj.weight.detach().clone(), layer.mlp.fc1.weight.detach().clone()) for layer in layers
    ]
    ends = [module for layer in layers for module in (layer.attention.o_proj, layer.mlp.fc2)]
    first = study.scoring[0].inputs
    options: dict[str, Any] = {"prune_num_heads": True, "prune_head_dims": False, "head_pruning_ratio": heads}
    attention = [
        module
        for layer in layers
        for module in (layer.attention.q_proj, layer.attention.k_proj, layer.attention.v_proj)
    ]
    kept = ([] if heads else attention) + ([] if units else [layer.mlp.fc1 for layer in layers])
    pruner = torch_pruning.pruner.BasePruner(
        model, {"pixel_values": first["pixel_values"][:2]}, getattr(torch_pruning.importance, importance)(),
        pruning_ratio=units or 0.5, ignored_layers=[model.classifier, *ends, *kept],
        num_heads=dict.fromkeys(attention, study.tower.heads), output_transform=lambda out: out.logits.sum(),
        **options,
    )  # fmt: skip
    if "Taylor" in importance:
        for batch in study.scoring:
            model(**batch.inputs, labels=batch.labels).loss.backward()
    pruner.step()
    lost_heads, lost_units = [], []
    for number, (layer, (q, fc1)) in enumerate(zip(layers, original, strict=True)):
        lost_heads += [
            Head("vision", number, row // study.tower.head_width)
            for row in lost(q, layer.attention.q_proj.weight)[:: study.tower.head_width]
        ]
        lost_units += [Unit("vision", number, row) for row in lost(fc1, layer.mlp.fc1.weight)]
    pruned = drop_units(drop_heads(study.network, lost_heads), lost_units)
    with torch.inference_mode():
        theirs = model(**first).logits
        ours = load_to_compute(pruned, CPU, None)(**first).member_logits[0]
    torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)
    return pruned


def lost(before: Tensor, after: Tensor) -> list[int]:
    """Returns the rows of a matrix that another does not have."""
    kept = {tuple(row.tolist()) for row in after}
    return [number for number, row in enumerate(before) if tuple(row.tolist()) not in kept]


def choices(study: Study) -> Mapping[str, Checkpoint]:
    """Returns the pruned networks: a third of the heads in every layer, or half of all MLP units."""
    tower, prune = study.tower, partial(hydractl.prune, study.network)
    scored = {"id_data": study.given.fit, "limit": study.given.inputs}
    budget, units = tower.layers * (tower.heads // 3), tower.layers * tower.mlp_width // 2
    chosen = {
        f"heads, random {seed}": prune(method="random", scope="layer", budget=budget, seed=seed) for seed in range(2)
    }
    chosen |= {
        "heads, deviation": prune(method="deviation", scope="layer", budget=budget, **scored),
        "units, deviation": prune(method="deviation", scope="layer", budget=0, units=units, **scored),
    }
    pruned = {name: each.checkpoint for name, each in chosen.items()}
    if find_spec("torch_pruning"):
        for importance in ("GroupMagnitudeImportance", "GroupTaylorImportance"):
            pruned[f"heads, {importance} of Torch-Pruning"] = by_torch_pruning(study, importance, 1 / 3, 0)
            pruned[f"units, {importance} of Torch-Pruning"] = by_torch_pruning(study, importance, 0, 0.5)
    return pruned


def main() -> None:
    study = Study(options(__doc__).parse_args())
    dense = study.measured([[study.answers_with_ood("network", lambda: study.network)]])
    print("| chosen | form | accuracy % | NLL | AUROC % |\n|---|---|---|---|---|")
    print(f"| network | | {dense.beside(dense)} |")
    for name, pruned in choices(study).items():
        forms = {"plain": partial(study.formed, pruned, "plain"), "mean shift": partial(shifted, study, pruned)}
        for form, make in {**forms, "refitted": partial(study.refitted, pruned)}.items():
            measured = study.measured([[study.answers_with_ood(f"{name}-{form}", make)]])
            print(f"| {name} | {form} | {measured.beside(dense)} |", flush=True)


if __name__ == "__main__":
    main()
