"""Several networks of one command each get a file of their own, or the command is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hydractl.checkpoint.outputs import output_paths
from hydractl.errors import OptionError


def test_which_files(tmp_path: Path) -> None:
    names = ["a", "b"]
    assert output_paths("m", names[:1]) == [Path("m")]
    assert output_paths(tmp_path, names) == [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    assert output_paths("new/", names) == [Path("new/a.safetensors"), Path("new/b.safetensors")]
    assert output_paths("m{member}", names) == [Path("m0"), Path("m1")]
    with pytest.raises(OptionError, match="`output` m: 2 members need a folder"):
        output_paths("m", names)
    with pytest.raises(OptionError, match="`output` new/: two models have the same name"):
        output_paths("new/", ["a", "a"])
