"""What the OOD score of a calibrated model costs on top of a batch of 64.

    python ood_overhead.py MODEL [--repeats R]

Prints, for each score, the ratio of a forward pass with the score and typicality to one without, in processor time.
Statistics are random.
"""

import argparse
import statistics
import time

import torch

from hydractl.checkpoint.calibration import MOST_QUANTILES, OodFit
from hydractl.families.load import read_checkpoint
from hydractl.inference import load_checkpoint
from hydractl.model.answering import OodHead
from hydractl.model.hydra import Hydra
from hydractl.ood.ood_scores import OOD_SCORES
from hydractl.ood.score import OodScore
from hydractl.process import prepare
from hydractl.systems.cost import synthetic_inputs

BATCH = 64


def head(model: Hydra, row: OodScore) -> OodHead:
    members, width, tower = model.members, model.spec.features, model.spec.towers[0]
    hidden = tower.layers - 1
    trunk = min(model.trunk, hidden)
    sizes = {"M": members, "C": model.spec.classes, "D": width, "K": model.spec.classes, "P": tower.layers + 1}
    sizes |= {"d": tower.width, "L": tower.layers, "S": trunk + (hidden - trunk) * members, "Q": MOST_QUANTILES}
    state = {name: torch.rand([sizes[axis] for axis in axes]).sort(-1).values for name, axes in row.stored.items()}
    return OodHead(OodFit(row.name, 1000, 0.95), state)


def seconds(model: Hydra, inputs: dict[str, torch.Tensor], fitted: OodHead | None) -> float:
    model.ood_head = fitted
    start = time.process_time()
    model(**inputs)
    return time.process_time() - start


@torch.inference_mode()
def overhead(reference: str, repeats: int) -> None:
    model = load_checkpoint(read_checkpoint(reference), dtype=torch.float32).optimize_for_inference()
    inputs = synthetic_inputs(model.spec, BATCH)
    for row in OOD_SCORES:
        fitted = head(model, row)
        seconds(model, inputs, fitted)  # warm up
        # In turns: other work on the machine meets both alike.
        ratios = [seconds(model, inputs, fitted) / seconds(model, inputs, None) for _ in range(repeats)]
        print(f"{row.name:<24} {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    prepare()
    overhead(given.model, given.repeats)
