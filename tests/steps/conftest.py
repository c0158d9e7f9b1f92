"""Steps are tested beside their commands, on the same small things."""

import pytest

from tests.cli.conftest import (  # noqa: F401
    Command,
    bert,
    held_out,
    here,
    hydractl,
    images,
    noise,
    other,
    place,
    slow_search,
    uninterrupted,
    vit,
)


@pytest.fixture
def run(hydractl: Command) -> Command:  # noqa: F811
    """The command line, by a name that leaves `hydractl` to the package."""
    return hydractl
