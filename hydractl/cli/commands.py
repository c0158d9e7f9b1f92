"""The subcommands of `hydractl`, in the order of the pipeline."""

from __future__ import annotations

from hydractl.cli.derive import Command
from hydractl.steps.fuse import fuse
from hydractl.steps.guide import guide
from hydractl.steps.inspect import inspect

COMMANDS = (
    Command("fuse", fuse, writes=True),
    Command("inspect", inspect),
    Command("guide", guide),
)
