"""Prompts as Jinja files; a variable that is missing is an error."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def _environment() -> Environment:
    loader = PackageLoader("speedrunner", "prompts")
    return Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )


def render(name: str, **variables: Any) -> str:
    """Fill in the prompt `name` (`actor/system`), without leading or trailing blank lines."""
    return _environment().get_template(f"{name}.jinja").render(**variables).strip()
