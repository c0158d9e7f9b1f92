"""What K candidates of one circuit cost together, beside K forward passes of their own.

    python candidates.py [MODEL CIRCUIT] [--candidates K] [--share 33%] [--batch N] [--repeats R]

MODEL is a random ViT of six layers with twelve heads each by default, CIRCUIT a random one. Candidates lack its first
heads, from one head to a share of all; and with `--draws` as many heads drawn from its first half. Each way takes its
turn, in processor time of one thread; a candidate alone is a pruned network, as it is and optimised for inference.
Prints the ratio of layers computed, the ratios of times, and by how much logits differ at most.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch

from hydractl.checkpoint.heads import Head, member_heads, number_of_heads
from hydractl.circuit.head_files import read_circuit
from hydractl.families.load import read_checkpoint
from hydractl.inference import load_checkpoint
from hydractl.model.hydra import Hydra, to_checkpoint
from hydractl.process import prepare
from hydractl.selection.selection_run import CandidateNetworks
from hydractl.surgery.choose import by_ranking
from hydractl.surgery.slicing import drop_heads
from hydractl.systems.cost import synthetic_inputs


def random_vit() -> Hydra:
    from tempfile import TemporaryDirectory

    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 12}
    torch.manual_seed(0)
    with TemporaryDirectory() as folder:
        ViTForImageClassification(ViTConfig(**sizes, image_size=96)).save_pretrained(folder)
        return load_checkpoint(read_checkpoint(folder))


def candidates_of(circuit: list[Head], most: int, count: int, draws: bool) -> list[frozenset[Head]]:
    if draws:
        return [frozenset(by_ranking(circuit, most, len(circuit) // 2, seed)) for seed in range(count)]
    return [frozenset(circuit[: max(most * part // count, 1)]) for part in range(1, count + 1)]


def seconds(run: Callable[[], object]) -> float:
    start = time.thread_time()
    run()
    return time.thread_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("circuit", nargs="?")
    parser.add_argument("--draws", action="store_true")
    parser.add_argument("--candidates", type=int, default=12)
    parser.add_argument("--share", default="33%")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    prepare()
    torch.set_num_threads(1)
    model = load_checkpoint(read_checkpoint(asked.model)) if asked.model else random_vit()
    heads = member_heads(model.heads, 0)
    most = number_of_heads(asked.share, len(heads)) or 1
    circuit = list(read_circuit(asked.circuit).ranking) if asked.circuit else random.Random(0).sample(heads, len(heads))
    dropped = candidates_of(circuit, most, asked.candidates, asked.draws)
    inputs = synthetic_inputs(model.spec, asked.batch, "cpu", 64)
    checkpoint = to_checkpoint(model)
    pruned = [load_checkpoint(drop_heads(checkpoint, gone)) for gone in dropped]
    optimised = [one.optimize_for_inference() for one in pruned]
    together = CandidateNetworks(model, dropped)

    def apart(networks: list[Hydra]) -> torch.Tensor:
        with torch.inference_mode():
            return torch.cat([one(**inputs).member_logits for one in networks])

    difference = (apart(pruned) - together.logits(inputs)).abs().max().item()
    runs = (lambda: together.logits(inputs), lambda: apart(pruned), lambda: apart(optimised))
    times = [[seconds(run) for run in runs] for _ in range(asked.repeats)]
    plain, fast = (statistics.median(row[0] / row[way] for row in times) for way in (1, 2))
    (tower, *_) = together.towers.values()
    layers = tower.root.mixtures() / (len(dropped) * len(tower.before))
    print(f"{len(dropped)} candidates without up to {most} of {len(heads)} heads, batch {asked.batch}")
    print(f"layers computed: {layers:.2f} of those of each alone")
    print(f"time: {plain:.2f} of that of each alone, {fast:.2f} where each is optimised for inference")
    print(f"logits differ by at most {difference:.1e}")


if __name__ == "__main__":
    main()
