"""What `hydractl evaluate` costs beyond the forward passes themselves.

    python evaluate_overhead.py MODEL DATA [--limit N] [--repeats R]

Prints, in wall-clock and in processor time, the ratio of a whole evaluation (decoding, forward, metrics) to the forward
alone on inputs prepared beforehand, both with a batch on each core.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from hydractl.data.batching import make_batches
from hydractl.data.open import open_samples
from hydractl.data.preprocess import preprocessor_from_json
from hydractl.data.ranks import InParallel, Ranks, batch_workers
from hydractl.data.reading import Reading
from hydractl.evaluation.run import predict_sets
from hydractl.evaluation.system_numbers import numbers_of
from hydractl.families.load import read_checkpoint
from hydractl.inference import load_checkpoint, member_answers
from hydractl.process import prepare
from hydractl.systems.networks import NetworkSystem
from hydractl.systems.system import EvaluationData, Running, SetKey

BATCH = 64
ID = SetKey("id", "id")


def seconds(run: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and processor time of a call."""
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - processor


def running(in_parallel: InParallel) -> Running:
    return Running(
        device=torch.device("cpu"),
        dtype=None,
        batch_size=BATCH,
        workers=0,
        seed=0,
        reading=Reading(),
        ranks=Ranks(),
        in_parallel=in_parallel,
        on_note=print,
    )


def overhead(reference: str, source: str, limit: int | None, repeats: int) -> None:
    checkpoint = read_checkpoint(reference)
    model = load_checkpoint(checkpoint).optimize_for_inference()
    prepare = preprocessor_from_json(checkpoint.preprocessing, checkpoint.spec, checkpoint.name, checkpoint.config)
    modality = "text" if checkpoint.spec.modality == "text" else "image"
    samples = open_samples(source, modality, Reading(limit=limit))
    prepared = list(make_batches(samples, prepare, BATCH))
    data = EvaluationData({ID: samples})

    def forward() -> None:
        with batch_workers(torch.device("cpu")) as in_parallel:
            list(in_parallel(partial(member_answers, model), prepared))

    def evaluation() -> None:
        with batch_workers(torch.device("cpu")) as in_parallel:
            networks = NetworkSystem((model,), data=data, running=running(in_parallel))
            numbers_of(predict_sets(networks, [ID]), networks.cost)

    member_answers(model, prepared[0])  # warm up
    # In turns: other work on the machine meets both alike.
    pairs = [(seconds(forward), seconds(evaluation)) for _ in range(repeats)]
    wall, processor = (statistics.median(whole[i] / alone[i] for alone, whole in pairs) for i in (0, 1))
    alone = statistics.median(pair[0][0] for pair in pairs)
    print(
        f"{len(samples)} samples, forward {alone:.1f} s; evaluation over it: wall {wall:.3f}, processor {processor:.3f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    prepare()
    overhead(given.model, given.data, given.limit, given.repeats)
