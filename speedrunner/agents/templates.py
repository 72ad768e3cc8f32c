"""Prompts as Jinja files beside the code that uses them; a variable that is missing is an error."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def _environment(package: str) -> Environment:
    return Environment(
        loader=PackageLoader(package, "prompts"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )


def render(package: str, name: str, **variables: Any) -> str:
    """Fill in a prompt, without leading or trailing blank lines.

    Args:
        package: whose folder `prompts` holds it.
        name: of its file, without `.jinja`.
    """
    return _environment(package).get_template(f"{name}.jinja").render(**variables).strip()
