"""What `hydractl evaluate` costs beyond the forward passes themselves, and how much memory a large set takes.

python evaluate_overhead.py MODEL DATA [LIMIT]

Prints the share of the time that is spent in the forward, and the ratio of the whole to the forward alone on inputs
prepared beforehand; then peak memory over a stream of 50,000 x 1,000 logits.
"""

import resource
import sys
import time
from collections.abc import Iterator

import torch

from hydractl.data.batches import make_batches
from hydractl.data.preprocessing import preprocessor_from_json
from hydractl.data.sources import open_data
from hydractl.data.spec import parse_data_spec
from hydractl.evaluation.networks import Networks
from hydractl.evaluation.predictor import LogitBatch
from hydractl.evaluation.results import Settings, measure
from hydractl.evaluation.run import predict_sets
from hydractl.evaluation.sets import EvaluationData, SetKey
from hydractl.families.open import read_checkpoint
from hydractl.inference import load_checkpoint, member_logits

BATCH = 64
ID = SetKey("id", "id")


class Noise:
    """Random logits of 50,000 samples and 1,000 classes, made batch by batch."""

    temperature = 1.0
    cost = None

    def samples(self, key: SetKey) -> int:
        return 50_000

    def logits(self, key: SetKey) -> Iterator[LogitBatch]:
        for start in range(0, self.samples(key), 250):
            positions = torch.arange(start, start + 250)
            yield LogitBatch(torch.randn(1, 250, 1000), positions % 1000, positions)


def overhead(reference: str, source: str, limit: int | None) -> None:
    checkpoint = read_checkpoint(reference)
    model = load_checkpoint(checkpoint).optimize_for_inference()
    prepare = preprocessor_from_json(checkpoint.preprocessing, checkpoint.spec, checkpoint.name, checkpoint.config)
    samples = open_data(parse_data_spec(source), "image", None, limit)
    prepared = list(make_batches(samples, prepare, BATCH))
    member_logits(model, prepared[0])  # warm up
    times = []
    for _ in range(3):  # side by side: other work on the machine meets both alike
        start = time.perf_counter()
        for batch in prepared:
            member_logits(model, batch)
        forward = time.perf_counter() - start
        networks = Networks([model], prepare, EvaluationData({ID: samples}), BATCH)
        start = time.perf_counter()
        measure(predict_sets(networks, [ID]), networks.cost, Settings())
        times.append(((time.perf_counter() - start) / forward, forward))
    ratio, forward = sorted(times)[1]
    print(f"{len(samples)} samples: forward {forward:.1f} s, evaluation {ratio:.3f} times that")


def memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    measure(predict_sets(Noise(), [ID]), None, Settings())
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"50,000 x 1,000 logits: peak memory grows by {grown:.0f} MiB")


if __name__ == "__main__":
    memory()
    overhead(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
