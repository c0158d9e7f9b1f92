"""Steps are tested beside their commands, on the same small things."""

import pytest

from tests.cli.conftest import Command, bert, hydractl, images, noise, vit  # noqa: F401


@pytest.fixture
def run(hydractl: Command) -> Command:  # noqa: F811
    """The command line, by a name that leaves `hydractl` to the package."""
    return hydractl
