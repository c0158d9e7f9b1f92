"""The notebook runs from its first cell to its last, and shows pictures."""

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
    data = tmp_path / "build" / "data"
    save_vit(tmp_path / "build" / "vit")
    save_images(data / "digits" / "validation", seed=1)
    save_images(data / "digits" / "test", seed=2)
    for seed, name in enumerate(("near_search", "near_test", "far_test"), 3):
        (data / name).mkdir()
        for number, file in enumerate(sorted(save_images(tmp_path / name, count=2, seed=seed).glob("*/*.png"))):
            shutil.copy(file, data / name / f"{number:04}.png")
    return tmp_path


def test_the_notebook_runs_and_shows_pictures(examples: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # what it shows is made, not kept
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(examples)}}).execute()
    shown = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ())]
    assert sum("image/png" in data or "image/svg+xml" in data for data in shown) == 4
    assert sum("text/html" in data for data in shown) == 2
