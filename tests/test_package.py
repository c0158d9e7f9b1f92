import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import hydractl

ROOT = Path(__file__).parents[1]
#: Building changes `sys.argv`.
BUILD = "import sys; from setuptools.build_meta import *; [_, out] = sys.argv; build_sdist(out); build_wheel(out)"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and an sdist, built from a copy: building leaves files beside the sources."""
    source, out = tmp_path_factory.mktemp("source") / "copy", tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT / "hydractl", source / "hydractl", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=source, check=True, capture_output=True)
    return out


def packaged() -> set[str]:
    """Every file of the package: what is no Python is needed as well, pages of the guide among it."""
    files = (path for path in (ROOT / "hydractl").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in files}


def test_both_hold_every_file(built: Path) -> None:
    [wheel], [sdist] = built.glob("*.whl"), built.glob("*.tar.gz")
    assert packaged() <= set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert packaged() | {"pyproject.toml", "README.md", "LICENSE"} <= names


def test_the_command_runs_from_what_is_installed(built: Path, tmp_path: Path) -> None:
    [wheel] = built.glob("*.whl")
    # By uv, which `dev` names: not every environment has pip.
    install = ["--quiet", "--no-deps", "--no-index", "--python", sys.executable, "--target", str(tmp_path / "site")]
    subprocess.run([sys.executable, "-m", "uv", "pip", "install", *install, str(wheel)], check=True)

    def said(*command: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    command = str(tmp_path / "site" / "bin" / "hydractl")
    assert said(sys.executable, "-c", "import hydractl; print(hydractl.__file__)").startswith(str(tmp_path))
    assert said(command, "--version").startswith("hydractl 0.")
    assert said(command, "guide", "evaluation").startswith("# ")


def test_no_folder_hides_a_public_name() -> None:
    """Importing a folder of the package sets an attribute of its name, in place of a function called alike."""
    folders = {path.name for path in (ROOT / "hydractl").iterdir() if path.is_dir() or path.suffix == ".py"}
    assert not {name for name in hydractl.__all__ if {name, f"{name}.py"} & folders - {"guide"}}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_citation_is_of_this_project() -> None:
    citation = yaml.safe_load((ROOT / ".github" / "CITATION.cff").read_text(encoding="utf-8"))
    for key, found in (("title", "name"), ("version", "version"), ("license", "license"), ("keywords", "keywords")):
        assert citation[key] == PROJECT[found]
    assert citation["authors"] == PROJECT["authors"]
    assert citation["references"][0]["url"] == PROJECT["urls"]["Paper"]


def test_the_changelog_begins_with_the_version_to_come() -> None:
    text = (ROOT / ".github" / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = next(line for line in text.splitlines() if line.startswith("## "))
    assert newest.startswith(f"## {PROJECT['version']},")


def test_every_extra_that_a_page_names_exists() -> None:
    pages = [ROOT / "README.md", *(ROOT / "hydractl").rglob("*.md"), *(ROOT / "hydractl").rglob("*.py")]
    named = {extra for page in pages for extra in re.findall(r"hydractl\[(\w+)\]", page.read_text(encoding="utf-8"))}
    assert named
    assert named <= PROJECT["optional-dependencies"].keys()
