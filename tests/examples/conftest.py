"""The command line and the small models of its tests, for the examples' tests as well."""

from tests.cli.conftest import hydractl, images, noise, vit

__all__ = ["hydractl", "images", "noise", "vit"]
