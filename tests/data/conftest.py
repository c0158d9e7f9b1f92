"""Tiny data sets written in each format."""

from inspect import signature
from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image
from transformers.image_transforms import convert_to_rgb

#: Earlier versions drop what is transparent instead of laying it over white, as ours does with every version.
over_white = pytest.mark.skipif(
    "return_numpy" not in signature(convert_to_rgb).parameters,
    reason="this transformers does not lay transparent images over white",
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a test is left in, or taken from, the user's cache."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("cache")))


def noise(seed: int, *shape: int) -> np.ndarray:
    """Random 8-bit pixels."""
    return np.random.default_rng(seed).integers(0, 256, size=shape, dtype=np.uint8)


def picture(seed: int, *shape: int) -> Image.Image:
    """A random image; 3 x 4 RGB pixels unless a shape is given."""
    return Image.fromarray(noise(seed, *(shape or (3, 4, 3))))


def image_folder(root: Path, names: list[str]) -> Path:
    """A folder of PNG files of the given relative names; the pixels of each follow from its place."""
    for seed, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        picture(seed).save(root / name)
    return root


def image_table(count: int = 4) -> datasets.Dataset:
    """Images with named classes, the same pixels as `image_folder` writes."""
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    rows = {"image": [picture(seed) for seed in range(count)], "label": [seed % 2 for seed in range(count)]}
    return datasets.Dataset.from_dict(rows, features=features)


class Hub:
    """Stands in for the two questions to the hub: the files are local, the way through is the real one."""

    name = "parquet"
    info = datasets.DatasetInfo()

    def __init__(self, files: dict[str, list[str]]) -> None:
        self.config = type("Config", (), {"data_files": files})
        self.requests: list[tuple[str, str | None]] = []

    def stand_in(self, monkeypatch: pytest.MonkeyPatch, folder: Path, configs: tuple[str, ...] = ("default",)) -> None:
        def builder(source: str, name: str | None) -> Hub:
            self.requests.append((source, name))
            return self

        monkeypatch.setattr("hydractl.data.tables.require_on_hub", lambda source: None)
        monkeypatch.setattr("hydractl.data.tables.HUB", str(folder))
        monkeypatch.setattr(datasets, "load_dataset_builder", builder)
        monkeypatch.setattr(datasets, "get_dataset_config_names", lambda source: list(configs))
