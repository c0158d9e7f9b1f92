import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from torch.utils.data import Dataset

from hydractl.data.batching import Batch, made_by_workers, make_batches
from hydractl.data.open import open_samples
from hydractl.data.preprocess import Preprocessor
from hydractl.data.samples import Samples
from hydractl.errors import DataError
from tests.data.conftest import image_folder, picture
from tests.data.tokenizers_and_processors import bert_tokenizer, folder_preprocessor, image_spec, text_spec, vit_files

TEXTS = ["good", "a very good film", "bad film", "very " * 30, "film"]


@pytest.fixture
def images(tmp_path: Path) -> Samples:
    names = [f"{'cat' if at < 3 else 'dog'}/{at}.png" for at in range(7)]
    return open_samples(str(image_folder(tmp_path / "images", names)), "image")


@pytest.fixture
def preprocessor(tmp_path: Path) -> Preprocessor:
    return folder_preprocessor(vit_files(tmp_path / "vit"), image_spec())


def assert_same(made: Sequence[Batch], expected: Sequence[Batch]) -> None:
    assert_close(list(map(vars, made)), list(map(vars, expected)), rtol=0, atol=0)


def test_images_in_their_order(images: Samples, preprocessor: Preprocessor) -> None:
    batches = make_batches(images, preprocessor, 3)
    assert len(batches) == 3
    made = list(batches)
    assert [batch.positions.tolist() for batch in made] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [batch.labels.tolist() for batch in made] == [[0, 0, 0], [1, 1, 1], [1]]
    pixels = torch.cat([batch.inputs["pixel_values"] for batch in made])
    assert torch.equal(pixels, preprocessor([picture(at) for at in range(7)])["pixel_values"])


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_ranks_share_out_the_same_batches(world: int, images: Samples, preprocessor: Preprocessor) -> None:
    single = list(make_batches(images, preprocessor, 2))
    ranks = [list(make_batches(images, preprocessor, 2, rank=rank, world_size=world)) for rank in range(world)]
    assert_same([ranks[at % world][at // world] for at in range(len(single))], single)
    assert sum(map(len, ranks)) == len(single)
    assert list(make_batches(images, preprocessor, 100, rank=1, world_size=2, workers=2)) == []


@pytest.mark.apart
@pytest.mark.usefixtures("beside_ranks")
def test_workers_make_the_same_batches_in_the_requested_order(
    images: Samples, preprocessor: Preprocessor, tmp_path: Path
) -> None:
    expected = list(make_batches(images, preprocessor, 2))
    assert_same(list(make_batches(images, preprocessor, 2, workers=2)), expected)
    assert list(made_by_workers(range(10), 2, [7, 1, 5])) == [7, 1, 5]  # type: ignore[arg-type]
    (tmp_path / "images" / "dog" / "4.png").write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"sample 4 \(.*4.png\)"):
        list(make_batches(images, preprocessor, 2, workers=2))


def test_texts_by_length_padded_to_the_longest_of_the_batch(tmp_path: Path) -> None:
    preprocessor = folder_preprocessor(bert_tokenizer(tmp_path), text_spec())
    samples = Samples("x", "text", TEXTS, np.arange(5), tuple("abcde"))
    batches = make_batches(samples, preprocessor, 2, workers=4)
    made = list(batches)
    assert [batch.positions.tolist() for batch in made] == [[3, 1], [2, 0], [4]]
    assert [batch.labels.tolist() for batch in made] == [[3, 1], [2, 0], [4]]
    assert [batch.inputs["input_ids"].shape[1] for batch in made] == [16, 4, 3]
    assert torch.equal(made[1].inputs["input_ids"], preprocessor(["bad film", "good"])["input_ids"])
    assert batches.truncated == 1


class Worker(Dataset[tuple[int, int, bool]]):
    """The process that asks, the one that started it, and whether it ignores Ctrl-C."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[int, int, bool]:
        return os.getpid(), os.getppid(), signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.apart
def test_workers_beside_ranks_are_no_forks_and_leave_ctrl_c_to_them(beside_ranks: bool) -> None:
    first, second = made_by_workers(Worker(), 1)
    assert first == second
    _, parent, deaf = first
    assert (parent != os.getpid()) == deaf == beside_ranks
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


KILLED = """
import os, signal
from types import SimpleNamespace
from hydractl.data import batching
from tests.data.test_batching import Worker

batching.dist = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True)
if __name__ == "__main__":
    made = batching.made_by_workers(Worker(), 1)
    print(next(made)[0], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_workers_end_with_a_rank_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(KILLED)
    root = str(Path(__file__).parents[2])
    with (tmp_path / "said").open("w+") as said:
        rank = subprocess.Popen(
            [sys.executable, tmp_path / "rank.py"], stdout=said, env={**os.environ, "PYTHONPATH": root}
        )
        assert rank.wait(120) == -signal.SIGKILL
    worker = Path("/proc", (tmp_path / "said").read_text().strip())
    end = time.monotonic() + 60
    while worker.exists() and time.monotonic() < end:
        time.sleep(0.1)
    assert not worker.exists()


JOB = """
import importlib, os, torch
from hydractl.data.ranks import join_ranks

def threads():
    return {task: open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")}

alone = threads()
with join_ranks(torch.device("cpu")) as ranks:
    # Which is how many threads the group has, whatever they are called: torch names them only from 2.11 on.
    started = threads().keys() - alone
    assert started
    assert ranks.total(torch.ones(3)).tolist() == [2, 2, 2]
    importlib.import_module("torch._dynamo")
left = {task: name for task, name in threads().items() if task in started}
assert not left, left
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads where Linux lists them")
def test_no_thread_of_the_group_outlives_it(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", tmp_path / "job.py"]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, env=quiet)
    assert done.returncode == 0, done.stderr
