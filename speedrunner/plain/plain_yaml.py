"""Read YAML as plain data: mappings, lists, text, numbers, true, false and null."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from speedrunner.plain.console import shorten
from speedrunner.plain.plain_records import as_written

MOST_DEPTH = 50
"""Most lists and mappings within each other."""


class NotPlain(ValueError):
    """The text is not YAML, or more than plain data. The message is one line."""


class _Loader(yaml.CSafeLoader):
    """As in YAML 1.2, `on`, `off`, `yes`, `no` and dates are text, and 1e-3 is a number."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is set twice."""
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if twice := next((key for key, count in keys.items() if count > 1), None):
            raise NotPlain(f"`{shorten(as_written(twice))}` is set twice")
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {}
_SCALARS = {
    "bool": ("true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?(0|[1-9][0-9_]*)", "-+0123456789"),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9][0-9_]*\.[0-9_]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
    "null": ("~|null|Null|NULL|", ["~", "n", "N", ""]),
}
for _name, (_pattern, _first) in _SCALARS.items():
    _resolver = re.compile(rf"({_pattern})\Z")
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", _resolver, list(_first))


class _Dumper(yaml.SafeDumper):
    """Writes a value that occurs twice in full each time, and quotes text that looks like a number."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(rf"({_SCALARS['float'][0]})\Z"), list(_SCALARS["float"][1])
)


def write_yaml(content: object) -> str:
    """Return plain data as YAML; keys keep their order."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def read_yaml(text: str) -> Any:
    """Return the content of a YAML text. Aliases are not read: a small text could expand without end.

    Raises `NotPlain`.
    """
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_DEPTH:  # the loader in C would end the process
                raise NotPlain(f"it is nested more than {MOST_DEPTH} deep")
            if isinstance(event, yaml.AliasEvent):
                raise NotPlain(f"`*{shorten(event.anchor or '')}` is not read: write the value again")
        return yaml.load(text, Loader=_Loader)
    except NotPlain:
        raise
    except Exception as error:  # a value that does not fit its tag may raise anything
        raise NotPlain(f"it is not valid YAML: {' '.join(str(error).split())[:300]}") from None


def read_yaml_file(file: Path) -> Any:
    """Return the content of a YAML file. Raises `NotPlain`, which names the file."""
    if file.exists() and not file.is_file():
        raise NotPlain(f"{file} cannot be read: it is a folder, a pipe or a device")
    try:
        return read_yaml(file.read_text("utf-8"))
    except OSError as error:
        raise NotPlain(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:  # `NotPlain`, and bytes that are not text
        raise NotPlain(f"{file} cannot be read: {error}") from None


def read_value(text: str) -> Any:
    """Return a value that a user wrote in a command: a YAML number, list, mapping, quoted text ... or text.

    Text without quotes is taken as it is, whatever characters it has. Raises `NotPlain`.
    """
    if text.startswith(("[", "{", "'", '"')):
        return read_yaml(text)
    try:
        value = read_yaml(text) if text else text
    except NotPlain:
        return text
    return text if isinstance(value, str | dict | list) else value
