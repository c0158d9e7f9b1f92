"""Where several networks go that one command makes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydractl.errors import OptionError

MEMBER = "{member}"


def output_paths(output: str | Path, names: Sequence[str]) -> list[Path]:
    """A file for each network: `output` itself for one, else by name in that folder, or numbered where {member} stands.

    Args:
        output: a path; one that ends with a slash is a folder, whether it is there or not.
        names: of the networks, without suffix.

    Raises:
        OptionError: several networks and one file to write, or two of one name.
    """
    path = Path(output)
    if MEMBER in path.name:
        return [path.with_name(path.name.replace(MEMBER, str(number))) for number in range(len(names))]
    if path.is_dir() or str(output).endswith("/"):
        paths = [path / f"{name}.safetensors" for name in names]
        if len(set(paths)) < len(paths):
            raise OptionError(f"`output` {output}: two models have the same name: use a name with {MEMBER}")
        return paths
    if len(names) > 1:
        raise OptionError(f"`output` {output}: {len(names)} members need a folder (NAME/) or a name with {MEMBER}")
    return [path]
