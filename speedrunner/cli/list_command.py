"""`speedrunner list`: list names for settings, and all settings."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer

from speedrunner.cli.command import key_values
from speedrunner.cli.output import say
from speedrunner.config.commented import commented_yaml
from speedrunner.config.compose import ELSEWHERE, compose, group_choices
from speedrunner.config.schema import InvalidConfig


def list_(
    what: Annotated[
        Literal["envs", "methods", "models", "experiments", "keys"],
        typer.Argument(metavar="WHAT", help="envs, methods, models, experiments or keys."),
    ],
    overrides: Annotated[
        list[str] | None, key_values("With `keys`: settings that differ from the defaults (env=crafter).")
    ] = None,
) -> None:
    """List environments, methods, models, experiments or all settings.

    `keys` prints the whole configuration as YAML, with an explanation of each key.

    Example: speedrunner list keys env=crafter method=voyager
    """
    if what == "keys":
        say(commented_yaml(compose(overrides or [])), end="")
        return
    if overrides:
        raise InvalidConfig(f"{overrides[0]}: settings work only with `speedrunner list keys`")
    group = what.removesuffix("s")
    files = group_choices(group)
    width = max(map(len, files))
    for name, file in files.items():
        comment = re.match(r"(?:# @.*\n)?((?:#.*\n)*)", file.read_text(errors="replace"))
        text = " ".join(comment[1].replace("#", "").split() if comment else [])
        say(f"{name:{width}}  {text.partition('. ')[0].rstrip('.')}".rstrip())
    if group in ELSEWHERE:
        say(f"or {ELSEWHERE[group]}")
