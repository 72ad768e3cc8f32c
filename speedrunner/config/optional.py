"""Import packages that only some commands need."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class NotInstalled(Exception):
    """An optional package is missing."""


def optional(module: str, package: str, what: str) -> ModuleType:
    """Import a module of an optional package.

    Args:
        package: the package's name for pip.
        what: the feature that needs it, such as `logging=wandb`.

    Raises:
        NotInstalled: the package is missing.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise NotInstalled(
            f"{what} needs the package {package}, which is not installed ({error}); install it with:"
            f" pip install {package}"
        ) from None
