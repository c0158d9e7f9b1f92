"""Members that lose heads without training: plain, and refitted in several forms; results/refit.md.

    python tables/refit.py NETWORK --fit SOURCE --test SOURCE [--heads 4,12] [--scope layer] [--forms]

Three members draw heads by seeds 0, 1 and 2. The temperature is fitted on one half of the test images, drawn at random,
NLL is of the other half, accuracy of all. `--forms` adds fewer inputs, other ridges, and the second maps of all MLPs.
Prints Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

import hydractl
from hydractl.checkpoint.contents import Checkpoint
from hydractl.circuit.objective import Material
from hydractl.data.batching import Batch
from hydractl.data.open import open_samples
from hydractl.data.reading import Reading
from hydractl.inference import load_to_compute
from hydractl.inputs.models import as_member
from hydractl.metrics.scaling import fit_temperature
from hydractl.surgery.refit import Refitting, refit

FORMS = {
    "refitted": Refitting(),
    "refitted, and the second maps of all MLPs": Refitting(every_mlp=True),
    **{f"refitted, ridge {ridge:g}": Refitting(ridge=ridge) for ridge in (1e-4, 1e-3, 1e-1)},
}
FEWER = 5  # batches of 64, where fewer inputs are tried


def batches(network: Checkpoint, source: str, limit: int) -> list[Batch]:
    """Returns the samples of a source as the network takes them."""
    samples = open_samples(source, network.spec.modality, Reading(limit=limit))
    model = load_to_compute(network, torch.device("cpu"), None)
    material = Material(network, model, samples, {}, reading=Reading(), labels=network.labels, prompts={})
    return list(material.batches(samples, 64))


@torch.inference_mode()
def logits(network: Checkpoint, images: Sequence[Batch]) -> NDArray[np.float64]:
    """Returns `[1,N,C]`."""
    model = load_to_compute(network, torch.device("cpu"), None).optimize_for_inference()
    return torch.cat([model(**batch.inputs).member_logits for batch in images], 1).double().numpy()


def cell(members: NDArray[np.float64], labels: NDArray[np.int64]) -> str:
    """Returns accuracy and NLL of members `[M,N,C]` together."""
    half, order = len(labels) // 2, np.random.default_rng(0).permutation(len(labels))  # data may be sorted by class
    members, labels = members[:, order], labels[order]
    temperature = fit_temperature(members[:, :half], labels[:half]).temperature
    log_p = logsumexp(log_softmax(members / temperature, -1), 0) - np.log(len(members))
    nll = -log_p[np.arange(half, len(labels)), labels[half:]].mean()
    return f"{100 * np.mean(log_p.argmax(-1) == labels):.1f}, {nll:.3f}"


def members_by_form(
    pruned: Sequence[Checkpoint], network: Checkpoint, fit: Sequence[Batch], forms: bool
) -> Mapping[str, Sequence[Checkpoint]]:
    """Returns the members plain and in each form."""
    target = load_to_compute(network, torch.device("cpu"), None)
    inputs = {"vision": fit}
    made = {
        name: [refit(target, member, inputs, how) for member in pruned]
        for name, how in list(FORMS.items())[: None if forms else 1]
    }
    if forms:
        fewer = {"vision": inputs["vision"][:FEWER]}
        made[f"refitted on {64 * FEWER} inputs"] = [refit(target, member, fewer, Refitting()) for member in pruned]
    return {"plain": pruned, **made}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("--fit", required=True, help="images to refit on")
    parser.add_argument("--test", required=True, help="labelled images to measure on")
    parser.add_argument("--heads", default="4,12", help="heads that each member loses")
    parser.add_argument("--scope", default="global", choices=("global", "layer"))
    parser.add_argument("--forms", action="store_true")
    parser.add_argument("--inputs", type=int, default=1000, help="images to refit on")
    parser.add_argument("--samples", type=int, default=2000, help="images to measure on")
    given = parser.parse_args()
    network = as_member(given.network)
    test, fit = batches(network, given.test, given.samples), batches(network, given.fit, given.inputs)
    labels = torch.cat([batch.labels for batch in test if batch.labels is not None]).numpy()
    dense = logits(network, test)
    print("| heads, form | each member: accuracy %, NLL | three | three and the network |\n|---|---|---|---|")
    print(f"| network | {cell(dense, labels)} | | |")
    for heads in map(int, given.heads.split(",")):
        how = {"method": "random", "budget": heads, "scope": given.scope}
        pruned = [hydractl.prune(network, seed=seed, **how).checkpoint for seed in range(3)]
        for form, members in members_by_form(pruned, network, fit, given.forms).items():
            each = [logits(member, test) for member in members]
            together = np.concatenate(each)
            alone = "; ".join(cell(one_member, labels) for one_member in each)
            both = cell(np.concatenate([together, dense]), labels)
            print(f"| {heads}, {form} | {alone} | {cell(together, labels)} | {both} |", flush=True)


if __name__ == "__main__":
    main()
