"""Whole searches of a trained ViT on real images: Algorithm 1 as printed against the exact search.

    python whole_search.py MODEL ID_DATA OOD_DATA [--objective acc|ood|avg] [--budget 12] [--limit N] [--device cpu]

The naive search is transformers' own forward of a Hugging Face folder with each candidate's columns of W_O zeroed in
turn, on all cores or on a GPU, which then holds its images. A few of its candidates are timed before and after
the exact search, on images prepared beforehand; all cost the same, so the whole search is as many times that as it has
candidates over its steps. That both searches choose alike, the tests show.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from transformers import AutoModelForImageClassification

from hydractl.checkpoint.heads import member_heads
from hydractl.circuit.objective import OBJECTIVES, Material, Objective, ScoringData
from hydractl.circuit.ranking import Ranking, Search
from hydractl.circuit.search import extract_circuits
from hydractl.data.ranks import Ranks
from hydractl.data.reading import Reading
from hydractl.inputs.search_data import open_material
from hydractl.run_options import Compute, choose_device
from hydractl.watch import LOG

BATCH = 64
TIMED = 3  # candidates of the naive search at a time, each in a layer of its own


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def naive_candidates(reference: str, data: ScoringData, device: torch.device) -> Callable[[], float]:
    """A function that takes the time of one candidate: the network without a head, over all samples."""
    model = AutoModelForImageClassification.from_pretrained(reference, dtype=torch.float32).eval().to(device)
    weights = [weight for name, weight in model.named_parameters() if name.endswith("attention.o_proj.weight")]
    images = [batch.inputs["pixel_values"].to(device) for batch in [*data.id, *data.ood]]
    width = weights[0].shape[1] // model.config.num_attention_heads

    @torch.inference_mode()
    def candidate(layer: int) -> None:
        columns = weights[layer][:, :width]
        kept = columns.clone()
        columns.zero_()
        for pixels in images:
            model(pixel_values=pixels).logits.softmax(-1).cpu()
        columns.copy_(kept)

    candidate(0)
    return lambda: median(timed(partial(candidate, layer)) for layer in range(len(weights[:TIMED])))


def search(material: Material, data: ScoringData, objective: Objective, budget: int) -> None:
    every = tuple(member_heads(material.model.heads, 0))
    extract_circuits(material.model, [data], Search(every, budget), [Ranking(objective)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "id_data", "ood_data"):
        parser.add_argument(name)
    parser.add_argument("--objective", default="avg", choices=OBJECTIVES)
    parser.add_argument("--budget", type=int, default=12)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    reading = Reading(limit=asked.limit)
    compute = Compute(asked.device, "fp32")
    material = open_material(asked.model, asked.id_data, asked.ood_data, reading=reading, compute=compute, watch=LOG)
    data = material.scoring_data(BATCH, Ranks())
    naive = naive_candidates(asked.model, data, choose_device(asked.device))
    candidates = len(member_heads(material.model.heads, 0))
    measured = sum(candidates - step for step in range(asked.budget))

    before = naive()
    exact = timed(lambda: search(material, data, asked.objective, asked.budget))
    each = [before, naive()]
    printed = measured * median(each)
    print(f"{asked.objective}, {asked.budget} of {candidates} heads, {data.id_samples} + {data.ood_samples} images")
    print(f"naive  {printed:7.1f} s: {measured} candidates of {', '.join(f'{seconds:.2f}' for seconds in each)} s")
    print(f"exact  {exact:7.1f} s: naive / exact {printed / exact:.2f}")


if __name__ == "__main__":
    main()
