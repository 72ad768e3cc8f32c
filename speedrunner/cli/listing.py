"""`speedrunner list`: what can be named."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer

from speedrunner.config.compose import ELSEWHERE, group_choices
from speedrunner.console import visible


def list_(
    what: Annotated[
        Literal["envs", "methods", "models", "experiments"],
        typer.Argument(help="Of what.", show_default=False),
    ],
) -> None:
    """Print the names there are of environments, methods, models or experiments, with what each is.

    Example: speedrunner list models
    """
    group = what.removesuffix("s")
    files = group_choices(group)
    width = max(map(len, files))
    for name, file in files.items():
        comment = re.match(r"(?:# @.*\n)?((?:#.*\n)*)", file.read_text(errors="replace"))
        said, _, _ = " ".join(comment[1].replace("#", "").split() if comment else []).partition(". ")
        typer.echo(visible(f"{name:{width}}  {said.rstrip('.')}").rstrip())
    if group in ELSEWHERE:
        typer.echo(f"or {ELSEWHERE[group]}")
