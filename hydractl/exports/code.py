"""The forward pass as files that stand alone: this project's own modules, flat beside the weights.

transformers runs them where this project is not installed, for a user who says `trust_remote_code=True`.
"""

import ast
import importlib.util
import re
from pathlib import Path

from hydractl.checkpoint.output import write_bytes

MODELING = "hydractl.exports.modeling"
ENTRIES = {"hydractl.exports.configuration": "configuration_hydra", MODELING: "modeling_hydra"}
NOTE = "# Written by hydractl: {module} of its release that wrote the weights beside it. Apache-2.0.\n"


def write_code(folder: Path, force: bool = False) -> None:
    """Writes every module that the model classes need into a folder, importing one another from there.

    Raises:
        OutputError: a file exists and `force` is not set, or the disk refuses it.
    """
    for module, text in flat_modules().items():
        write_bytes(folder / f"{file_name(module)}.py", text.encode(), force)


def flat_modules() -> dict[str, str]:
    """Returns the source of each module by name, with relative and flat imports of this project's modules."""
    sources: dict[str, str] = {}
    waiting = sorted(ENTRIES)
    while waiting:
        module = waiting.pop()
        if module in sources:
            continue
        source = _source(module)
        needed = _imports(source)
        waiting += needed
        for other in needed:
            source = re.sub(rf"^from {re.escape(other)} import", f"from .{file_name(other)} import", source, flags=re.M)
        sources[module] = NOTE.format(module=module) + source
    return {**sources, MODELING: sources[MODELING] + _named(sorted(sources))}


def file_name(module: str) -> str:
    """Returns the name of a module's file, without its ending."""
    return ENTRIES.get(module, "hydra_" + module.removeprefix("hydractl.").replace(".", "_"))


def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def _named(modules: list[str]) -> str:
    """Returns lines that name the modules but import none: transformers 5.9 copies only what an entry itself names."""
    return "\n\nif False:\n" + "".join(f"    from .{file_name(module)} import *\n" for module in modules)


def _imports(source: str) -> list[str]:
    """Returns this project's modules that a source imports when it is loaded, not those inside functions."""
    return [
        node.module
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("hydractl.")
    ]
