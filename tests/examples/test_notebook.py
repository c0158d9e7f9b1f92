"""The notebook runs from its first cell to its last, and its file shows what it prints and draws."""

import copy
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.cli.conftest import save_digits

NOTEBOOK = Path(__file__).parents[2] / "examples" / "hydra.ipynb"


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A folder with what the digits example leaves in `build`, in small."""
    shutil.copytree(NOTEBOOK.parent / "analyses", tmp_path / "analyses")
    save_digits(tmp_path / "build")
    return tmp_path


def shown(cell: nbformat.NotebookNode) -> list[list[str]]:
    """Returns the forms of each value that a cell shows."""
    return [sorted(output.data) for output in cell.get("outputs", ()) if "data" in output]


@pytest.mark.apart
def test_the_notebook_runs_and_its_file_has_its_outputs(examples: Path) -> None:
    kept = nbformat.read(NOTEBOOK, as_version=4)
    made = copy.deepcopy(kept)
    NotebookClient(made, timeout=120, resources={"metadata": {"path": str(examples)}}).execute()
    assert list(map(shown, made.cells)) == list(map(shown, kept.cells))
    forms = [form for cell in kept.cells for value in shown(cell) for form in value]
    assert sum(form.startswith("image/") for form in forms) == 4
    assert forms.count("text/html") == 2
