"""Without any extra the core works; a command that needs one names it before it writes anything."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from hydractl.errors import EXTRAS, naming_extras
from tests.cli.conftest import save_circuit, save_images, save_vit
from tests.test_package import PROJECT, ROOT

#: Runs the commands in argv[2] without the packages in argv[1], and prints as JSON what each writes to stderr.
WITHOUT = """
import contextlib, io, json, sys
sys.modules.update(dict.fromkeys(json.loads(sys.argv[1])))
from hydractl.cli.main import run
told = []
for arguments in json.loads(sys.argv[2]):
    sys.argv = ["hydractl", *arguments]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
        run()
    told.append(err.getvalue())
print(json.dumps(told))
"""
PETS, NOISE = "--id-data=DATA/pets", "--ood-data=DATA/noise"
HEADS = ["analyse", "heads", "vit", "--circuit=c.json", "--budget=2", PETS, NOISE]
#: What takes a package of an extra, and what it is told.
REFUSED = {
    "fine-tuning": ("accelerate", ["finetune", "vit", "--train-data=DATA/pets", "--steps=1", "-o", "x"]),
    "a report": ("matplotlib", ["evaluate", "vit", PETS, "--report=x"]),
    "several reports": ("matplotlib", ["report", "r.json", "-o", "x"]),
    "a build": ("matplotlib", ["build", "vit", PETS, NOISE, "-o", "x"]),
    "a map of scores": ("matplotlib", ["score-heads", "vit", "--method=magnitude", "--plot=x.png", "-o", "x"]),
    "a map of distances": ("matplotlib", [*HEADS, "--plot=x.png"]),
    "a graph": ("onnx", ["export", "vit", "--format=onnx", "-o", "x.onnx"]),
}
#: What works without any.
CORE = (
    ["prune", "vit", "--method=random", "--budget=2", "-o", "m1"],
    ["prune", "vit", "--method=circuit", "--circuit=c.json", "--budget=1", "-o", "m2"],
    ["fuse", "m1", "m2", "-o", "hydra"],
    ["inspect", "hydra"],
    ["predict", "hydra", "DATA/noise/cat/0.png"],
    ["export", "hydra", "--format=hf", "-o", "folder"],
    ["evaluate", "vit", "hydra", PETS, NOISE, "--json=r.json"],
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The folder that the commands ran in, and what each said on stderr."""
    here = tmp_path_factory.mktemp("without")
    save_vit(here / "vit")
    save_images(here / "DATA" / "pets")
    save_images(here / "DATA" / "noise", count=2, seed=1)
    save_circuit(here / "c.json", (1, 0), (1, 1))
    commands = [*CORE, *(command for _, command in REFUSED.values())]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, json.dumps(list(EXTRAS)), json.dumps(commands)],
        cwd=here, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return here, dict(zip(map(" ".join, commands), json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_missing_is_named_before_anything_is_done(told: tuple[Path, dict[str, str]], case: str) -> None:
    here, said = told
    package, command = REFUSED[case]
    remedy = f"pip install 'hydractl[{EXTRAS[package]}]'"
    assert said[" ".join(command)] == f"error: this needs {package}, which is not installed: {remedy}\n"
    assert not list(here.glob("x*"))


@pytest.mark.parametrize("command", CORE, ids=lambda command: command[0])
def test_the_core_works_without_any_extra(told: tuple[Path, dict[str, str]], command: list[str]) -> None:
    here, said = told
    assert "error" not in said[" ".join(command)]
    written = {"-o": command[-1]}.get(command[-2], "r.json")
    assert (here / written).exists()


def test_a_part_that_an_installed_package_lacks_is_not_called_missing() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_part"), naming_extras():
        import matplotlib.no_such_part  # type: ignore[import-not-found]  # noqa: F401


def imported() -> Iterator[str]:
    """The packages that hydractl imports anywhere, those of Python and itself aside."""
    for path in (ROOT / "hydractl").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            yield from (name.partition(".")[0] for name in names if name)


def distributions(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", requirement)[0].replace("_", "-").lower() for requirement in requirements}


def test_every_package_that_is_imported_is_a_dependency_or_of_the_extra_that_is_named() -> None:
    core, known = distributions(PROJECT["dependencies"]), packages_distributions()
    foreign = set(imported()) - sys.stdlib_module_names - {"hydractl", "__future__"}
    assert foreign > {"torch", "matplotlib"}
    for package in foreign:
        allowed = core
        if package in EXTRAS:
            allowed = distributions(PROJECT["optional-dependencies"][EXTRAS[package]])
        assert {name.replace("_", "-").lower() for name in known[package]} & allowed, package
    assert foreign & EXTRAS.keys() | {"onnx", "onnxscript"} == EXTRAS.keys()
