"""What `build` does where there are training data: exposure, teachers, a trunk that stays one, members of a size."""

import json
import random
import shlex
import shutil
from pathlib import Path

import pytest
from PIL import Image

from hydractl.checkpoint.arithmetic import multiply_adds
from hydractl.checkpoint.contents import trunk_depth
from hydractl.checkpoint.heads import Head, Unit
from hydractl.families.load import read_checkpoint
from hydractl.pipeline.thinning import sized
from hydractl.surgery.fusion import fuse
from hydractl.surgery.slicing import drop_heads, drop_units
from tests.cli.conftest import Command, save_vit
from tests.conftest import build_reference
from tests.steps.test_build import ARGUMENTS, here

__all__ = ["here"]


@pytest.fixture
def more(here: Path) -> Path:
    """Images to train on that are not among those to choose by."""
    shutil.copytree(here / "pets", here / "more")
    for image in (here / "more").rglob("*.png"):
        Image.open(image).rotate(90).save(image)
    return here / "more"


def test_members_learn_to_be_unsure_of_the_ood_data_but_of_those_that_decide(hydractl: Command, here: Path) -> None:
    def training(*options: str) -> str:
        asked = (*ARGUMENTS, "--train-data", "pets", *options, "--dry-run", "--json")
        steps = json.loads(hydractl(*asked).out)["steps"]
        return next(line for line in steps if line.startswith("hydractl finetune "))

    sets = [word for word in shlex.split(training("--set", "epochs=1")) if "OOD" in word]
    assert sets == ["$(OOD_1)%1-2/3"]  # the last set is kept for the verdict
    others = training("--set", "epochs=1", "--eval-ood-data", "grey")
    assert [word for word in shlex.split(others) if "OOD_2" in word] == ["$(OOD_2)"]
    assert "--outlier-data" not in training("--set", "epochs=1", "--set", "outlier_weight=0")


def test_a_report_names_the_ood_sets_of_the_kind_that_training_saw(hydractl: Command, here: Path, more: Path) -> None:
    trained = ("--train-data", more, "--outlier-data", "noise%1/2", "--set=steps=1", "--device=cpu", "--quiet")
    hydractl("finetune", "vit", *trained, "-o", "tuned", code=0)
    hydractl("fuse", "tuned", "vit", "-o", "hydra", "--quiet", code=0)
    sets = ("--id-data=pets", "--ood-data=noise%2/2", "--ood-data=grey", "--bootstrap=100", "--quiet", "--json=r.json")
    hydractl("evaluate", "vit", "hydra", *sets, code=0)
    dense, hydra = json.loads((here / "r.json").read_text())["models"].values()
    assert (hydra["exposed"], "exposed" in dense) == (["noise"], False)
    for entry in (dense, hydra):
        assert entry["ood_means"]["unseen"]["auroc"] == entry["ood"]["grey"]["auroc"]
    assert hydra["difference"]["ood_means"]["unseen"]["auroc"] == hydra["difference"]["ood"]["grey"]["auroc"]


def test_ood_data_that_training_saw_do_not_choose_the_score(hydractl: Command, here: Path, more: Path) -> None:
    exposure = ("--train-data", more, "--outlier-data", "noise%1/2", "--set=steps=1")
    hydractl("finetune", "vit", *exposure, "-o", "exposed", code=0)

    def chosen_by(model: str, *ood_data: str) -> tuple[str, set[str]]:
        sets = ["--limit=20", *(f"--ood-data={source}" for source in ood_data)]
        result = json.loads(hydractl("calibrate", model, "--id-data=pets", *sets, "--json", "-o", "fit", "--force").out)
        return result["ood"]["score"], set(result["choice"]["rated"][0]["auroc"] if result["choice"] else ())

    assert chosen_by("vit", "noise%2/2", "grey")[1] == {"noise", "grey"}
    assert chosen_by("exposed", "noise%2/2", "grey")[1] == {"grey"}  # a set of that name is of its kind
    assert chosen_by("exposed", "renamed=noise") == ("layers", set())  # and so are its samples


def test_samples_that_were_trained_on_are_counted_wherever_they_decide(
    hydractl: Command, here: Path, more: Path
) -> None:
    training = ("finetune", "vit", "--train-data", more, "--set=steps=1", "-o", "tuned", "--force", "--val-data")
    seen = f"{len(list(more.rglob('*.png')))} of {len(list(more.rglob('*.png')))} "
    assert f"{seen}validation samples are training samples" in hydractl(*training, more, code=0).err
    assert "training samples" not in hydractl(*training, "pets", code=0).err
    for command in (("calibrate",), ("select", "--random=1", "--budgets=1", "--members=1")):
        decided = [*command, "--id-data", more, "-o", "out", "--force"]
        for model, warned in (("tuned", True), ("vit", False)):
            done = hydractl(decided[0], model, *decided[1:], code=0 if command[1:] else None)
            assert (f"tuned trained on {seen}samples" in done.err) == warned, done.err


def test_one_member_trains_too(hydractl: Command, here: Path, more: Path) -> None:
    data = ["--id-data", "pets", "--train-data", more, "--set", "steps=1", "--device", "cpu", "--members", "1"]
    result = hydractl("build", "vit", *data, "--budgets=1", "-o", "built", code=0)
    assert "without OOD data" in result.err
    assert read_checkpoint(str(here / "built" / "hydra.safetensors")).members == 1
    hydractl("build", here / "built" / "build.toml", code=0)  # no option of circuits is in it
    data[3] = "pets"
    refused = hydractl("build", "vit", *data, "-o", "leaks")
    assert refused.code == 1 and "as training data" in refused.err and not (here / "leaks").exists()


def test_members_learn_what_a_teacher_says(hydractl: Command, here: Path, more: Path) -> None:
    save_vit(here / "teacher", seed=1)
    training = ["--train-data", more, "--set", "steps=1", "--teacher", "vit", "--teacher", "teacher"]
    result = hydractl(*ARGUMENTS, *training, "--quiet", code=0)
    member = read_checkpoint(str(here / "built" / "work" / "selected-member0.safetensors"))
    assert len(member.provenance["options"]["fingerprints"]["teacher"]) == 2
    makefile = (here / "built" / "Makefile").read_text()
    assert "\nTEACHER_2 ?= $(HERE)../teacher\n" in makefile and '--teacher "$(TEACHER_1)"' in makefile
    ensemble = read_checkpoint(str(here / "built" / "teacher.safetensors"))
    assert (ensemble.members, ensemble.calibration.temperature is not None) == (2, True)
    entries = json.loads((here / "built" / "report" / "report.json").read_text())["models"]
    assert list(entries["hydra"]["rivals"]) == ["trained", "teacher", "soup"]
    assert read_checkpoint(str(here / "built" / "soup.safetensors")).members == 1
    assert "\nhydra against teacher: " in result.out and "\nteacher against network: " in result.out


def test_teachers_of_several_sizes_teach_without_being_evaluated(hydractl: Command, here: Path, more: Path) -> None:
    save_vit(here / "teacher", num_hidden_layers=3)
    training = ["--train-data", more, "--set", "steps=1", "--teacher", "vit", "--teacher", "teacher", "--dry-run"]
    result = hydractl(*ARGUMENTS, *training, code=0)
    assert "layers" in result.err and "teacher=" not in result.out and result.out.count("--teacher") == 4
    alone = hydractl(*ARGUMENTS, *training[:4], "--teacher", "teacher", "--dry-run", code=0)
    assert "teacher=built/teacher.safetensors" in alone.out
    assert " --separate all" not in alone.out and "--soup" not in alone.out


@pytest.mark.parametrize("bounds", [("--trunks=1",), ("--trunks=0", "--budget-params=1.2x"), ("--budget-macs=2x",)])
def test_what_members_share_stays_shared_where_that_is_asked_for(
    hydractl: Command, here: Path, bounds: tuple[str, ...]
) -> None:
    def training(*options: str) -> list[str]:
        asked = ("build", "vit", "--id-data", "pets", "--train-data", "pets", "--set=steps=1", "-o", "built", *options)
        lines = hydractl(*asked, "--dry-run").out.splitlines()
        return [line for line in lines if line.startswith(("hydractl finetune ", "hydractl fuse "))]

    together = training(*bounds)
    assert [" --joint " in line for line in together] == [True, False]  # the network trains as long alone
    assert [" --joint " in line for line in training()] == [False, False, False]


@pytest.mark.parametrize(("name", "gone"), [("vit", 0), ("bert", 0), ("vit", 4)])
@pytest.mark.parametrize("most", [1.5, 1.7])
def test_the_fused_members_cost_just_what_is_allowed(name: str, most: float, gone: int, tmp_path: Path) -> None:
    dense = read_checkpoint(build_reference(name).save(tmp_path))
    [tower] = dense.spec.towers
    dense = drop_units(dense, [Unit(tower.name, i, u) for i in (1, 2) for u in range(gone * i)])
    thin = sized(dense, 3, most)
    assert thin is not None and thin.trunk == 1

    left = [range(gone * i, 24) for i in (1, 2)]

    def cost(lost: int) -> int:
        members, layers = [], tower.layers - thin.trunk
        for m in range(3):
            generator = random.Random(m)
            heads = [Head(tower.name, i, (m + n) % tower.heads) for i in (1, 2) for n in range(thin.heads // layers)]
            counts = [lost // layers + (i < lost % layers) for i in range(layers)]
            units = [Unit(tower.name, i + 1, u) for i in range(layers) for u in generator.sample(left[i], counts[i])]
            members.append(drop_units(drop_heads(dense, heads), units))
        hydra = fuse(members)
        assert trunk_depth(hydra.spec, hydra.layout, tower.name) == 1
        return multiply_adds(hydra.spec, hydra.layout)

    allowed = most * multiply_adds(dense.spec, dense.layout)
    assert cost(thin.units) <= allowed < cost(thin.units - 1)


def test_a_limit_that_no_member_meets(tmp_path: Path) -> None:
    assert sized(read_checkpoint(build_reference("vit").save(tmp_path / "vit")), 3, 0.5) is None
    assert sized(read_checkpoint(build_reference("clip").save(tmp_path / "clip")), 3, 1.5) is None


TRAINED = ["build", "vit", "--id-data=pets", "--train-data=more", "--set=steps=1", "--device=cpu", "--output=built"]


def test_a_build_makes_them_where_the_cost_is_limited(hydractl: Command, here: Path, more: Path) -> None:
    def commands(*options: str) -> list[str]:
        lines = hydractl(*TRAINED, *options, "--dry-run").out.splitlines()[1:]
        return [line.split()[1] for line in lines]

    end = [*["finetune"] * 2, *["calibrate"] * 3, "evaluate"]  # the network trains as long
    assert commands("--budget-macs=1.5x") == ["score-heads", *["prune"] * 4, "fuse", *end]
    for options in (["--units=no"], ["--budgets=1"], ["--trunks=1"], ["--budget-params=1.2x"]):
        assert commands("--budget-macs=1.5x", *options) == ["select", *end]
    assert commands("--budget-macs=2x") == ["select", *end]
    for options, named in [
        (["--budget-macs=1.5x", "--random=1"], "--random has no effect with --units yes"),
        (["--budget-macs=1.5x", "--trunks=1"], "--trunks has no effect with --units yes"),
        ([], "--units yes: give"),
        (["--budget-macs=0.5x"], "0.5x"),
    ]:
        result = hydractl(*TRAINED, "--units=yes", *options, "--dry-run")
        assert result.code == 2 and named in result.err


def test_the_length_of_training_follows_from_effort_and_limit(hydractl: Command, here: Path, more: Path) -> None:
    data = ["build", "vit", "--id-data=pets", "--train-data=more", "--device=cpu", "--budget-macs=1.5x", "-o=built"]
    for options, steps, limit in [
        ([], "steps=22", None),  # ten epochs of 72 images in batches of 32
        (["--limit=32"], "steps=10", "--limit 32 "),
        (["--train-samples=9"], "steps=2", "--limit 9 "),
        (["--effort=thorough", "--set=epochs=2"], "epochs=2", None),
    ]:
        lines = hydractl(*data, *options, "--dry-run").out.splitlines()
        trainings = [line for line in lines if line.startswith("hydractl finetune ")]
        assert len(trainings) == 2
        for line in trainings:
            assert f" --set {steps} " in line and (limit or "") in line and ("--limit" in line) == (limit is not None)


@pytest.mark.slow
def test_the_built_hydra_keeps_to_the_cost(hydractl: Command, here: Path, more: Path) -> None:
    result = hydractl(*TRAINED, "--budget-macs=1.5x", "--ood-data", "noise", "--quiet", code=0)
    hydra = read_checkpoint(str(here / "built" / "hydra.safetensors"))
    assert hydra.members == 3 and len(set(hydra.units["vision"][1] or ())) == 3
    assert len(set(hydra.heads["vision"][1])) > 1
    entries = json.loads((here / "built" / "report" / "report.json").read_text())["models"]
    ratio = entries["hydra"]["cost"]["multiply_adds"] / entries["network"]["cost"]["multiply_adds"]
    assert 1.4 < ratio <= 1.5
    assert entries["trained"]["cost"] == entries["network"]["cost"] and "trained against network: " in result.out
    for again in ([*TRAINED, "--budget-macs=1.5x", "--ood-data", "noise"], ["build", "built/build.toml"]):
        assert hydractl(*again, "--quiet").out == result.out
