"""`hydractl.evaluate` measures what the command measures, of paths, loaded models and values alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from PIL import Image

import hydractl as library
from hydractl.artifacts import seen_from
from hydractl.errors import OptionError
from hydractl.evaluation import run
from hydractl.steps.evaluate import named_systems
from hydractl.steps.report import report
from tests.cli.conftest import LABELS, Command, save_images, save_vit
from tests.cli.test_evaluate_kinds import save_clip


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vit(tmp_path_factory.mktemp("models") / "other", seed=1)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in."""
    folder = tmp_path / "nowhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_python_and_the_command_say_the_same(
    hydractl: Command, vit: Path, other: Path, images: Path, noise: Path, tmp_path: Path
) -> None:
    held = save_images(tmp_path / "held", count=3, seed=5)
    found = library.evaluate(
        {"single": vit, "both": [vit, other], "mc": f"{vit},mc-dropout=2,p=0.2"},
        id_data=f"pets={images}",
        ood_data={"far/n": str(noise)},
        calib_data=held,
        shift_data={"fog/3": str(held)},
        corrupt="contrast:5",
        temperature="fit",
        conformal="lac",
        bootstrap=5,
        batch_size=5,
        allow_leak=True,
    )
    systems = (f"single={vit}", f"both={vit}+{other}", f"mc={vit},mc-dropout=2,p=0.2")
    data = ("--id-data", f"pets={images}", "--ood-data", f"far/n={noise}", "--calib-data", held)
    shifted = ("--shift-data", f"fog/3={held}", "--corrupt", "contrast:5")
    options = ("--temperature=fit", "--conformal=lac", "--bootstrap=5", "--batch-size=5", "--allow-leak")
    result = hydractl("evaluate", *systems, *data, *shifted, *options, "--json", tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text()) == seen_from(tmp_path, found.to_json())
    assert result.out.splitlines() == list(found.lines())


def test_nothing_is_written_unless_asked_for(vit: Path, images: Path, nowhere: Path) -> None:
    found = library.evaluate(vit, id_data=images)
    assert list(found.models) == ["vit"]
    assert list(nowhere.iterdir()) == []
    again = library.evaluate(vit, id_data=images, json="r.json", report="page", save_logits="logits")
    assert {path.name for path in nowhere.iterdir()} == {"r.json", "page", "logits"}
    named = seen_from(nowhere, found.to_json())
    assert json.loads(Path("r.json").read_text()) == named == seen_from(nowhere, again.to_json())
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
    assert page.startswith("<table>") and page.count("<tr>") == 4
    assert "<th>&lt;a&gt;</th>" in page and "<b>" in page
    assert "OOD is positive" in page
    whole = library.evaluate({"a": vit, "b": other}, id_data=images, ood_data=str(noise), full=True)
    assert "AUPR" in repr(whole) and "AUPR" in whole._repr_html_() and "AUPR" not in page


def test_an_interruption_leaves_what_was_finished(
    vit: Path, other: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduce, calls = run._reduce, []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return reduce(*args, **kwargs)

    monkeypatch.setattr(run, "_reduce", interrupted)
    with pytest.raises(KeyboardInterrupt) as raised:
        library.evaluate([vit, other], id_data=images)
    part = raised.value.partial  # type: ignore[attr-defined]
    assert list(part.models) == ["vit"] and part.report.complete is False


def test_options_are_called_by_their_names(vit: Path, images: Path, tmp_path: Path) -> None:
    for options, message in (
        ({"temperature": 0}, "`temperature` 0: expected 0.0001 to 10000"),
        ({"temperature": "fit"}, "`temperature` fit needs held-out labelled data: pass `calib_data`"),
        ({"conformal": "aps", "ood_score": "knn"}, "`conformal` and `ood_score` knn need held-out"),
        ({"ood_score": "odin"}, "`ood_score` odin: expected msp or"),
        ({"resume": True}, "`resume` takes up what `save_logits` has saved: pass both"),
        ({"streaming": True, "allow_leak": True}, "leave `streaming` out"),
        ({"bootstrap": -1}, "`bootstrap` -1: expected 0 to 100000"),
    ):
        with pytest.raises(OptionError, match=message):
            library.evaluate(vit, id_data=images, **options)
    with pytest.raises(OptionError, match="`id_data` is missing"):
        library.evaluate(vit)
