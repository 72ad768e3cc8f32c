"""`speedrunner list`: what can be named."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer

from speedrunner.config.compose import ELSEWHERE, group_choices


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
        (comment,) = re.findall(r"\A(?:# @.*\n)?((?:#.*\n)+)", file.read_text())
        said, _, _ = " ".join(comment.replace("#", "").split()).partition(". ")
        typer.echo(f"{name:{width}}  {said.rstrip('.')}")
    if group in ELSEWHERE:
        typer.echo(f"or {ELSEWHERE[group]}")
