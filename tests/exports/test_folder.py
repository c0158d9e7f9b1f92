"""An exported Hydra is a model of transformers like any other, where this project is installed and where it is not."""

import base64
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import yaml
from accelerate.state import AcceleratorState
from markdown_it import MarkdownIt
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

import hydractl.auto  # importing it is what makes the automatic classes find the folders
from hydractl.checkpoint.calibration import Calibration
from hydractl.checkpoint.contents import Checkpoint
from hydractl.exports.folder import model_card, write_hydra
from hydractl.families.load import read_checkpoint
from hydractl.model.hydra import from_checkpoint
from hydractl.ood.ood_scores import OOD_SCORES
from hydractl.reports.page import report_json
from hydractl.surgery.fusion import fuse
from hydractl.tasks.all_tasks import find_task
from hydractl.text import printable
from tests.checkpoint.test_calibration import with_ood
from tests.cli.conftest import save_tokenizer
from tests.conftest import build_reference
from tests.data.tokenizers_and_processors import WORDS
from tests.exports.test_graph import assert_same_score
from tests.hostile import controls, generated
from tests.references import CLASSES as COUNT
from tests.references import Reference, uneven_members
from tests.reports.test_formats import SETS, SYSTEMS, markdown_rows, plain, report_of

LABELS = tuple("abcde")
PROCESSOR = {"image_processor_type": "ViTImageProcessor", "size": {"height": 12, "width": 12}}
PROCESSOR |= {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}


def hydra_of(reference: Reference, folder: Path, separate: tuple[str, ...] = ()) -> Checkpoint:
    fused = fuse(uneven_members(read_checkpoint(reference.save(folder))), separate)
    labels = LABELS if fused.spec.task != "zero-shot" else None
    processor = {"preprocessor_config.json": PROCESSOR} if fused.spec.towers[0].name == "vision" else {}
    return replace(fused, labels=labels, preprocessing=fused.preprocessing or processor)


def automatic_class(checkpoint: Checkpoint) -> Any:
    return getattr(transformers, find_task(checkpoint.spec.task).names.automatic)


def test_loads_by_its_automatic_class_and_answers_the_same(family_reference: Reference, tmp_path: Path) -> None:
    checkpoint = replace(hydra_of(family_reference, tmp_path / "theirs", ("classifier",)), calibration=Calibration(1.5))
    write_hydra(checkpoint, tmp_path / "hydra")
    kind, options = automatic_class(checkpoint), {"dtype": torch.float64, "output_loading_info": True}
    model, info = kind.from_pretrained(tmp_path / "hydra", **options)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    expected = from_checkpoint(checkpoint)(**family_reference.inputs)
    output = model(**family_reference.inputs)
    logits = output.logits_per_image if "logits_per_image" in output else output.logits
    assert_close(logits, expected.logits, rtol=0, atol=1e-12)
    assert_close(output.member_logits.transpose(0, 1), expected.member_logits, rtol=0, atol=1e-12)
    model.save_pretrained(tmp_path / "again")
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("hydra", "again"))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    files = [{path.name for path in (tmp_path / name).glob("*.py")} for name in ("hydra", "again")]
    assert files[0] == files[1] != set()


@pytest.mark.parametrize("score", [score.name for score in OOD_SCORES])
def test_a_calibrated_folder_gives_score_and_typicality(score: str, tmp_path: Path) -> None:
    reference = build_reference("vit", dtype=torch.float32)
    checkpoint = with_ood(hydra_of(reference, tmp_path / "theirs"), score)
    write_hydra(checkpoint, tmp_path / "hydra")
    model, info = automatic_class(checkpoint).from_pretrained(tmp_path / "hydra", output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    model.save_pretrained(tmp_path / "again")
    expected = from_checkpoint(checkpoint)(**reference.inputs)
    half = automatic_class(checkpoint).from_pretrained(tmp_path / "hydra", dtype=torch.bfloat16)
    assert {buffer.dtype for buffer in half.hydra.ood_head.buffers()} == {torch.float32}
    for one in (model, automatic_class(checkpoint).from_pretrained(tmp_path / "again")):
        found = one(**reference.inputs)
        assert_same_score(found.ood_score, expected.ood_score)
        assert_close(found.typicality, expected.typicality, rtol=0, atol=1e-6)


ALONE = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "hydractl":
            raise ModuleNotFoundError("No module named 'hydractl'", name="hydractl")

sys.meta_path.insert(0, Absent())
import torch, transformers
from safetensors.torch import load_file, save_file

folder, automatic = sys.argv[1:]
model = getattr(transformers, automatic).from_pretrained(folder, trust_remote_code=True, dtype=torch.float64)
inputs = load_file(f"{folder}/../inputs.safetensors")
with torch.no_grad():
    output = model(**inputs)
logits = output.logits_per_image if "logits_per_image" in output else output.logits
model.save_pretrained(f"{folder}/../again")
again = getattr(transformers, automatic).from_pretrained(f"{folder}/../again", trust_remote_code=True)
save_file({"logits": logits.contiguous()}, f"{folder}/../logits.safetensors")
print(type(model).__module__)
"""


@pytest.mark.parametrize("name", ["vit", *(pytest.param(name, marks=pytest.mark.slow) for name in ("roberta", "clip"))])
def test_loads_where_this_project_is_not(name: str, tmp_path: Path) -> None:
    reference = build_reference(name)
    checkpoint = hydra_of(reference, tmp_path / "theirs")
    write_hydra(checkpoint, tmp_path / "hydra")
    save_file(reference.inputs, tmp_path / "inputs.safetensors")
    result = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path / "hydra"), find_task(checkpoint.spec.task).names.automatic],
        capture_output=True,
        text=True,
        env={"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "PATH": "", "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("transformers_modules.")
    expected = from_checkpoint(checkpoint)(**reference.inputs).logits
    assert_close(load_file(tmp_path / "logits.safetensors")["logits"], expected, rtol=0, atol=1e-12)


def test_pipeline_gives_the_mean_of_the_members_probabilities(tmp_path: Path) -> None:
    for name in ("vit", "timm"):
        checkpoint = hydra_of(build_reference(name, dtype=torch.float32), tmp_path / name)
        write_hydra(checkpoint, tmp_path / f"{name}-hydra")
        pipe = transformers.pipeline("image-classification", str(tmp_path / f"{name}-hydra"))
        image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8))
        answer = {entry["label"]: entry["score"] for entry in pipe(image, top_k=COUNT)}
        pixels = pipe.image_processor([image], return_tensors="pt")["pixel_values"]
        expected = from_checkpoint(checkpoint)(pixel_values=pixels).probabilities[0].tolist()
        assert answer == pytest.approx(dict(zip(LABELS, expected, strict=True)), abs=1e-6)


def test_a_pipeline_answers_images_as_predict_does(tmp_path: Path) -> None:
    checkpoint = with_ood(hydra_of(build_reference("vit", dtype=torch.float32), tmp_path / "vit"), "msp")
    write_hydra(checkpoint, tmp_path / "hydra")
    kind = hydractl.auto.ImagePipeline
    assert "hydractl.auto.ImagePipeline" in (tmp_path / "hydra" / "README.md").read_text()
    pipe = transformers.pipeline("image-classification", str(tmp_path / "hydra"), pipeline_class=kind)
    model, exif = hydractl.load(checkpoint), Image.Exif()
    exif[0x0112] = 6
    random = np.random.default_rng(0)
    images = [
        Image.fromarray(random.integers(0, 256, (20, 30, 4), dtype=np.uint8)),
        Image.fromarray(random.integers(0, 65536, (20, 30), dtype=np.uint16)),
        Image.fromarray(random.integers(0, 256, (20, 30, 3), dtype=np.uint8)),
    ]
    for number, image in enumerate(images):
        path = tmp_path / f"{number}.png"
        image.save(path, exif=exif)
        expected = model.predict(path)
        probabilities = dict(zip(LABELS, expected.probabilities[0].tolist(), strict=True))
        spelled = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
        for answers in pipe([str(path), Image.open(path), spelled], batch_size=2, top_k=COUNT):
            assert {entry["label"]: entry["score"] for entry in answers} == pytest.approx(probabilities, abs=1e-6)
            assert {entry["ood"] for entry in answers} == set(expected.ood.tolist())
            assert answers[-1]["typicality"] == pytest.approx(expected.typicality.item(), abs=1e-6)


@pytest.mark.parametrize("names", [("vocab.txt",), ("tokenizer.json",)])
def test_files_that_name_no_class_are_opened_as_at_their_source(names: tuple[str, ...], tmp_path: Path) -> None:
    """By the `model_type` of config.json, which is another one in the folder of a Hydra."""
    source, hydra = build_reference("bert", dtype=torch.float32).save(tmp_path / "theirs"), tmp_path / "hydra"
    save_tokenizer(source, WORDS)
    for path in {*source.glob("*token*"), source / "vocab.txt"} - {source / name for name in names}:
        path.unlink(missing_ok=True)
    (source / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    theirs, text = transformers.AutoTokenizer.from_pretrained(source), "A Film good"
    write_hydra(read_checkpoint(source), hydra)
    assert transformers.AutoTokenizer.from_pretrained(hydra)(text)["input_ids"] == theirs(text)["input_ids"]
    assert len(set(theirs(text)["input_ids"])) > 3


@pytest.mark.parametrize("nested", [False, True])
def test_an_image_processor_that_names_no_class_is_its_models(nested: bool, tmp_path: Path) -> None:
    settings = {"size": 12, "image_mean": [0.5, 0.4, 0.3]}
    files = (
        {"processor_config.json": {"image_processor": settings}} if nested else {"preprocessor_config.json": settings}
    )
    write_hydra(replace(hydra_of(build_reference("vit"), tmp_path / "vit"), preprocessing=files), tmp_path / "hydra")
    opened = transformers.AutoImageProcessor.from_pretrained(tmp_path / "hydra")
    assert type(opened) is transformers.ViTImageProcessor and list(opened.image_mean) == [0.5, 0.4, 0.3]


def test_a_zero_shot_pipeline_fills_texts_where_padding_is_text(tmp_path: Path) -> None:
    source = build_reference("siglip-zero-shot", dtype=torch.float32).save(tmp_path / "theirs")
    save_tokenizer(source, WORDS, model_max_length=7)
    (source / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    image, labels = Image.new("RGB", (20, 30), (9, 200, 80)), ["good", "bad film"]
    model = hydractl.load(source)
    model.set_classes(labels, "{label}")
    hydractl.export(source, format="hf", as_hydra=True, output=tmp_path / "hydra")
    pipe = transformers.pipeline("zero-shot-image-classification", str(tmp_path / "hydra"))
    answers = {
        entry["label"]: entry["score"] for entry in pipe(image, candidate_labels=labels, hypothesis_template="{}")
    }
    assert [answers[label] for label in labels] == pytest.approx(
        model.predict(image).probabilities[0].tolist(), abs=1e-6
    )


def test_trainer_trains_it(tmp_path: Path) -> None:
    checkpoint = hydra_of(build_reference("bert", dtype=torch.float32), tmp_path / "theirs")
    write_hydra(checkpoint, tmp_path / "hydra")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hydra")
    rows = [{"input_ids": [2 + i, 5, 9], "attention_mask": [1, 1, 1], "labels": i % COUNT} for i in range(7)]
    arguments = transformers.TrainingArguments(
        str(tmp_path / "run"), max_steps=8, learning_rate=5e-3, per_device_train_batch_size=7, report_to=[],
        use_cpu=True, save_strategy="no", per_device_eval_batch_size=3, disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    try:
        trainer = transformers.Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)
        before = trainer.evaluate()["eval_loss"]
        trainer.train()
        assert trainer.evaluate()["eval_loss"] < before
        assert trainer.predict(rows).predictions[0].shape == (7, COUNT)
    finally:  # transformers sets accelerate up for the whole process
        AcceleratorState._reset_state(reset_partial_state=True)


FRONT = {
    "library_name": "transformers",
    "pipeline_tag": "image-classification",
    "tags": ["hydractl", "ensemble", "uncertainty"],
}
SECTIONS = ["Hydra ensemble", "Loading", "Members and heads", "Origin"]


@generated(SYSTEMS, SETS)
def test_names_stay_names(dense: Checkpoint, systems: list[str], sets: list[str]) -> None:
    made = {"command": systems[0], systems[-1]: {sets[0]: sets[-1]}, "inputs": [{"source": name} for name in sets]}
    named = replace(dense, labels=(*systems, *sets), provenance=made)
    card = model_card(named, report_json(report_of(systems, sets)), "AutoModel")
    assert not controls(card)
    assert dense.name not in card
    _, head, body = card.split("---\n", 2)
    assert yaml.safe_load(head) == FRONT
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(body)
    headings = [plain(tokens[place + 1]) for place, token in enumerate(tokens) if token.type == "heading_open"]
    assert headings == [*SECTIONS, *(f"Results of {printable(name).strip()}".strip() for name in systems)]
    rows = list(markdown_rows(tokens))
    assert {len(row) for row in rows} == {2}
    assert [plain(row[0]) for row in rows].count("metric") == len(systems)
    of_sets = [row for row in rows if plain(row[0]).startswith("ood") and plain(row[0]).endswith("auroc")]
    assert len(of_sets) == len(systems) * len(sets)
