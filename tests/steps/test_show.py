import json
from pathlib import Path
from typing import Any

import pytest

import hydractl as library
from hydractl.errors import ArtifactError, HydractlError
from hydractl.evaluation.results import DataInfo, Results, SetInfo
from hydractl.reports.describe import KINDS
from hydractl.reports.page import report_json
from tests.cli.conftest import LABELS, Command, save_circuit
from tests.damage import refuse_all
from tests.hostile import controls
from tests.reports.test_table import result

HEADS = [{"tower": "vision", "layer": 1, "head": 0}, {"tower": "vision", "layer": 0, "head": 2}]
MODEL = {"reference": "vit", "sha256": "0" * 64, "towers": {"vision": [2, 3]}}
ARTIFACTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "hydractl-circuit": (
        {"objective": "acc", "steps": HEADS, "model": MODEL},
        ["objective      acc", "2 ranked of 6", "vision 1.0, vision 0.2", "layer"],
    ),
    "hydractl-scores": (
        {"method": "taylor", "towers": {"vision": [[0.0, 1.0], [2.0, 4.0]]}, "model": MODEL},
        ["method  taylor", "from 0 (light) to 4 (dark)"],
    ),
    "hydractl-selection": (
        {"members": [{"candidate": "acc 1", "dropped": HEADS}]},
        ["acc 1, without vision 0.2, vision 1.0"],
    ),
    "hydractl-report": (
        report_json(Results(models={"single": result(0.5)}, data=DataInfo(id=SetInfo("pets")))),
        ["systems    single", "ID data    pets", "nothing was compared", "50.00"],
    ),
    "hydractl-build": (
        {"steps": ["hydractl fuse m1 m2"], "hydra": "h.safetensors", "verdict": "better", "advice": ["fine-tune"]},
        ["verdict  better", "h.safetensors", "  hydractl fuse m1 m2"],
    ),
}


def written(file: Path, kind: str, **changes: object) -> Path:
    file.write_text(json.dumps({"format": kind, "version": 1, **ARTIFACTS[kind][0], **changes}))
    return file


@pytest.mark.parametrize("kind", [kind.format for kind in KINDS])
def test_every_kind_of_artifact(kind: str, tmp_path: Path) -> None:
    file = written(tmp_path / "a", kind)
    found = library.inspect(file)
    said = "\n".join(found.lines())
    for expected in ARTIFACTS[kind][1]:
        assert expected in said
    assert found.to_json()["name"] == str(file)


@pytest.mark.parametrize("content", ["", "[]", "1"])
def test_other_json_is_no_damaged_model(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ArtifactError, match="name a model, or an artifact"):
        library.inspect(tmp_path / "a.json")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind.format for kind in KINDS])
def test_every_damage_is_told_or_refused(kind: str, tmp_path: Path) -> None:
    def show(text: str) -> None:
        (tmp_path / "a").write_text(text)
        found = library.inspect(tmp_path / "a")
        assert not controls("".join(found.lines()) + repr(found) + found._repr_html_())

    content = json.loads(written(tmp_path / "a", kind).read_text())
    every = {"hydractl-report": 17, "hydractl-build": 1}.get(kind, 2)  # of what has very many fields
    assert refuse_all(show, str(tmp_path / "a"), HydractlError, content, every) > 0.4


def test_a_recipe_and_the_folders_of_a_build_and_a_report(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("lr = 0.5\n")
    assert "not the default  lr\n" in repr(library.inspect(tmp_path / "r.toml"))
    written(tmp_path / "report.json", "hydractl-report")
    assert "  systems" in repr(library.inspect(tmp_path))
    written(tmp_path / "build.json", "hydractl-build")
    assert "  verdict" in repr(library.inspect(tmp_path))


def test_a_fused_model_s_heads_and_how_it_was_made(hydractl: Command, vit: Path, tmp_path: Path) -> None:
    circuit = save_circuit(tmp_path / "c.json", (1, 0), (1, 3))
    members = [library.prune(vit, method="circuit", circuit=circuit, budget=budget) for budget in (1, 2)]
    library.fuse([*members, vit], output=tmp_path / "hydra")
    lines = hydractl("inspect", tmp_path / "hydra").out.splitlines()
    assert "  layer  0  ■■■■  ■■■■  ■■■■  4+4+4" in lines
    assert "  layer  1  ·■■■  ·■■·  ■■■■  3+2+4" in lines
    assert "  trunk: 1 leading layers shared by all members" in lines
    assert "  members     3" in lines
    assert f"  labels      3: {', '.join(LABELS)}" in lines
    fuse, first, dense, second, _, last = lines[-6:]
    pruned = [f"    prune  budget {budget}, method circuit" for budget in (1, 2)]
    assert [fuse, first, second] == ["  fuse", *pruned]
    assert dense.strip() == last.strip() and (len(dense), len(last)) == (21, 19)
