"""The files that say how raw images and texts become inputs, carried along so that a weights file stands alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydractl.checkpoint.tensors import read_json
from hydractl.errors import CheckpointError
from hydractl.schema import Origin, read_text

JSON_FILES = (
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
)
TEXT_FILES = ("vocab.txt", "merges.txt")


def read_preprocessing(folder: Path) -> dict[str, Any]:
    """File name to content (a JSON object, or text) of every preprocessing file in a checkpoint folder."""
    files: dict[str, Any] = {name: read_json(folder / name) for name in JSON_FILES if (folder / name).is_file()}
    # With the fast tokenizer's own file at hand, the vocabulary it was built from is a second copy.
    texts = TEXT_FILES if "tokenizer.json" not in files else ()
    if "tokenizer.json" in files:
        files.pop("vocab.json", None)
    for name in texts:
        if (folder / name).is_file():
            files[name] = read_text(folder / name, Origin(str(folder / name), CheckpointError, "fetch it again"))
    return files
