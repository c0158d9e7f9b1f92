import json
import os
import subprocess
import time
from pathlib import Path

import pytest
import torch

from hydractl.checkpoint.contents import identity
from hydractl.checkpoint.output import StateFolder
from hydractl.families.load import read_checkpoint
from tests.cli.conftest import TORCHRUN, Command, contents, half_known, save_images
from tests.factories import save_encoder, save_tagger, save_texts, sentences

pytestmark = pytest.mark.slow

#: Twelve images in batches of five: the second process has one batch, the first two.
DATA = "--id-data=pets --ood-data=noise --batch-size=5"
LINES = {
    "score-heads": f"score-heads vit --method=separation {DATA} --plot=s.png",
    "extract-circuit": f"extract-circuit vit --budget=3 --objective=acc,avg {DATA} -o {{objective}}",
    "select": "select vit --random=3 --members=2 --budgets=1,2 --id-data=pets --batch-size=5 -o s.json --hydra hydra",
    "words": "select tagger --random=3 --members=2 --budgets=1,2 --id-data=words.parquet --batch-size=5 -o s.json",
    "refit": "prune vit --method=random --budget=3 --refit=pets --batch-size=5 -o refitted",
    "embeddings": "extract-circuit encoder --budget=2 --id-data=texts.csv --batch-size=5 -o c.json",
    "calibrate": "calibrate vit --id-data=held --ood-data=noise --batch-size=5 --ood-score=mahalanobis -o warm",
    "evaluate": f"evaluate DE=vit+other mc=vit,mc-dropout=3,p=0.2 other {DATA} --calib-data=held --corrupt=contrast:5"
    " --ood-score=mahalanobis --temperature=fit --bootstrap=100 --workers=1"
    " --save-logits=logits --report=report --json=report.json",
}


def in_two(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*TORCHRUN, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("name", LINES)
def test_two_processes_print_and_write_what_one_does(
    hydractl: Command, place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    half_known(place / "vit", save_images(place / "held", count=18, seed=5))
    save_tagger(place / "tagger")
    sentences(12).to_parquet(place / "words.parquet")
    save_encoder(place / "encoder")
    save_texts(place / "texts.csv", 12)
    linked = list(place.iterdir())
    for folder in ("one", "two"):
        (place / folder).mkdir()
        for target in linked:
            (place / folder / target.name).symlink_to(target)
    monkeypatch.chdir("one")
    alone, together = hydractl(*LINES[name].split()), in_two(place / "two", *LINES[name].split())
    assert (alone.code, together.returncode) == (0, 0), alone.err + together.stderr
    assert together.stdout == alone.out
    assert contents(place / "two") == contents(place / "one")


def test_an_error_of_one_process_ends_all_and_keeps_what_was_finished(hydractl: Command, place: Path) -> None:
    folder, part = save_images(place / "animals"), place / "part.json"
    arguments = ("--id-data=animals", "--batch-size=4")
    hydractl("evaluate", "a=vit", *arguments, "--save-logits=logits", code=0)
    (folder / "dog" / "1.png").write_bytes(b"\x89PNG broken")  # in the second process's batch
    failed = in_two(place, "evaluate", "a=predictions:logits/a", "b=other", *arguments, "--json", part)
    assert (failed.returncode, failed.stderr.count("unreadable image"), failed.stderr.count("error: ")) == (1, 1, 1)
    kept = json.loads(part.read_text())
    assert (kept["complete"], list(kept["models"])) == (False, ["a"])


def test_where_one_of_two_processes_is_told_to_end_both_do_and_one_alone_resumes(
    hydractl: Command, slow_search: list[str], uninterrupted: dict[str, bytes], here: Path
) -> None:
    state = here / "acc-avg.json.state"
    job = subprocess.Popen([*TORCHRUN, *slow_search], cwd=here, stderr=subprocess.PIPE, text=True)
    while job.poll() is None and not (state.exists() and '"steps": [[' in state.read_text()):
        time.sleep(0.01)
    ranks = [int(number) for number in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()]
    os.kill(ranks[-1], 15)
    _, err = job.communicate(timeout=120)
    assert job.returncode == 1 and "internal error" not in err
    assert not [rank for rank in ranks if Path(f"/proc/{rank}").exists()]
    left = contents(here)
    assert "acc.json" not in left and not [name for name in left if name.endswith(".part")]
    assert hydractl(*slow_search, "--resume").code == 0
    assert {name: data for name, data in contents(here).items() if not name.startswith(".")} == uninterrupted


def test_two_processes_go_on_with_a_fit_that_one_began(
    hydractl: Command, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = LINES["calibrate"].replace("held", "pets").split()
    with monkeypatch.context() as patched:
        patched.setattr(StateFolder, "remove", lambda self: None)
        hydractl(*fit, code=0)
    whole = Path("warm").rename("whole")
    Path("warm.state/ood/noise.safetensors").unlink()
    done = in_two(place, *fit, "--resume")
    assert done.returncode == 0, done.stderr
    assert Path("warm").read_bytes() == whole.read_bytes()
    assert not Path("warm.state").exists()


def test_two_processes_train_like_one_with_twice_the_batch(hydractl: Command, place: Path) -> None:
    options = "--set optimizer=sgd --set lr=0.05 --set batch=8 --set flip=true --steps 6 --val-split 3 --device cpu"
    train = ["finetune", "vit", "--train-data", "pets", *options.split()]
    hydractl(*train, "--batch-size", 8, "-o", "one", code=0)
    done = in_two(place, *train, "--batch-size", 4, "-o", "two")
    assert (done.returncode, done.stdout) == (0, "two\n"), done.stderr
    one, two = read_checkpoint("one"), read_checkpoint("two")
    for name, tensor in one.tensors.items():
        torch.testing.assert_close(two.tensors[name].load(), tensor.load(), rtol=0, atol=1e-5, msg=name)
    assert identity(one) != identity(read_checkpoint("vit"))
