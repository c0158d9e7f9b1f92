"""Algorithm 1 as printed against the exact search, side by side: wall-clock ratio, counted ratio, same choices or not.

    python circuit_search.py [STEPS] [SAMPLES]

A ViT of 12 layers x 12 heads with random weights and a small width. The naive search is transformers' own forward with
a candidate's columns of W_O zeroed, every candidate over every sample; both run on one thread.
"""

import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch
from transformers import ViTConfig, ViTForImageClassification

from hydractl.checkpoint.heads import Head, member_heads
from hydractl.checkpoint.spec import TowerSpec
from hydractl.circuit.cost import base_cost, candidate_cost, tokens_of, tower_cost
from hydractl.circuit.objective import measure
from hydractl.circuit.round import SearchData
from hydractl.circuit.search import Plan, Ranking, extract_circuits
from hydractl.data.batches import Batch
from hydractl.families.open import read_checkpoint
from hydractl.model.hydra import from_checkpoint

Plain = list[tuple[torch.Tensor, torch.Tensor | None]]  # images, and labels where they are ID
WIDTH, HEADS, LAYERS, CLASSES, BATCH = 192, 12, 12, 10, 16


def build() -> ViTForImageClassification:
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        image_size=112,
        patch_size=8,
        num_labels=CLASSES,
    )
    model = ViTForImageClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # or every head would matter alike
    return model


@torch.inference_mode()
def naive(model: ViTForImageClassification, batches: Plain, steps: int) -> list[Head]:
    """Algorithm 1 for the mean of accuracy and AUROC."""
    width = WIDTH // HEADS
    left = [Head("vision", layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    dropped = []

    def columns(head: Head) -> torch.Tensor:
        weight = model.vit.layers[head.layer].attention.o_proj.weight
        return weight[:, head.head * width : (head.head + 1) * width]

    for _ in range(steps):
        ranks = []
        for head in left:
            kept = columns(head).clone()
            columns(head).zero_()
            ranks.append(score(model, batches))
            columns(head).copy_(kept)
        best = left.pop(int(np.argmax(ranks)))
        columns(best).zero_()
        dropped.append(best)
    return dropped


def score(model: ViTForImageClassification, batches: Plain) -> int:
    correct, msp = [], {True: [], False: []}
    for pixels, labels in batches:
        logits = model(pixel_values=pixels).logits.double()
        msp[labels is None].append(logits.softmax(-1).amax(-1))
        if labels is not None:
            correct.append(logits.argmax(-1) == labels)
    right = torch.cat(correct).numpy()
    found = measure(right, torch.cat(msp[False]).numpy(), torch.cat(msp[True]).numpy(), np.zeros(len(right)))
    return found.rank("avg")


def timed(run: Callable[[], list[Head]]) -> tuple[list[Head], float]:
    start = time.perf_counter()
    return run(), time.perf_counter() - start


def counted_ratio(dropped: list[Head], tower: TowerSpec) -> float:
    """Multiply-adds of the naive search over those of the exact one, for the choices made."""
    tokens, printed, exact = tokens_of(tower), 0.0, 0.0
    counts = [HEADS] * LAYERS
    left = {Head("vision", layer, head) for layer in range(LAYERS) for head in range(HEADS)}
    for head in dropped:
        printed += len(left) * tower_cost(tower, [HEADS] * LAYERS, tokens)
        exact += base_cost(tower, counts, tokens)
        exact += sum(candidate_cost(tower, counts, tokens, one.layer) for one in left)
        counts[head.layer] -= 1
        left.remove(head)
    return printed / exact


def main(steps: int, samples: int) -> None:
    torch.set_num_threads(1)
    reference = build()
    with tempfile.TemporaryDirectory() as folder:
        reference.save_pretrained(folder)
        model = from_checkpoint(read_checkpoint(folder))
    pixels = torch.randn(2 * samples, 3, 112, 112)
    labels = reference(pixel_values=pixels[:samples]).logits.argmax(-1)
    labels[::3] = (labels[::3] + 1) % CLASSES
    places = torch.arange(samples).split(BATCH)
    inside = [Batch({"pixel_values": pixels[at]}, labels[at], at) for at in places]
    outside = [Batch({"pixel_values": pixels[samples + at]}, None, at) for at in places]
    plan = Plan(tuple(member_heads(model.heads, 0)), steps)
    data = SearchData(inside, outside, samples, samples)
    ours, fast = timed(lambda: [s.head for s in extract_circuits(model, data, plan, [Ranking("avg")])[0].steps])
    plain = [(batch.inputs["pixel_values"], batch.labels) for batch in [*inside, *outside]]
    theirs, slow = timed(lambda: naive(reference, plain, steps))
    counted = counted_ratio(ours, model.spec.tower("vision"))
    print(f"as printed {slow:.1f} s, exact {fast:.1f} s: {slow / fast:.2f}x; counted multiply-adds {counted:.2f}x,")
    print(
        f"{100 * slow / fast / counted:.0f} % of the counted ratio; choices {'agree' if ours == theirs else 'DIFFER'}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2, int(sys.argv[2]) if len(sys.argv) > 2 else 16)
