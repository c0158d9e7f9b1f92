"""What the project says of itself in several places is the same everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
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
