"""The scripts among the examples that take a network: studies of rules and of scores, and the benchmarks."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import ViTForImageClassification, ViTImageProcessor

import hydractl as library
from hydractl.data.open import open_samples
from hydractl.data.reading import Reading
from tests.cli.conftest import half_known, save_bert, save_circuit, save_images
from tests.factories import save_encoder, texts

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.slow
SCORES = ("msp", "mahalanobis", "layers")


def run(script: str, *arguments: object) -> str:
    """What a script prints."""
    command = [sys.executable, EXAMPLES / script, *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def table(text: str) -> dict[str, dict[str, float]]:
    """The Markdown table that the script prints: figures by column, by row."""
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {row[0]: dict(zip(header[1:], map(float, row[1:]), strict=True)) for row in rows}


def test_networks_that_are_equal_are_rarely_recommended() -> None:
    [found] = table(run("tables/equal_networks.py", 60, 200, 150)).values()
    assert found['"Deploy hydra" %'] <= 5 < found["an interval shows a gain %"]


def test_choices_are_measured_and_answers_are_kept(vit: Path, noise: Path, tmp_path: Path) -> None:
    images = save_images(tmp_path / "many", count=12)
    circuit = save_circuit(tmp_path / "avg.json", (0, 0), (1, 0), (1, 1), (1, 2), (0, 3), objective="avg")
    answers = tmp_path / "answers.npz"
    study = [vit, images, "--circuit", circuit, "--test-ood", f"labels={noise}",
             "--budgets", "1,2", "--pools", "4", "--draws", "2", "--choose", 12, "--splits", 2,
             "--answers", answers]  # fmt: skip
    said = run("tables/selection_study.py", *study, "--random", 2)
    header, _, *rows = said.splitlines()
    assert header == "| among | accuracy, points | NLL | mean AUROC, points |"
    assert len(rows) == 4 and all(row.count("±") == 3 for row in rows)
    with pytest.raises(AssertionError, match="holds other candidates"):  # than those whose answers are kept
        run("tables/selection_study.py", *study, "--random", 3)


def test_whole_searches_are_timed(vit: Path, images: Path, noise: Path) -> None:
    lines = run("benchmarks/whole_search.py", vit, images, noise, "--objective=acc", "--budget=2").splitlines()
    assert re.fullmatch(r"naive +[\d.]+ s: 15 candidates of [\d.]+, [\d.]+ s", lines[1])
    assert re.fullmatch(r"exact +[\d.]+ s: naive / exact [\d.]+", lines[2])


def test_candidates_are_timed_together_and_apart(vit: Path, tmp_path: Path) -> None:
    circuit = save_circuit(tmp_path / "c.json", *((layer, head) for layer in (1, 0) for head in range(4)))
    options = ("--candidates=4", "--share=50%", "--batch=2", "--repeats=1")
    _, layers, _, logits = run("benchmarks/candidates.py", vit, circuit, *options).splitlines()
    # All heads that leave are of the last layer: the first is computed once, the last four times.
    assert layers == "layers computed: 0.62 of those of each alone"
    assert float(logits.rpartition(" ")[2]) < 1e-5


def test_training_is_timed_beside_transformers(tmp_path: Path) -> None:
    rows = [f"{word * n},{label}" for label, word in enumerate(("cat ", "dog ", "owl ")) for n in range(1, 9)]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *rows]))
    options = ("--steps=4", "--batch=4", "--repeats=1")
    said = run("benchmarks/finetune_speed.py", save_bert(tmp_path / "bert"), tmp_path / "texts.csv", *options)
    losses = re.findall(r"(?m)^(?:hydractl|Trainer): [\d.]+ samples a second, mean loss ([\d.]+)$", said)
    assert len(losses) == 2 and all(0.5 < float(loss) < 2 for loss in losses), said
    assert re.search(r"(?m)^ratio: [\d.]+$", said)


def test_forms_of_a_score_over_layers_are_measured_once(vit: Path, noise: Path, tmp_path: Path) -> None:
    images = save_images(tmp_path / "many", count=16)
    cache = tmp_path / "cache"
    study = ["tables/layers/study.py", vit, "--id-data", images, "--ood-data", f"noise={noise}", "--unequal", "noise",
             "--cache", cache, "--quick"]  # fmt: skip
    said = run(*study)
    titles = [line[4:] for line in said.splitlines() if line.startswith("### ")]
    assert len(titles) == 9
    assert "| kept in float16 |" in said
    kept = {path.name: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert run(*study) == said and kept == {path.name: path.stat().st_mtime_ns for path in cache.iterdir()}
    # The reference is transformers' own hidden states: embeddings and two layers, of patches.
    model, processor = ViTForImageClassification.from_pretrained(vit), ViTImageProcessor.from_pretrained(vit)
    grey = processor([Image.open(path) for path in sorted(noise.iterdir())], return_tensors="pt")
    with torch.inference_mode():
        states = model(**grey, output_hidden_states=True).hidden_states
    with np.load(cache / "noise-as-it-is.npz") as found:
        expected = torch.stack(states, 1)[:, :, 1:].mean(2)
        np.testing.assert_allclose(found["mean"], expected, atol=1e-5)


def test_our_sum_over_layers_is_that_of_pytorch_ood(vit: Path, noise: Path, tmp_path: Path) -> None:
    images = save_images(tmp_path / "many", count=40)
    said = run("tables/layers/study.py", vit, "--id-data", images, "--ood-data", f"noise={noise}",
               "--cache", tmp_path / "cache", "--fit", 60, "--tables", "peers")  # fmt: skip
    assert float(re.search(r"to MultiMahalanobis: (\S+)", said)[1]) < 1e-6


def test_systems_stand_beside_each_other_by_one_layer_and_by_all(vit: Path, noise: Path, tmp_path: Path) -> None:
    images = half_known(vit, save_images(tmp_path / "many", count=40))
    asked = ["tables/layers/table.py", f"one={vit}", f"two={vit}", "--calib-data", f"{images}%1/2", "--id-data",
             f"{images}%2/2", "--ood-data", f"near/n={noise}", "-o", tmp_path / "out"]  # fmt: skip
    said = run(*asked)
    rows = [line.split("|")[1:-1] for line in said.splitlines() if line.startswith(("| one", "| two"))]
    assert [row[0].strip() for row in rows[:6]] == [f"{name}, {score}" for name in ("one", "two") for score in SCORES]
    assert rows[6][0].strip() == "one, layers less one, msp"
    assert [cell.strip() for cell in rows[-1][1:3]] == ["+0.0 (+0.0 to +0.0)"] * 2  # two and one are the same network
    assert run(*asked) == said  # the predictions of a first run are used again


def test_refits_stand_beside_plain_members(vit: Path, tmp_path: Path) -> None:
    images = half_known(vit, save_images(tmp_path / "many", count=24))
    said = run("tables/refit.py", vit, f"--fit={images}", f"--test={images}", "--heads=2,3", "--forms")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines()[2:]]
    forms = 7  # plain, refitted, with MLPs, by three ridges, on fewer inputs
    assert len(rows) == 1 + 2 * forms and all(row[1].count(";") == 2 for row in rows[1:])
    assert rows[1][0] == "2, plain" and rows[1][1] != rows[2][1]


def test_refits_stand_beside_circuits_and_members_in_doubt(vit: Path, noise: Path, tmp_path: Path) -> None:
    images = half_known(vit, save_images(tmp_path / "many", count=36))
    circuit = save_circuit(tmp_path / "acc.json", (0, 0), (1, 0), (1, 1), objective="acc")
    study = ["tables/refit_study.py", vit, f"--fit={images}", f"--test={images}", f"--output={tmp_path / 'answers'}"]
    rows = [line.split("|") for line in run(*study).splitlines()[3:]]
    systems, shares, forms = 3, 7, 2
    assert len(rows) == systems * shares * forms
    for row in rows[shares - 1 :: shares]:  # where all are asked
        assert row[2].strip() == row[4].strip() == "100" and row[8].strip().startswith("100")
    said = run(*study, "--table=circuits", f"--ood={noise}", f"--circuit={circuit}", "--heads=2")
    found = [line.split("|")[1].strip() for line in said.splitlines() if line.startswith("| 2, ")]
    kinds = ["taylor0", "circuit0", "random, mean", "three random", "circuits together"]
    assert found == 2 * [f"2, {kind}" for kind in kinds]  # plain, then refitted
    said = run(*study, "--table=inputs", f"--ood={noise}", "--heads=2", "--counts=9", "--inputs=18")
    found = [line.split("|")[1].strip() for line in said.splitlines() if line.startswith("| 2, ")]
    rows = ["fixed", "chosen", "chosen, to fixed", "chosen, to 18"]
    assert found == [f"2, {count}, {row}" for count in (18, 9) for row in rows]
    said = run(*study, "--table=searched", f"--ood={noise}", f"--search-ood={noise}", "--heads=2", "--step=1")
    ways = ["taylor", "acc", "ood", "avg", "three circuits", "random, refitted at the end, mean", "three of these"]
    found = [line.split("|")[1].strip() for line in said.splitlines() if line.startswith("| 2, ")]
    assert found == [f"2, {way}" for way in ways] + [f"2, {way}, to random" for way in ways]
    peers = run("tables/refit_peers.py", *study[1:], f"--ood={noise}").splitlines()[3:]
    forms = [[cell.strip() for cell in row.split("|")[1:4]] for row in peers]
    assert [form for _, form, _ in forms[:3]] == ["plain", "mean shift", "refitted"] and len(forms) % 3 == 0


def test_training_starts_from_plain_and_from_refitted_members(vit: Path, noise: Path, tmp_path: Path) -> None:
    images = half_known(vit, save_images(tmp_path / "many", count=24))
    asked = ["tables/refit_training.py", vit, f"--fit={images}", f"--test={images}", f"--train={images}",
             f"--output={tmp_path / 'answers'}", f"--ood={noise}", "--heads=2", "--members=2", "--merge=1", "--set",
             "batch=4", "--steps", 0, 1]  # fmt: skip
    said = run(*asked)
    rows = [line.split("|")[1].strip() for line in said.splitlines()[4:]]
    systems, forms, differences = 2, 2, 2
    assert len(rows) == 2 * (systems * forms + differences) + 2 + 2  # of both lengths; merged; earlier to later
    assert run(*asked) == said  # what is trained is not trained again
    fused = run(*asked[:-5], "--units=8", "--trunk=1", f"--output={tmp_path / 'fused'}", *asked[-5:])
    assert [line.split("|")[2].strip() for line in fused.splitlines()[4:]] == ["fused"] * (2 * forms + 2 + 1)


def test_encoders_stand_beside_what_was_pruned_and_taught(tmp_path: Path) -> None:
    table = texts(np.random.default_rng(5), 1160)
    for name, rows in (("train", range(1100)), ("test", range(1100, 1160))):
        table.select(rows).to_csv(tmp_path / f"{name}.csv")
    asked = [save_encoder(tmp_path / "st"), tmp_path / "out", "--steps", 2, "--budget", 3]
    said = run("tables/embeddings.py", *asked, "--texts", tmp_path / "train.csv", tmp_path / "test.csv")
    assert "| Hydra of three at random, taught |" in said


def test_images_get_the_form_of_others(noise: Path, tmp_path: Path) -> None:
    like = tmp_path / "like" / "one.jpg"
    like.parent.mkdir()
    Image.new("RGB", (7, 5)).save(like, quality=40)
    run("tables/layers/alike.py", noise, like.parent, tmp_path / "alike.parquet", "--limit", 3)
    made = open_samples(tmp_path / "alike.parquet", "image", Reading())
    with Image.open(like) as expected:
        assert [(one.size, one.quantization) for one in made.inputs] == [((7, 5), expected.quantization)] * 3


def test_coverage_is_near_what_is_promised(vit: Path, tmp_path: Path) -> None:
    images = save_images(tmp_path / "many", count=60)
    said = run("tables/layers/coverage.py", vit, "--id-data", images, "--sizes", 100, "--draws", 3, "--accept", 0.8)
    _, accepted, *_ = [cell.strip() for cell in said.splitlines()[-1].split("|")[1:-1]]
    assert 60 < float(accepted) < 95


def test_rules_choose_a_score_by_ood_sets(vit: Path, tmp_path: Path) -> None:
    images, *odd = (save_images(tmp_path / name, count=40, seed=seed) for seed, name in enumerate(("many", "a", "b")))
    asked = ["tables/layers/choice.py", vit, "--id-data", images, "--sizes", "70", "--draws", "1", "--ood-data"]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in run(*asked, *odd).splitlines()[2:]]
    chosen = {rule: scores for _, rule, _, scores in rows}
    assert (len(rows), chosen["the default always"], chosen["MSP always"]) == (5, "layers 2", "msp 2")


def test_the_drill_prints_what_each_number_says(tmp_path: Path) -> None:
    header, _, *rows = run("drill.py", tmp_path / "drill", 80).splitlines()
    assert [row.split("|")[1].strip() for row in rows] == ["all is well", "out of focus", "new classes", "mostly zeros"]
    assert all(row.count("|") == header.count("|") for row in rows)


def test_runtimes_are_timed_in_parts(tmp_path: Path) -> None:
    asked = ["benchmarks/runtimes.py", tmp_path, "--quick", "--batches", 1]
    assert "skipped: bert, 4 tokens, batch 1: takes" in run(*asked, "--networks", "bert", "--minutes", 0)
    run(*asked, "--networks", "vit-s")
    first = json.loads((tmp_path / "quick" / "table.json").read_text())["cells"]
    assert "times vit-s" not in run(*asked)
    cells = json.loads((tmp_path / "quick" / "table.json").read_text())["cells"]
    assert list(cells) == ["vit-s, batch 1", "bert, 4 tokens, batch 1", "bert, 8 tokens, batch 1"]
    assert cells["vit-s, batch 1"] == first["vit-s, batch 1"]
    runtimes = ("ours", "ours bf16", "onnxruntime", "int8")
    systems = {f"{kind}, {one}" for kind in ("dense", "hydra", "units") for one in runtimes}
    for cell in cells.values():
        assert cell["rounds"] >= 3 and set(cell["counted"]) == {*systems, "dense, transformers"}
        assert 0.99 < cell["counted"]["units, int8"] < 1.01 < 1.5 < cell["counted"]["hydra, ours"]
        assert set(cell["processor_ms"]) == set(cell["wall_ms"]) == set(cell["counted"])
    rows = (tmp_path / "quick" / "table.md").read_text().splitlines()
    assert len(rows) == 2 + 3 * len(cells) and len({row.count("|") for row in rows}) == 1


def test_runtimes_are_limited_by_their_switches(tmp_path: Path) -> None:
    run("benchmarks/runtimes.py", tmp_path, "--quick", "--batches", 1, "--networks", "vit-s", "--avx2")
    found = json.loads((tmp_path / "quick" / "table-avx2.json").read_text())
    [cell] = found["cells"].values()
    assert found["environment"]["switches"]["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert "dense, ours" in cell["wall_ms"] and "dense, ours bf16" not in cell["wall_ms"]


def test_studies_of_sets_read_what_an_evaluation_saved(vit: Path, images: Path, tmp_path: Path) -> None:
    library.evaluate({"one": vit}, id_data=images, bootstrap=0, save_logits=tmp_path / "saved")
    named = f"one={tmp_path / 'saved'}"
    rows = [line.split(" | ") for line in run("tables/sets_study.py", "--splits", 1, named).splitlines()[2:]]
    assert [row[1] for row in rows[:5]] == ["LAC", "LAC by class", "APS", "APS by class", "LAC as large"]
    covered = {row[1]: float(row[2]) for row in rows[5:10]}  # of 100 classes
    assert 93 < covered["LAC"] < 97 and covered["APS"] > covered["LAC"]


def test_false_alarms_of_check_are_counted(vit: Path, tmp_path: Path) -> None:
    images = save_images(tmp_path / "many", count=30)
    rows = run("tables/check_splits.py", vit, images, "sets=50%", "--fit", 40, "--splits", 2).splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| accept", "| sets", "| any"] and " of 2 (" in rows[-1]


def test_bulk_predict_measures_each_number_of_workers(vit: Path) -> None:
    rows = run("benchmarks/bulk_predict.py", vit, "--rows", 300, "--workers", 0, 1).splitlines()[2:]
    assert [row.split(" | ")[:2] for row in rows] == [["| 300", "0"], ["| 300", "1"]]
