"""The table of tasks."""

import ast
from typing import get_args

from hydractl.checkpoint.spec import TOWERS_OF, Task
from hydractl.tasks.all_tasks import TASKS
from tests.test_imports import modules


def test_every_task_of_a_spec_has_a_row() -> None:
    assert [task.name for task in TASKS] == list(get_args(Task)) == list(TOWERS_OF)


def test_only_their_own_room_and_specs_know_the_names_of_tasks() -> None:
    names = set(get_args(Task))

    def asks(node: ast.AST) -> bool:
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        return any(isinstance(part, ast.Constant) and part.value in names for side in sides for part in ast.walk(side))

    assert [name for name, tree in modules().items() if any(map(asks, ast.walk(tree)))] == []
