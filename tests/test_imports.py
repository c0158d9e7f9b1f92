"""The order of the house: a file imports only from rows above its own, wherever the import stands."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "hydractl"
#: Folders and the files beside them, from the top. What an engine may use stands above it.
ROWS = (
    "text", "errors", "watch", "bounds", "options", "process", "run_options", "schema",
    "ood", "checkpoint", "metrics", "tasks", "artifacts", "drawing", "families", "model", "data", "inference",
    "circuit", "surgery", "systems", "calibration", "monitoring", "evaluation", "serve", "training", "selection",
    "reports", "exports", "auto",
    "inputs", "steps", "pipeline", "cli", "__main__",
)  # fmt: skip
#: `build` is the command of what is planned there; all other commands are what a plan consists of.
EXCEPTIONS = {"steps.build": "pipeline"}


def modules() -> dict[str, ast.Module]:
    """Every module of the package, without its first name."""
    files = (path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
    return {".".join(path.relative_to(PACKAGE).with_suffix("").parts): ast.parse(path.read_text()) for path in files}


def imported(tree: ast.Module, known: set[str]) -> Iterator[str]:
    """The modules that one imports, also in functions and for types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hydractl"):
            base = str(node.module).removeprefix("hydractl").removeprefix(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".removeprefix(".")
                yield inner if inner in known else base


def row(module: str) -> int:
    return ROWS.index(module.split(".")[0])


def test_no_import_climbs() -> None:
    trees = modules()
    climbing = [
        f"{name} imports {other}"
        for name, tree in trees.items()
        for other in imported(tree, set(trees))
        if other and row(other) > row(name) and EXCEPTIONS.get(name) != other.split(".")[0]
    ]
    assert not climbing


def test_no_files_import_each_other() -> None:
    trees = modules()
    graph = {name: set(imported(tree, set(trees))) & set(trees) - {name} for name, tree in trees.items()}
    while free := [name for name, others in graph.items() if not others & graph.keys()]:
        for name in free:
            del graph[name]
    assert not graph
