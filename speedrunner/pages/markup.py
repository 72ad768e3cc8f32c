"""Templates and stylesheet of all pages.

Templates escape every text and remove control characters.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import jinja2

from speedrunner.config.console import visible


@cache
def templates() -> jinja2.Environment:
    """Return the templates of all pages. All callers share one environment, so each is compiled once."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )


def stylesheet() -> str:
    """Return the CSS of all pages."""
    return (files(__package__) / "templates" / "style.css").read_text(encoding="utf-8")
