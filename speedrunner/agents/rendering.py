"""Prompts from templates."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _environment(package: str) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # commands that render nothing need none

    environment = Environment(
        loader=PackageLoader(package, "prompts"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["quoted"] = _quote
    return environment


def _quote(text: str) -> str:
    """Mark each line of a text as quoted."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def render(package: str, name: str, wording: int = 0, **variables: Any) -> str:
    """Render a prompt and strip leading and trailing blank lines.

    Args:
        package: the package with the folder `prompts`.
        name: the template's file name without `.jinja`.
        wording: the paraphrase to use, from the folder `wording_N`, if there is one of this template.
        variables: the template's variables; a missing one is an error.
    """
    files = [f"wording_{wording}/{name}.jinja", f"{name}.jinja"]
    return _environment(package).select_template(files).render(**variables).strip()
