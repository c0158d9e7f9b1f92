import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

import hydractl as library
from hydractl.errors import DataError, OptionError, OutputError
from hydractl.evaluation.probes import IMAGE_PROBES, TEXT_PROBES
from hydractl.families.load import read_checkpoint, write_checkpoint
from tests.cli.conftest import WORDS, Command, half_known, save_bert, save_clip, save_images, save_vit
from tests.factories import KINDS, NUMBERS, Kind, pixels

IMAGES, TEXTS = ({probe.name for probe in probes} for probes in (IMAGE_PROBES, TEXT_PROBES))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated file that knows half of its images, the same images, others like them, and grey ones."""
    folder = tmp_path_factory.mktemp("checked")
    save_vit(folder / "vit", initializer_range=0.5)
    for name, seed in (("known", 1), ("fresh", 2)):
        half_known(folder / "vit", save_images(folder / name, count=40, seed=seed))
    library.calibrate(folder / "vit", id_data=folder / "known", sets="80%", output=folder / "model")
    return folder


def grey(count: int) -> list[tuple[Any, int]]:
    return [(np.full((8, 8, 3), at % 256, dtype=np.uint8), at % 3) for at in range(count)]


def test_good_data_keep_the_promises_and_each_probe_has_a_row(hydractl: Command, place: Path, tmp_path: Path) -> None:
    page, ood = tmp_path / "page", place / "known"
    arguments = ("check", place / "model", "--id-data", place / "fresh", "--ood-data", f"more={ood}", "--probes", 12)
    told = hydractl(*arguments, "--report", page, code=0)
    checked = json.loads(hydractl(*arguments, "--json", code=0).out)
    assert checked["broken"] is False and checked["samples"] == 120
    assert {each["name"] for each in checked["promises"]} == {"accept", "sets"}
    by_kind = {kind: [row for row in checked["rows"] if row["kind"] == kind] for kind in ("id", "probe", "ood")}
    assert {row["name"] for row in by_kind["probe"]} == IMAGES and all(row["samples"] == 12 for row in by_kind["probe"])
    assert [row["name"] for row in by_kind["ood"]] == ["more"] and "right" not in by_kind["ood"][0]
    missed = [row["missed"]["value"] for row in by_kind["probe"]]
    assert missed == sorted(missed, reverse=True)
    accuracy = library.evaluate(place / "model", id_data=place / "fresh").models["model"]["id"]["accuracy"]
    assert checked["quality"]["accuracy"][0] == pytest.approx(accuracy) == by_kind["id"][0]["right"]["value"]
    html = (page / "index.html").read_text()
    assert html.count("data:image/") == len(checked["rows"])
    assert all(name in html and name in told.out for name in IMAGES)
    with pytest.raises(OutputError):
        library.check(place / "model", id_data=place / "fresh", report=page)


def test_quantiles_of_logits_tell_nothing_at_another_temperature(place: Path) -> None:
    systems = {
        score: library.calibrate(place / "vit", id_data=place / "known", ood_score=score) for score in ("msp", "layers")
    }
    for temperature, promised in ((None, ["msp", "layers"]), (2.0, ["layers"])):
        report = library.evaluate(systems, id_data=place / "fresh", bootstrap=0, temperature=temperature)
        assert [name for name, entry in report.models.items() if "typicality" in entry] == promised


def test_a_broken_promise_ends_with_1_after_the_page(hydractl: Command, place: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(place / "model")
    sets = checkpoint.calibration.sets
    assert sets is not None
    bold = replace(checkpoint.calibration, sets=replace(sets, coverage=0.99, least=(0.9999,)))
    write_checkpoint(replace(checkpoint, calibration=bold), tmp_path / "bold")
    done = hydractl("check", tmp_path / "bold", "--id-data", place / "fresh", "--probes", 0, "--json", tmp_path / "j")
    assert done.code == 1 and "error" not in done.err and "BROKEN" in done.out
    assert json.loads((tmp_path / "j").read_text())["broken"] is True
    assert library.check(tmp_path / "bold", id_data=place / "fresh", probes=0).broken


def test_samples_that_made_the_model_are_left_out(place: Path) -> None:
    both = datasets.concatenate_datasets(
        [datasets.load_dataset("imagefolder", data_dir=str(place / name), split="train") for name in ("known", "fresh")]
    )
    checkup = library.check(place / "model", id_data=both, probes=0).checkup
    assert checkup.samples == 120 and any("120 of 240 samples" in finding for finding in checkup.findings)
    odd = library.check(place / "model", id_data=place / "fresh", ood_data={"o": place / "known"}, probes=0).checkup
    assert any("120 of 120 samples of OOD data o were used to make model" in finding for finding in odd.findings)
    with pytest.raises(DataError, match="all 120"):
        library.check(place / "model", id_data=place / "known")


def test_a_number_that_some_draws_lack_is_left_out(tmp_path: Path) -> None:
    texts = [f"cat {'dog ' * at}owl" for at in range(40)]  # a draw without the odd label has no correlation of ranks
    model = library.calibrate(NUMBERS.save(tmp_path / "m"), id_data=[(text, float(len(text))) for text in texts])
    odd = [(f"a {text}", float(at == 3)) for at, text in enumerate(texts)]
    quality = library.check(model, id_data=odd, probes=0).checkup.quality
    assert "mse" in quality and "spearman" not in quality


def test_oddities_of_the_data_are_told(place: Path) -> None:
    twice = library.check(place / "model", id_data=[*grey(6), *grey(6)], ood_data={"o": grey(4)}, probes=0)
    assert "6 samples are copies" in repr(twice) and "4 of 4 samples of OOD data o" in repr(twice)
    cats = library.check(place / "model", id_data=[(image, 0) for image, _ in grey(8)], probes=0)
    assert "no sample of 2: dog, owl" in repr(cats)
    bare = library.check(place / "model", id_data=[image for image, _ in grey(8)], probes=4).checkup
    assert [each.name for each in bare.promises] == ["accept"] and not bare.quality
    assert "without labels" in "\n".join(bare.findings) and {row.name for row in bare.of("probe")} == IMAGES


def test_a_file_without_calibration_promises_nothing_and_names_the_command(hydractl: Command, place: Path) -> None:
    told = hydractl("check", place / "vit", "--id-data", place / "fresh", "--probes", 6, code=0).out
    assert "hydractl calibrate" in told and "accuracy %" in told
    checkup = library.check(place / "vit", id_data=place / "fresh", probes=0).checkup
    [own] = checkup.rows
    assert not checkup.calibrated and not checkup.promises
    assert own.flagged is not None and own.flagged.value == pytest.approx(0.05)


def test_an_onnx_file_and_an_ensemble_are_checked_and_saved_answers_refused(place: Path, tmp_path: Path) -> None:
    library.export(place / "model", output=tmp_path / "model.onnx")
    rows = [
        library.check(model, id_data=place / "fresh", probes=4).checkup.rows
        for model in (place / "model", tmp_path / "model.onnx")
    ]
    for left, right in zip(*rows, strict=True):
        assert left.name == right.name and left.flagged == right.flagged and left.right == right.right
    assert library.check(f"{place}/vit+{place}/vit", id_data=place / "fresh", probes=4).checkup.rows
    library.evaluate(place / "model", id_data=place / "fresh", save_logits=tmp_path / "saved")
    with pytest.raises(OptionError, match="saved predictions"):
        library.check(f"predictions:{tmp_path}/saved/model", id_data=place / "fresh")


@pytest.mark.parametrize("kind", KINDS[1:], ids=lambda kind: kind.name)
def test_every_task_has_its_promises_and_probes(kind: Kind, tmp_path: Path) -> None:
    network, draw = kind.save(tmp_path / "network"), np.random.default_rng(7)
    known, fresh = (kind.labelled(network, draw, 60) for _ in range(2))
    promised = {"accept", "interval"} if kind is NUMBERS else {"accept"}
    probes = IMAGES if "image" in fresh.column_names else TEXTS
    probed_and_promised(network, known, fresh, (promised, probes), tmp_path, **kind.reading)


def test_a_network_that_is_told_its_classes_has_the_promise_and_probes_of_images(tmp_path: Path) -> None:
    draw = np.random.default_rng(7)
    known, fresh = pixels(draw, 60), [(image, at % 3) for at, image in enumerate(pixels(draw, 60))]
    (tmp_path / "classes").write_text("a\nb\nc\n")
    reading = {"classes": tmp_path / "classes", "template": "{label}", "match_labels": "index"}
    probed_and_promised(save_clip(tmp_path / "clip"), known, fresh, ({"accept"}, IMAGES), tmp_path, **reading)


def probed_and_promised(
    network: Path, known: Any, fresh: Any, expected: tuple[set[str], set[str]], folder: Path, **reading: Any
) -> None:
    library.calibrate(network, id_data=known, output=folder / "model", **reading)
    checked = library.check(folder / "model", id_data=fresh, probes=5, report=folder / "page", **reading)
    assert {each.name for each in checked.checkup.promises} == expected[0]
    assert {row.name for row in checked.checkup.of("probe")} == expected[1]
    assert (folder / "page" / "index.html").exists() and repr(checked)
    assert library.check(network, id_data=fresh, probes=3, **reading).checkup.promises == ()


def test_texts_and_pairs_of_texts_are_probed(tmp_path: Path) -> None:
    save_bert(tmp_path / "bert")
    draw = np.random.default_rng(3)
    rows = [" ".join(draw.choice(WORDS[5:], 4)) for _ in range(40)]
    table = datasets.Dataset.from_dict({"first": rows, "second": rows[::-1], "label": ["cat", "dog"] * 20})
    for columns in ("first", "first,second"):
        checkup = library.check(tmp_path / "bert", id_data=table, text_column=columns, probes=8).checkup
        kept = {row.name for row in checkup.of("probe") if row.right is not None}
        assert {row.name for row in checkup.of("probe")} == TEXTS and kept == {"letters broken"}
