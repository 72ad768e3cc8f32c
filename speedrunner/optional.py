"""Packages that only some commands need, and only where somebody asks for them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class NotInstalled(Exception):
    """A package that was asked for is not there."""


def optional(module: str, package: str, what: str) -> ModuleType:
    """Import a module of an optional package.

    Args:
        package: what brings it, as pip calls it.
        what: that needs it, such as `logging=wandb`.

    Raises:
        NotInstalled: it is not there.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise NotInstalled(
            f"{what} needs the package {package}, which is not installed ({error}): pip install {package}"
        ) from None
