"""The table of tasks."""

import ast
import re
from typing import get_args

from hydractl.checkpoint.spec import TOWERS_OF, TaskName
from hydractl.steps.guide import page
from hydractl.tasks.all_tasks import TASKS
from tests.test_imports import modules


def test_every_task_of_a_spec_has_a_row() -> None:
    assert [task.name for task in TASKS] == list(get_args(TaskName)) == list(TOWERS_OF)


def test_only_their_own_room_and_specs_know_the_names_of_tasks() -> None:
    names = set(get_args(TaskName))

    def asks(node: ast.AST) -> bool:
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        return any(isinstance(part, ast.Constant) and part.value in names for side in sides for part in ast.walk(side))

    assert [name for name, tree in modules().items() if any(map(asks, ast.walk(tree)))] == []


def test_the_guide_tells_what_each_task_is_measured_by() -> None:
    told = re.findall(r"^\| [\w, -]+ \| ([\w ]+) \| .+ \| (.+) \|$", page("search"), re.MULTILINE)
    assert {(name, confidence != "none") for name, confidence in told if name in {task.measured for task in TASKS}} == {
        (task.measured, task.tells_ood != "nothing") for task in TASKS
    }
