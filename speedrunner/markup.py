"""Render HTML from templates: every text is escaped, without control characters."""

from __future__ import annotations

import jinja2

from speedrunner.console import visible


def templates(package: str) -> jinja2.Environment:
    """Return the templates in a package."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package, "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
