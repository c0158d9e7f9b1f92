"""The guide's table of families and commands counts what the tests collect.

`python -m tests.families.test_table` prints it.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from hydractl.checkpoint.spec import EMBEDDINGS
from hydractl.families import FAMILIES
from hydractl.steps.guide import page
from tests.references import variants

ROOT = Path(__file__).parents[2]
#: The tests of each command whose parameters are variants of families: equalities with the family's own library.
COMPARED = (
    "tests/model/test_hydra.py::test_equals_transformers_in_float64",
    "tests/surgery/test_slicing.py::test_pruned_equals_zeroed_columns",
    "tests/surgery/test_fusion.py::test_members_that_share_their_mlp_keep_their_logits",
    "tests/circuit/test_replay.py",
    "tests/exports/test_stock.py::test_pruned_loads_there_with_zeros_for_heads",
)


NAMES = sorted((family.name for family in FAMILIES), key=len, reverse=True)
VARIANT_FAMILY = {v: next(name for name in NAMES if v == name or v.startswith(f"{name}-")) for v in variants()}


def table() -> str:
    """The table as Markdown: how many variants of a family the tests of every command run."""
    files = sorted({tests.partition("::")[0] for tests in COMPARED})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    lines = ["| family | task | variants |", "|---|---|---|"]
    for family in FAMILIES:
        if family.task in EMBEDDINGS.values():  # whose networks, like every bare one, `test_base` compares
            continue
        endings = tuple(f"[{variant}]" for variant, name in VARIANT_FAMILY.items() if name == family.name)
        own = [line for line in collected if line.endswith(endings)]
        counts = {len({line.rpartition("[")[2] for line in own if line.startswith(tests)}) for tests in COMPARED}
        [count] = counts  # every command is compared on all of them
        lines.append(f"| {family.title} | {family.task} | {count} |")
    return "\n".join(lines)


@pytest.mark.slow
def test_the_guide_counts_what_the_tests_collect() -> None:
    assert table() in page("models")


if __name__ == "__main__":
    print(table())
