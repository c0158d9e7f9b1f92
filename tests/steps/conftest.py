"""Steps are tested beside their commands, on the same small things."""

from tests.cli.conftest import bert, hydractl, images, noise, vit  # noqa: F401
