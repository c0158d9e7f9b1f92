"""The notebook runs from its first cell to its last, and its file shows what it prints and draws."""

import copy
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.cli.conftest import save_images, save_vit

NOTEBOOK = Path(__file__).parents[2] / "examples" / "hydra.ipynb"


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A folder with what the digits example leaves in `build`, in small."""
    shutil.copytree(NOTEBOOK.parent / "analyses", tmp_path / "analyses")
    data = tmp_path / "build" / "data"
    save_vit(tmp_path / "build" / "vit")
    save_images(data / "digits" / "validation", seed=1)
    save_images(data / "digits" / "test", seed=2)
    for seed, name in enumerate(("near_search", "near_test", "far_test"), 3):
        (data / name).mkdir()
        for number, file in enumerate(sorted(save_images(tmp_path / name, count=2, seed=seed).glob("*/*.png"))):
            shutil.copy(file, data / name / f"{number:04}.png")
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
