"""`speedrunner list`: what can be named."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer

from speedrunner.cli.command import key_values
from speedrunner.config.commented import commented_yaml
from speedrunner.config.compose import ELSEWHERE, compose, group_choices
from speedrunner.config.schema import InvalidConfig
from speedrunner.console import visible


def list_(
    what: Annotated[
        Literal["envs", "methods", "models", "experiments", "keys"],
        typer.Argument(help="Of what.", show_default=False),
    ],
    overrides: Annotated[
        list[str] | None, key_values("With `keys`: what differs from the defaults (env=crafter).")
    ] = None,
) -> None:
    """List environments, methods, models, experiments, or all keys of the configuration.

    `keys` prints the whole configuration as YAML, each key explained.

    Example: speedrunner list keys env=crafter method=voyager
    """
    if what == "keys":
        typer.echo(visible(commented_yaml(compose(overrides or []))), nl=False)
        return
    if overrides:
        raise InvalidConfig(f"{overrides[0]}: only `speedrunner list keys` takes values")
    group = what.removesuffix("s")
    files = group_choices(group)
    width = max(map(len, files))
    for name, file in files.items():
        comment = re.match(r"(?:# @.*\n)?((?:#.*\n)*)", file.read_text(errors="replace"))
        said, _, _ = " ".join(comment[1].replace("#", "").split() if comment else []).partition(". ")
        typer.echo(visible(f"{name:{width}}  {said.rstrip('.')}").rstrip())
    if group in ELSEWHERE:
        typer.echo(f"or {ELSEWHERE[group]}")
