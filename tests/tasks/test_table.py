"""The table of tasks."""

import ast
from typing import get_args

from hydractl.checkpoint.spec import TOWERS_OF, Task
from hydractl.tasks.table import TASKS
from tests.test_imports import modules


def test_every_task_of_a_spec_has_a_row() -> None:
    assert [task.name for task in TASKS] == list(get_args(Task)) == list(TOWERS_OF)


def test_only_its_own_room_compares_the_name_of_a_task() -> None:
    def asks(node: ast.AST) -> bool:
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        return any(isinstance(side, ast.Attribute | ast.Name) and ast.unparse(side).endswith("task") for side in sides)

    asking = [name for name, tree in modules().items() if any(map(asks, ast.walk(tree)))]
    assert [name for name in asking if not name.startswith("tasks.")] == []
