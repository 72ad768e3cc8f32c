"""What registered classes can be made with."""

from __future__ import annotations

from typing import Any

from envs.class_registry import Registry


def options(registry: Registry[Any], name: object) -> dict[str, Any]:
    """The options of a class, with their defaults."""
    return {option: each.default for option, each in registry.options_of(registry.find(name)).items()}
