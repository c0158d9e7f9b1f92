import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Command


def test_a_report_is_a_page_and_every_part_of_it_as_a_file(hydractl: Command, place: Path) -> None:
    hydractl("prune", "vit", "--method=random", "--budget=3", "-o", "m1")
    data = ("--id-data=pets", "--ood-data=far/n=noise", "--shift-data=fog/2=pets")
    folder = place / "report"
    result = hydractl("evaluate", "<b>=vit", "m1", *data, "--report", folder)
    assert (result.code, result.err) == (0, f"report: {folder / 'index.html'}\n")
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    figures = ("cost", "reliability", "risk-coverage", "roc", "scores", "shift")
    pictures = {f"figures/{name}.{kind}" for name in figures for kind in ("svg", "png")}
    assert names == {".hydractl.json", "index.html", "report.json", "table.md", *pictures}
    page = (folder / "index.html").read_text()
    assert not re.search(r'(src|href)="(?!#|data:image/png;base64,)', re.sub(r'xlink:href="#[^"]*"', "", page))
    assert "&lt;b&gt;" in page
    assert page.count("<svg") >= 7  # six pictures and a head map
    groups = re.findall('colspan="[0-9]+">([^<]*)', page)
    assert groups[0] == "cost" and groups.count("cost") == 2  # where no screen cuts it, in both tables
    assert "hydractl evaluate &#39;&lt;b&gt;=vit&#39;" in page
    kept = json.loads((folder / "report.json").read_text())
    assert kept["models"]["m1"]["curves"]["roc"]["n"]["true_positive_rate"][-1] == 1
    assert sum(kept["models"]["m1"]["curves"]["scores"]["id"]) == pytest.approx(1, abs=1e-3)
    assert "exists already" in hydractl("evaluate", "vit", *data, "--report", folder).err


def test_a_page_draws_the_profiles_of_the_oddest_samples(hydractl: Command, place: Path) -> None:
    hydractl("calibrate", "vit", "--id-data=pets", "-o", "network.safetensors", code=0)
    data = ("--id-data=held-out", "--ood-data=far/n=noise")
    hydractl("evaluate", "vit", "network=network.safetensors", *data, "--report=report", code=0)
    curves = json.loads(Path("report/report.json").read_text())["models"]["network"]["curves"]
    assert list(curves["oddest"]) == ["id", "ood/far/n"]
    oddest = curves["oddest"]["ood/far/n"]
    found = json.loads(hydractl("predict", "network.safetensors", "noise", "--json").out)["predictions"]
    least = sorted(found, key=lambda one: -one["ood_score"])[: len(oddest)]
    for drawn, one in zip(oddest, least, strict=True):
        assert drawn["typicality"] == pytest.approx(one["typicality"], abs=1e-5)
        assert drawn["profile"] == pytest.approx(one["profile"], abs=1e-5)
        assert "right" not in drawn
    hydractl("evaluate", "network.safetensors", *data, "--ood-score=energy", "--report=by-energy", code=0)
    [other] = json.loads(Path("by-energy/report.json").read_text())["models"].values()
    assert "oddest" not in other["curves"]  # they would be the oddest by another score than the profiles
    page = Path("report/index.html").read_text()
    profiles = sum(len(samples) for samples in curves["oddest"].values())
    assert page.count('class="profile"') == profiles
    assert page.count("Least typical of ood/far/n, by network") == 1
    assert page.count("<rect") >= profiles * len(oddest[0]["profile"])
    assert page.count('class="matrix"') == 2


def test_the_classes_of_a_report_add_up_to_its_numbers(hydractl: Command, place: Path) -> None:
    hydractl("calibrate", "vit", "--id-data=pets", "-o", "network.safetensors", code=0)
    hydractl("evaluate", "vit", "network=network.safetensors", "--id-data=held-out", "--json=report.json", code=0)
    models = json.loads(Path("report.json").read_text())["models"]
    for name, numbers in models.items():
        by_class, samples = numbers["by_class"].values(), numbers["id"]["samples"]
        assert sum(one["samples"] for one in by_class) == samples
        assert sum(sum(one["answers"].values()) for one in by_class) == samples
        right = sum(one["samples"] * one.get("recall", 0) for one in by_class) / samples
        assert right == pytest.approx(numbers["id"]["accuracy"])
        if name == "network":
            odd = sum(one["samples"] * one.get("flagged", 0) for one in by_class) / samples
            assert 1 - odd == pytest.approx(numbers["typicality"]["coverage"])
    assert "flagged" not in json.dumps(models["vit"]["by_class"])


def test_several_reports_make_one_table(hydractl: Command, place: Path) -> None:
    for name, model in (("one", "vit"), ("two", "other")):
        data = ("--id-data=pets", "--ood-data=far/n=noise", f"--json={name}.json")
        hydractl("evaluate", f"m={model}", f"{name}={model}", *data)
    result = hydractl("report", "one.json", "two.json", "--json=joined.json", "-o", "page", code=0)
    joined = json.loads(Path("joined.json").read_text())
    assert list(joined["models"]) == ["m", "one", "m (two)", "two"]
    for name in joined["models"]:
        assert f"\n{name} " in result.out
    assert Path("page/figures/cost.svg").exists()
    assert not Path("page/figures/roc.svg").exists()
    piped = hydractl("report", "-", stdin=Path("one.json").read_bytes())
    assert piped.out in hydractl("report", "one.json").out


def test_reports_of_other_data_are_joined_with_a_word_and_of_other_definitions_not(
    hydractl: Command, place: Path
) -> None:
    for name, more in (("a", ()), ("b", ("--ood-data=noise",)), ("c", ("--ood-score=energy",))):
        hydractl("evaluate", f"{name}=vit", "--id-data=pets", *more, "--json", name)
    result = hydractl("report", "a", "b")
    assert (result.code, "were not evaluated on the same data" in result.err) == (0, True)
    result = hydractl("report", "a", "c")
    assert (result.code, "ood_score is energy, in" in result.err) == (1, True)
