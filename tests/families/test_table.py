"""The guide's table of families counts the variants that the tests of every command run.

`python -m tests.families.test_table` prints it.
"""

from collections import Counter

from hydractl.checkpoint.spec import EMBEDDINGS
from hydractl.families import FAMILIES
from hydractl.steps.guide import page
from tests.references import variants

NAMES = sorted((family.name for family in FAMILIES), key=len, reverse=True)


def table() -> str:
    """The table as Markdown; tests with the fixture `reference` run on every variant."""
    counts = Counter(next(name for name in NAMES if f"{variant}-".startswith(f"{name}-")) for variant in variants())
    # Networks that embed have no variants of their own: `test_base` compares every bare one.
    classifiers = [family for family in FAMILIES if family.task not in EMBEDDINGS.values()]
    rows = [f"| {family.title} | {family.task} | {counts[family.name]} |" for family in classifiers]
    return "\n".join(["| family | task | variants |", "|---|---|---|", *rows])


def test_the_guide_counts_the_variants_of_each_family() -> None:
    assert table() in page("models")


if __name__ == "__main__":
    print(table())
