"""`hydractl.evaluate` measures what the command measures, of paths, loaded models and values alike."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
from PIL import Image

import hydractl as library
from hydractl.artifacts import seen_from
from hydractl.steps.evaluate import named_systems
from hydractl.steps.report import report
from tests.cli.conftest import LABELS, save_clip


def test_nothing_is_written_unless_asked_for(vit: Path, images: Path, here: Path) -> None:
    library.evaluate(vit, id_data=images)
    assert list(here.iterdir()) == []
    found = library.evaluate(vit, id_data=images, json="r.json", report="page", save_logits="logits")
    assert {path.name for path in here.iterdir()} == {"r.json", "page", "logits"}
    named = seen_from(here, found.to_json())
    assert json.loads(Path("r.json").read_text()) == named
    assert report(["r.json"]).models == named["models"]


def test_models_and_data_as_values(vit: Path, other: Path, images: Path, noise: Path) -> None:
    paths = [(path, label) for label in LABELS for path in sorted((images / label).iterdir())]
    pairs = [(Image.open(path).convert("RGB"), label) for path, label in paths]
    far = datasets.Dataset.from_dict({"image": [str(path) for path in sorted(noise.iterdir())]})
    expected = library.evaluate({"a": vit, "b": [vit, other]}, id_data=images, ood_data={"n": noise})
    loaded = library.load(vit).optimize_for_inference()
    given = {"a": loaded, "b": [loaded, library.load(other)]}
    found = library.evaluate(given, id_data=pairs, ood_data={"n": far}, match_labels="name")
    for name in ("a", "b"):
        assert found.models[name]["id"] == expected.models[name]["id"]
        assert found.models[name]["ood"] == expected.models[name]["ood"]
        assert found.models[name]["model"]["sha256"] == expected.models[name]["model"]["sha256"]


def test_a_zero_shot_model_keeps_the_classes_it_was_told(tmp_path: Path, images: Path) -> None:
    clip = save_clip(tmp_path / "clip", 0)
    model = library.load(clip)
    model.set_classes(LABELS, "{label} a")
    told, anew = library.evaluate({"told": model, "anew": clip}, id_data=images, template="{label}").models.values()
    same = library.evaluate(clip, id_data=images, template="{label} a").models["clip"]
    assert told["id"] == same["id"] != anew["id"]


def test_names_of_systems(vit: Path, other: Path) -> None:
    assert [name for name, _ in named_systems(vit)] == ["vit"]
    assert [name for name, _ in named_systems([str(vit), f"x={other}", [vit, other]])] == ["vit", "x", "vit+other"]
    loaded = library.load(vit)
    assert [name for name, _ in named_systems(loaded)] == ["vit"]
    assert [name for name, _ in named_systems({"mine": f"{vit}+{other}"})] == ["mine"]


def test_a_result_reads_well(vit: Path, other: Path, images: Path, noise: Path) -> None:
    found = library.evaluate({"<a>": vit, "b": other}, id_data=images, ood_data=str(noise))
    assert "AUROC %" in repr(found) and repr(found) == "\n".join(found.lines())
    page = found._repr_html_()
    assert page.count("<tr>") == 3 and "<td>&lt;a&gt;</td>" in page and "AUPR" not in page
