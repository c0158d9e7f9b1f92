"""Algorithm 1 as printed against the exact search, side by side in one process.

    python circuit_search.py [BATCH_SIZES] [STEPS] [SAMPLES]     e.g. circuit_search.py 4,8,16 3 8

A ViT of 12 layers x 12 heads with random weights and a small width. The naive search is transformers' own forward with
each candidate's columns of W_O zeroed in turn. Everything runs on one thread. First what a round costs at each batch
size, medians of alternating runs, the exact one also with the library that multiplies for transformers, which alone
compares with the counted ratio; then whole searches of a few steps, with their choices. `whole_search.py` times those
of a trained network.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import numpy as np
import torch
from transformers import ViTConfig, ViTForImageClassification

from hydractl.checkpoint.heads import Head, member_heads
from hydractl.checkpoint.tower_spec import TowerSpec
from hydractl.circuit.objective import ScoringData, measure
from hydractl.circuit.ranking import Ranking, Search
from hydractl.circuit.replay import Replay, tokens_of
from hydractl.circuit.search import extract_circuits
from hydractl.data.batching import Batch
from hydractl.families.load import read_checkpoint
from hydractl.model.fast import products
from hydractl.model.hydra import Hydra, from_checkpoint
from hydractl.process import prepare

Plain = list[tuple[torch.Tensor, torch.Tensor | None]]  # images, and labels where they are ID
WIDTH, HEADS, LAYERS, CLASSES, SIZE = 384, 12, 12, 10, 64
BATCH = 8
ALTERNATIONS = 3
EVERY = [Head("vision", layer, head) for layer in range(LAYERS) for head in range(HEADS)]


def build() -> ViTForImageClassification:
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        image_size=SIZE,
        patch_size=8,
        num_labels=CLASSES,
    )
    model = ViTForImageClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # or every head would matter alike
    return model


def columns(model: ViTForImageClassification, head: Head) -> torch.Tensor:
    width = WIDTH // HEADS
    return model.vit.layers[head.layer].attention.o_proj.weight[:, head.head * width : (head.head + 1) * width]


@contextmanager
def off(model: ViTForImageClassification, head: Head) -> Iterator[None]:
    kept = columns(model, head).clone()
    columns(model, head).zero_()
    yield
    columns(model, head).copy_(kept)


@torch.inference_mode()
def naive(model: ViTForImageClassification, batches: Plain, steps: int) -> list[Head]:
    """Algorithm 1 for the mean of accuracy and AUROC."""
    left, dropped = list(EVERY), []
    for _ in range(steps):
        ranks = []
        for head in left:
            with off(model, head):
                ranks.append(score(model, batches))
        best = left.pop(int(np.argmax(ranks)))
        columns(model, best).zero_()
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
    found = measure(right, torch.cat(msp[False]).numpy(), [torch.cat(msp[True]).numpy()], np.zeros(len(right)))
    return found.rank("avg")


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def layer_cost(tower: TowerSpec, heads: float, tokens: int) -> float:
    """Counts a whole layer with so many heads on: projections, scores and mixtures, MLP."""
    rows = heads * tower.head_width
    return tokens * (4 * tower.width * rows + 2 * tokens * rows + 2 * tower.width * tower.mlp_width)


def pooled_layer_cost(tower: TowerSpec, heads: float, tokens: int) -> float:
    """Counts the last layer if few tokens are read: queries absorbed into the keys, W_V applied to mixtures."""
    rows = heads * tower.head_width
    one = 4 * tower.width * rows + 2 * heads * tokens * tower.width + 2 * tower.width * tower.mlp_width
    return tower.tokens_read * one


def tower_cost(tower: TowerSpec, heads: Sequence[float], tokens: int) -> float:
    """Counts every layer whole, as transformers computes them: the cost of a candidate in Algorithm 1 as printed."""
    return sum(layer_cost(tower, count, tokens) for count in heads)


def base_cost(tower: TowerSpec, heads: Sequence[float], tokens: int) -> float:
    """Counts the forward pass that all replays start from."""
    *counts, last = heads
    return tower_cost(tower, counts, tokens) + _last_cost(tower, last, tokens)


def candidate_cost(tower: TowerSpec, heads: Sequence[float], tokens: int, layer: int) -> float:
    """Counts the replay of a candidate of `layer`: its contribution, that layer's MLP, and the layers above."""
    *counts, last = heads
    if layer == len(counts):
        after = tower.tokens_read or tokens
        return after * (tower.head_width + 2 * tower.mlp_width) * tower.width
    own = tokens * (tower.head_width + 2 * tower.mlp_width) * tower.width
    return own + tower_cost(tower, counts[layer + 1 :], tokens) + _last_cost(tower, last, tokens)


def _last_cost(tower: TowerSpec, heads: float, tokens: int) -> float:
    return (pooled_layer_cost if tower.tokens_read else layer_cost)(tower, heads, tokens)


def counted_ratio(dropped: Sequence[Head], candidates: Sequence[Head], tower: TowerSpec) -> float:
    """Multiply-adds of the naive rounds over those of the exact ones, of which the first knows no dropped head."""
    tokens, printed, exact = tokens_of(tower), 0.0, 0.0
    counts, left = [HEADS] * LAYERS, list(candidates)
    for head in dropped:
        printed += len(left) * tower_cost(tower, [HEADS] * LAYERS, tokens)
        exact += base_cost(tower, counts, tokens)
        exact += sum(candidate_cost(tower, counts, tokens, one.layer) for one in left)
        counts[head.layer] -= 1
        left.remove(head)
    return printed / exact


@torch.inference_mode()
def rounds(reference: ViTForImageClassification, model: Hydra, pixels: torch.Tensor) -> None:
    """One batch with every third candidate off in turn; the naive one does a twelfth of the work and is scaled up."""
    candidates = EVERY[::3]
    few = [candidates[layer * 4 + layer % 4] for layer in range(LAYERS)]

    def printed() -> None:
        for head in few:
            with off(reference, head):
                reference(pixel_values=pixels)

    def replayed(onednn: bool) -> Callable[[], object]:
        def run() -> None:
            products.ONEDNN = onednn
            for _, logits, _ in Replay(model, candidates).logits({"pixel_values": pixels}):
                logits.numpy()

        return run

    fast = products.ONEDNN
    runs = {"same": replayed(onednn=False), "exact": replayed(products.ONEDNN)}
    times: dict[str, list[float]] = {name: [] for name in runs}
    printed()
    for _ in range(ALTERNATIONS):
        slow = timed(printed) * len(candidates) / len(few)
        for name, run in runs.items():
            times[name].append(slow / timed(run))
    products.ONEDNN = fast
    same, exact = (median(times[name]) for name in runs)
    counted = counted_ratio(candidates[:1], candidates, model.spec.tower("vision"))
    print(
        f"batch {len(pixels):3}: naive / exact {exact:.2f}, by the same library {same:.2f}, which is "
        f"{100 * same / counted:.0f} % of the counted {counted:.2f}",
        flush=True,
    )


@torch.inference_mode()
def searches(reference: ViTForImageClassification, model: Hydra, steps: int, samples: int) -> None:
    """Whole searches on `samples` ID images and as many OOD ones."""
    pixels = torch.randn(2 * samples, 3, SIZE, SIZE)
    labels = reference(pixel_values=pixels[:samples]).logits.argmax(-1)
    labels[::3] = (labels[::3] + 1) % CLASSES
    places = torch.arange(samples).split(BATCH)
    inside = [Batch({"pixel_values": pixels[at]}, labels[at], at) for at in places]
    outside = [Batch({"pixel_values": pixels[samples + at]}, None, at) for at in places]
    data = ScoringData(inside, samples, outside, samples)
    plain = [(batch.inputs["pixel_values"], batch.labels) for batch in [*inside, *outside]]
    chosen: dict[str, list[Head]] = {}

    def ours() -> None:
        search = Search(tuple(member_heads(model.heads, 0)), steps)
        (found,) = extract_circuits(model, [data], search, [Ranking("avg")])
        chosen["exact"] = [step.head for step in found.steps]

    def theirs() -> None:
        chosen["naive"] = naive(reference, plain, steps)

    exact, slow = timed(ours), timed(theirs)
    counted = counted_ratio(chosen["exact"], EVERY, model.spec.tower("vision"))
    agree = "agree" if chosen["exact"] == chosen["naive"] else "DIFFER"
    print(f"{steps} steps: naive / exact {slow / exact:.2f}, counted {counted:.2f}, choices {agree}")


def main(batch_sizes: str = "4,16", steps: str = "2", samples: str = "6") -> None:
    torch.set_num_threads(1)
    prepare()
    reference = build()
    with tempfile.TemporaryDirectory() as folder:
        reference.save_pretrained(folder)
        model = from_checkpoint(read_checkpoint(folder))
    for size in map(int, batch_sizes.split(",")):
        rounds(reference, model, torch.randn(size, 3, SIZE, SIZE))
    searches(reference, model, int(steps), int(samples))


if __name__ == "__main__":
    main(*sys.argv[1:])
