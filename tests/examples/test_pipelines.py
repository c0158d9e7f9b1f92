"""The pipelines of the examples, cut short; those for data sets that do not ship on a few images and texts."""

import json
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from PIL import Image
from safetensors.torch import save_file

from hydractl.families.load import read_checkpoint
from tests.cli.conftest import LABELS, save_bert, save_images, save_vit

ROOT = Path(__file__).parents[2]
TINY_SYSTEMS = """\
net0 tuned taught soup units units-pretrained units-soup units-apart units-taught published deep-ensemble"""


def make(tmp_path: Path, target: str, *flags: str, **variables: object) -> subprocess.CompletedProcess[str]:
    """Runs one target in this environment."""
    stamp = tmp_path / "installed"
    stamp.write_text(str(ROOT))
    given = {"BUILD": tmp_path / "build", "VENV": sys.prefix, "INSTALLED": stamp, **variables}
    settings = [f"{name}={value}" for name, value in given.items()]
    command = ["make", "-C", ROOT / "examples", target, *flags, *settings]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def models(tmp_path: Path, target: str) -> list[str]:
    """What stands in the report of a target."""
    return list(json.loads((tmp_path / "build" / target / "report.json").read_text())["models"])


@pytest.mark.slow
def test_cifar10(tmp_path: Path) -> None:
    vit = save_vit(tmp_path / "vit")
    for split, seed in (("train", 0), ("test", 1)):
        save_images(tmp_path / "pets" / split, seed=seed)
    for name, seed in (("noise", 2), ("search", 3)):
        save_images(tmp_path / name, seed=seed)
    make(tmp_path, "cifar10", CIFAR10=tmp_path / "pets", CIFAR10_VIT=vit, CIFAR10_BUDGET=2, CIFAR10_STEPS=2,
         OOD=f"far/noise={tmp_path / 'noise'}", OOD_SEARCH=tmp_path / "search", SEARCH_PART="1/2", EVALUATE_PART="2/2",
         FINETUNE="--device cpu --set batch=4")  # fmt: skip
    assert models(tmp_path, "cifar10") == [
        "single", "tuned", "hydra", "deep-ensemble", "lora-ensemble", "batch-ensemble"
    ]  # fmt: skip
    provenance = read_checkpoint(str(tmp_path / "build" / "cifar10" / "hydra")).provenance
    assert {"id", "ood"} <= provenance["search_data"].keys()


@pytest.mark.slow
def test_three_networks_from_nothing_that_share_their_beginning(tmp_path: Path) -> None:
    (save_images(tmp_path / "pets") / "owl").rename(tmp_path / "pets" / "truck")
    done = make(tmp_path, "cifar10-vit", CIFAR10=tmp_path / "pets", CIFAR10_LEARNT="train%1-2/3",
                FROM_NOTHING_STEPS=2, TO_ZERO_STEPS=2, FINETUNE="--device cpu --set batch=4")  # fmt: skip
    networks = [tmp_path / "build" / "cifar10-vit" / f"net{seed}.safetensors" for seed in range(3)]
    assert " ".join(map(str, networks)) in done.stdout.splitlines()
    assert len({network.read_bytes() for network in networks}) == 3


@pytest.mark.slow
def test_a_pretrained_network_of_timm_is_fine_tuned_at_another_size(tmp_path: Path) -> None:
    import timm

    sizes = {"patch_size": 8, "embed_dim": 12, "depth": 2}
    pretrained = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=7, **sizes)
    config = {"architecture": "vit_tiny_patch16_224", "num_classes": 7, "model_args": {**sizes, "img_size": 64}}
    (tmp_path / "timm").mkdir()
    save_file(pretrained.state_dict(), tmp_path / "timm" / "model.safetensors")
    (tmp_path / "timm" / "config.json").write_text(json.dumps({**config, "pretrained_cfg": pretrained.pretrained_cfg}))
    for split, seed in (("train", 0), ("test", 1)):
        save_images(tmp_path / "pets" / split, count=20, seed=seed)
    make(tmp_path, "vit-tiny-table", "vit-tiny-paper", PRETRAINED=tmp_path / "timm", CIFAR10=tmp_path / "pets",
         SIZE=32, SEEDS="0 3",
         OOD=f"far/noise={save_images(tmp_path / 'noise', seed=2)}", IMAGENET=save_imagenet(tmp_path),
         TINY_TRUNK=1, TINY_HEADS=1, TINY_UNITS=12, TINY_BUDGET=2, PRECISION="no", QUICK=1,
         TINY_PAPER="taylor hydra hydra-taylor batch-ensemble lora-ensemble", FINETUNE="--device cpu")  # fmt: skip
    networks = [read_checkpoint(str(tmp_path / "build" / "vit-tiny" / f"net{seed}.safetensors")) for seed in (0, 3)]
    assert all(len(network.labels) == len(LABELS) for network in networks)
    assert networks[0].spec.tower("vision").embeddings.image_size == (32, 32)
    assert " ".join(models(tmp_path, "vit-tiny")) == TINY_SYSTEMS
    assert models(tmp_path, "vit-tiny/paper") == [
        "net0", "soup", "deep-ensemble", "taylor", "hydra", "hydra-taylor", "batch-ensemble", "lora-ensemble",
        "mc-dropout",
    ]  # fmt: skip
    with_units = read_checkpoint(str(tmp_path / "build" / "vit-tiny" / "units.safetensors"))
    assert with_units.members == 3


@pytest.mark.slow
def test_members_of_two_more_networks_lose_units(tmp_path: Path) -> None:
    for split, seed in (("train", 0), ("test", 1)):
        save_images(tmp_path / "pets" / split, count=20, seed=seed)
    make(tmp_path, "vit-units-table", BUILT_FROM=save_vit(tmp_path / "vit"), CIFAR10=tmp_path / "pets",
         UNITS_LOST="1 1 12", UNITS_SEED=1, UNITS_SYSTEMS="net0 units deep-ensemble",
         OOD=f"far/noise={save_images(tmp_path / 'noise', seed=2)}", IMAGENET=save_imagenet(tmp_path), QUICK=1,
         FINETUNE="--device cpu")  # fmt: skip
    assert models(tmp_path, "vit-units") == ["net0", "units", "deep-ensemble"]
    write_texts(tmp_path / "sst2", texts=40)
    (tmp_path / "ood.csv").write_text("text\nowl owl\nbad owl owl\n")
    (tmp_path / "search.csv").write_text("\n".join(["text", *(f"owl {'film ' * n}" for n in range(8))]))
    make(tmp_path, "minilm-units-table", FINE_TUNED=save_bert(tmp_path / "bert"), SST2=tmp_path / "sst2",
         MINILM_LOST="1 1 12", MINILM_PUBLISHED=2, UNITS_DEAL="overlapping",
         OOD_TEXT=f"far/owls={tmp_path / 'ood.csv'}", OOD_TEXT_SEARCH=tmp_path / "search.csv",
         QUICK=1, FINETUNE="--device cpu")  # fmt: skip
    systems = ["net0", "tuned", "taught", "soup", "units", "published", "deep-ensemble"]
    assert models(tmp_path, "minilm-units") == systems
    for table in ("vit-units", "minilm-units"):
        assert read_checkpoint(str(tmp_path / "build" / table / "units.safetensors")).members == 3


def save_imagenet(folder: Path) -> Path:
    """Images of 600 classes, one each, in a file."""
    pixels = np.random.default_rng(0).integers(0, 255, (600, 2, 2, 3), dtype=np.uint8)
    images = Dataset.from_dict({"image": [Image.fromarray(one) for one in pixels]})
    images.to_parquet(folder / "imagenet.parquet")
    return folder / "imagenet.parquet"


@pytest.mark.slow
def test_a_hydra_of_the_checkpoint_by_one_command(tmp_path: Path) -> None:
    vit = save_vit(tmp_path / "vit")
    for split, seed in (("train", 0), ("test", 1)):
        save_images(tmp_path / "pets" / split, count=40, seed=seed)
    save_images(tmp_path / "noise", seed=2)
    cheap = tmp_path / "build" / "cheap"
    make(tmp_path, "cifar10-vit-build", CIFAR10=tmp_path / "pets", BUILT_FROM=vit, VIT_MEMBER_STEPS=2,
         OOD=f"far/noise={tmp_path / 'noise'}", BUILT=cheap, BUILT_WITH="--members 2")  # fmt: skip
    assert models(tmp_path, "cheap/report") == ["network", "hydra"]
    assert read_checkpoint(str(cheap / "hydra.safetensors")).members == 2


def test_the_checkpoint_that_lies_there_is_one_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    vit_model = import_module("vit_model")
    vit_model.main(vit_model.NETWORKS["cifar10"], tmp_path / "untrained")
    untrained = read_checkpoint(str(tmp_path / "untrained"))
    trained = read_checkpoint(str(ROOT / "examples" / "checkpoints" / "cifar10-vit"))
    assert (trained.spec, trained.labels) == (untrained.spec, untrained.labels)


@pytest.mark.parametrize(("target", "search"), [("cifar10", "OOD_SEARCH"), ("sst2", "OOD_TEXT_SEARCH")])
def test_members_follow_circuits_where_there_is_ood_data_to_search_on(tmp_path: Path, target: str, search: str) -> None:
    assert "prune" in (plain := make(tmp_path, target, "--dry-run").stdout)
    assert "--method random" in plain and "extract-circuit" not in plain
    searched = make(tmp_path, target, "--dry-run", **{search: "owls"}).stdout
    assert "--ood-data owls" in searched and "--method circuit" in searched and "random" not in searched


@pytest.mark.slow
def test_every_system_is_on_one_table(tmp_path: Path) -> None:
    done = make(tmp_path, "systems", QUICK=1, SCRATCH="")
    assert models(tmp_path, "systems") == [
        "single", "calibrated", "tuned", "mc-dropout", "pruned", "oba", "hydra", "deep-ensemble",
        "lora-ensemble", "batch-ensemble", "mask-ensemble",
    ]  # fmt: skip
    assert (tmp_path / "build" / "systems" / "table.txt").read_text() in done.stdout
    own = json.loads((tmp_path / "build" / "systems" / "own.json").read_text())["models"]
    assert list(own) == ["single", "tuned", "hydra", "deep-ensemble"]
    assert all("typicality" in one for one in own.values())


@pytest.mark.slow
def test_sst2(tmp_path: Path) -> None:
    bert = save_bert(tmp_path / "bert")
    write_texts(tmp_path / "sst2")
    (tmp_path / "ood.csv").write_text("text\nowl owl\nbad owl owl\n")
    make(tmp_path, "sst2", SST2=tmp_path / "sst2", BERT=bert, BERT_BUDGET=4, BERT_EPOCHS=1, SEARCH_TEXTS=3,
         OOD_TEXT=f"far/owls={tmp_path / 'ood.csv'}", NEW_CLASSIFIER="zeros",
         FINETUNE="--device cpu --set batch=4 --val-split 2")  # fmt: skip
    assert models(tmp_path, "sst2") == ["dense", "tuned", "member0", "member1", "member2", "hydra", "deep-ensemble"]


@pytest.mark.slow
def test_members_of_a_bert_are_selected_and_trained(tmp_path: Path) -> None:
    bert = save_bert(tmp_path / "bert")
    write_texts(tmp_path / "sst2", texts=40)
    (tmp_path / "ood.csv").write_text("text\nowl owl\nbad owl owl\n")
    (tmp_path / "search.csv").write_text("\n".join(["text", *(f"owl {'film ' * n}" for n in range(8))]))
    make(tmp_path, "sst2-select", SST2=tmp_path / "sst2", BERT=bert, FIRST=9, CHOOSE_BUDGET=2, CHOOSE_BUDGETS="1,2",
         SHORTLIST=2, MEMBER_STEPS_SST2=1, OOD_TEXT=f"far/owls={tmp_path / 'ood.csv'}", NEW_CLASSIFIER="zeros",
         OOD_TEXT_SEARCH=tmp_path / "search.csv", FINETUNE="--device cpu --set batch=4")  # fmt: skip
    assert models(tmp_path, "sst2-select") == [
        "dense", "tuned", "untrained", "hydra", "deep-ensemble", "exposed", "exposed-hydra",
    ]  # fmt: skip


def write_texts(folder: Path, texts: int = 3) -> None:
    """Labelled texts of two splits, `texts` of each label."""
    folder.mkdir()
    for split, words in (("train", ("good film", "bad film", "a owl")), ("validation", ("good", "bad", "owl film"))):
        rows = [f"{text} {'a ' * n}a,{label}" for n in range(texts) for text, label in zip(words, LABELS, strict=True)]
        (folder / f"{split}.csv").write_text("\n".join(["sentence,label", *rows]))


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("torch_uncertainty") is None or find_spec("lightning") is None,
    reason="torch-uncertainty and lightning, without which it cannot be imported, are not installed",
)
def test_packed_and_mimo_join_the_table(tmp_path: Path) -> None:
    done = make(tmp_path, "baselines", QUICK=1)
    assert models(tmp_path, "baselines") == ["packed", "mimo"]
    assert (tmp_path / "build" / "baselines" / "table.txt").read_text() in done.stdout


@pytest.mark.slow
def test_the_digits_example_runs_through(tmp_path: Path) -> None:
    done = make(tmp_path, "digits", "digits-steps", STEPS=300, MEMBER_STEPS=20, BUILD_STEPS=5)
    build = tmp_path / "build"
    built = json.loads((build / "built" / "work" / "build.json").read_text())
    assert built["verdict"].startswith("hydra against network: ")
    assert models(tmp_path, "built/report") == ["network", "hydra"]
    report = json.loads((build / "report.json").read_text())
    assert list(report["models"]) == ["single", "tuned", "acc", "ood", "avg", "hydra", "unmerged", "untuned"]
    single, hydra = report["models"]["single"], report["models"]["hydra"]
    assert single["id"]["accuracy"] > 0.5
    assert (single["cost"]["members"], hydra["cost"]["members"]) == (1, 3)
    assert single["cost"]["parameters"] < hydra["cost"]["parameters"] < 3 * single["cost"]["parameters"]
    assert (build / "table.txt").read_text() in done.stdout
    assert len(list((build / "data").rglob("*.png"))) > 1797  # every digit of scikit-learn, and the photographs
