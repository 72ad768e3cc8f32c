"""`speedrunner list`: list names for settings, and all settings as YAML with comments that explain them."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
import typer

from speedrunner.cli.command import key_values
from speedrunner.cli.output import say
from speedrunner.config.compose import ELSEWHERE, GROUPS, LISTS, compose, group_choices
from speedrunner.config.names import CONFIGS
from speedrunner.config.schema import ClassConfig, Config, InvalidConfig, to_mapping
from speedrunner.plain.plain_yaml import write_yaml

WIDTH = 100
"""Maximum columns of a comment."""


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
        comment = re.match(r"((?:#.*\n)*)", file.read_text(errors="replace"))
        text = " ".join(comment[1].replace("#", "").split() if comment else [])
        say(f"{name:{width}}  {text.partition('. ')[0].rstrip('.')}".rstrip())
    if group in ELSEWHERE:
        say(f"or {ELSEWHERE[group]}")


def commented_yaml(config: Config) -> str:
    """Return a configuration as YAML, with an explanation of each section and key.

    Explanations come from the typed records; those of bundled environments' and methods' options from
    `configs/`.
    """
    sections = to_mapping(config)
    lines = _comment(
        f"{', '.join(GROUPS)}=NAME choose a file for their sections, preset=NAME one for several. `run` and"
        f" `sweep` also take {' and '.join(LISTS)}=NAME."
    )
    for field in msgspec.structs.fields(Config):
        if field.name not in sections:
            continue
        content = sections[field.name]
        if not isinstance(content, dict):
            lines += ["", *_comment(key_comments(Config)[field.name]), *_entry(field.name, content)]
            continue
        explained = key_comments(field.type)
        lines += ["", *_comment((field.type.__doc__ or "").partition("\n")[0]), f"{field.name}:"]
        if field.type is ClassConfig:
            file = CONFIGS / field.name / f"{content['name']}.yaml"
            explained |= dict(
                re.findall(r"(?m)^(\w+): .* # (.*)$", file.read_text() if file.is_file() else "")
            )
        for key, value in content.items():
            entry = [*_comment(explained.get(key, ""), indent=2), *_entry(key, value)]
            lines += textwrap.indent("\n".join(entry), "  ").split("\n")
    return "\n".join(lines) + "\n"


def key_comments(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the `#:` comment above each field of a record and its bases, in one line each."""
    comments: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            comments |= dict(_comments_in(inspect.getsource(base)))
    return comments


def _comments_in(source: str) -> Iterator[tuple[str, str]]:
    above: list[str] = []
    for line in source.splitlines():
        if comment := re.fullmatch(r"\s*#: (.*)", line):
            above.append(comment[1])
        elif above and (field := re.match(r"\s*(\w+):", line)):
            yield field[1], " ".join(above).replace("`None`", "null")
            above = []


def _comment(text: str, indent: int = 0) -> list[str]:
    return textwrap.wrap(text, WIDTH - indent, initial_indent="# ", subsequent_indent="# ")


def _entry(key: str, value: Any) -> list[str]:
    return write_yaml({key: value}).splitlines()
